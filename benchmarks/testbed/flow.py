"""Other traffic on a link: datagrams to an address at a given rate, until the process is ended.

``python -m benchmarks.testbed.flow ADDRESS MBIT``
"""

from __future__ import annotations

import socket
import sys
import time

PORT = 9
DATAGRAM_BYTES = 32_000
"""Large, so that few calls fill a link; the kernel sends it as fragments."""
BURST = 2
"""Datagrams between two pauses."""


def main() -> None:
    address, mbit = sys.argv[1], int(sys.argv[2])
    burst_s = BURST * DATAGRAM_BYTES * 8 / (mbit * 1e6)
    content = bytes(DATAGRAM_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        due_s = time.monotonic()
        while True:
            for _ in range(BURST):
                try:
                    out.sendto(content, (address, PORT))
                except OSError:
                    continue  # nothing listens there, or the queue is full
            due_s = max(due_s + burst_s, time.monotonic() - 0.01)
            time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main()
