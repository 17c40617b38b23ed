"""A slow network for the demo, where the machine allows one: on loopback alone two processes that
share a few cores have little to wait for, and nothing to win by better scheduling."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

GBIT_EACH_WAY = 1
# Both ways of both processes pass loopback's one queue. What fills it must not keep others waiting
# for long, nor take it for slower than it is, where the kernel lets one say so.
_LIMIT = (
    "cd /proc/sys/net/ipv4 && { echo reno > tcp_congestion_control;"
    " echo 262144 > tcp_limit_output_bytes; } 2> /dev/null; cd - > /dev/null;"
    f" ip link set lo up && tc qdisc add dev lo root tbf rate {2 * GBIT_EACH_WAY}gbit"
    ' burst 256kb latency 200ms && exec "$@"'
)
_TOOLS = ("unshare", "ip", "tc")


def behind_slow_network(command: Sequence[str]) -> list[str]:
    """The command in a network of its own, which ends with it; nothing else sees that."""
    return ["unshare", "--map-root-user", "--net", "--", "sh", "-c", _LIMIT, "sh", *command]


def can_have_slow_network() -> bool:
    """Needs Linux with iproute2, and the right to make namespaces."""
    if not all(shutil.which(tool) for tool in _TOOLS):
        return False
    try:
        tried = subprocess.run(  # noqa: S603
            behind_slow_network(["true"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
