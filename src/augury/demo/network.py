"""A slow network for the demo, in a network namespace.

Over plain loopback, two processes on a few cores hardly wait for communication, so that scheduling
could gain nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

GBIT_EACH_WAY = 1
# Both directions of both processes share the one queue of loopback, hence twice the rate. Where the
# kernel allows it, a smaller socket limit keeps the queue short, and Reno replaces congestion
# control that would underestimate the rate.
_LIMIT = (
    "cd /proc/sys/net/ipv4 && { echo reno > tcp_congestion_control;"
    " echo 262144 > tcp_limit_output_bytes; } 2> /dev/null; cd - > /dev/null;"
    f" ip link set lo up && tc qdisc add dev lo root tbf rate {2 * GBIT_EACH_WAY}gbit"
    ' burst 256kb latency 200ms && exec "$@"'
)
_TOOLS = ("unshare", "ip", "tc")


def behind_slow_network(command: Sequence[str]) -> list[str]:
    """Returns a command that runs the given one in its own network, which ends with it."""
    return ["unshare", "--map-root-user", "--net", "--", "sh", "-c", _LIMIT, "sh", *command]


def can_have_slow_network() -> bool:
    """Tries to make one, which needs Linux with iproute2 and the right to make namespaces."""
    if not all(shutil.which(tool) for tool in _TOOLS):
        return False
    try:
        done = subprocess.run(  # noqa: S603
            behind_slow_network(["true"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
