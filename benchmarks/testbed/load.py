"""Other load on the machine: bursts of a busy loop, of random length, until the process is ended.

``python -m benchmarks.testbed.load SEED``
"""

from __future__ import annotations

import random
import sys
import time

BURST_S = (0.2, 3.0)


def main() -> None:
    choose = random.Random(int(sys.argv[1]))
    while True:
        until_s = time.monotonic() + choose.uniform(*BURST_S)
        while time.monotonic() < until_s:
            sum(range(10_000))
        time.sleep(choose.uniform(*BURST_S))


if __name__ == "__main__":
    main()
