"""Calibration of the network between the ranks.

It times all-reduces of several sizes: alone, two at once, and during compute. Between two ranks,
whose plans may exchange messages instead, it also times messages in both directions, one and many
at once.

The calibration uses its own process group, made from gloo directly: torch.distributed names groups
by its list of them, which must not change. All ranks are at the same step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from augury.core.trace.rank_record import CalibrationRecord

TIMEOUT = timedelta(seconds=60)
PATIENCE = timedelta(seconds=10)
KIB, MIB = 1 << 10, 1 << 20
SIZES_BYTES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)
CROWDED_FROM_BYTES = 256 * KIB
"""Smaller all-reduces end before anything concurrent can be measured."""
SHARE_NS = 150_000_000
"""Time per size and situation: some three seconds in total on a fast network."""
MAX_REPEATS = 40
"""Where cores are scarce, a small all-reduce takes between 0.1 and 3 ms."""
TOO_LONG_NS = 800_000_000
COMPUTE_NS = 20_000_000
STREAM = 8
"""Number of concurrent messages, to measure the cost of one that follows others."""
SITUATIONS = (
    *(("all_reduce", size_bytes, 1, False) for size_bytes in SIZES_BYTES),
    *(
        ("all_reduce", size_bytes, concurrent, during_compute)
        for size_bytes in SIZES_BYTES
        if size_bytes >= CROWDED_FROM_BYTES
        for concurrent, during_compute in ((2, False), (1, True))
    ),
)
"""Collective, bytes, number at once, whether during compute."""
BETWEEN_TWO = (
    *(("send", size_bytes, 1, False) for size_bytes in (4 * KIB, 64 * KIB, MIB, 4 * MIB)),
    *(("send", size_bytes, STREAM, False) for size_bytes in (64 * KIB, 256 * KIB, MIB)),
    ("send", 4 * MIB, 1, True),
)
COMPUTE_SHARE = 0.8
"""Duration of compute during messages, as a share of their time alone: their completion is not
visible before a wait."""

_attempts = count()


def calibrate() -> list[CalibrationRecord]:
    """Returns nothing in a job without gloo or other ranks, or if a rank does not take part."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return []
    if distributed.get_world_size() < 2 or "gloo" not in distributed.get_backend():
        return []
    rank, size = distributed.get_rank(), distributed.get_world_size()
    store = distributed.PrefixStore(
        f"augury/calibrate/{next(_attempts)}", distributed.distributed_c10d._get_default_store()
    )
    if not _all_take_part(store, rank, size):
        return []
    group = distributed.ProcessGroupGloo(store, rank, size, TIMEOUT)
    return _Calibration(group, SITUATIONS if size > 2 else (*SITUATIONS, *BETWEEN_TWO)).run()


def _all_take_part(store: Any, rank: int, size: int) -> bool:
    """Rank 0 checks and announces it: a rank whose recorder failed must not block the others."""
    store.set(f"ready/{rank}", "1")
    if rank:
        store.wait(["go"], 2 * PATIENCE)
        return bool(store.get("go") == b"1")
    try:
        store.wait([f"ready/{other}" for other in range(size)], PATIENCE)
    except Exception:
        store.set("go", "0")
        return False
    store.set("go", "1")
    return True


@dataclass(slots=True)
class _Samples:
    collective: str
    size_bytes: int
    concurrent: int
    during_compute: bool
    durations_ns: list[int] = field(default_factory=list)
    products: int = 0
    computed_ns: int = 0
    products_alone: int = 0
    alone_ns: int = 0

    def add_alone(self, done: tuple[int, int]) -> None:
        self.products_alone += done[0]
        self.alone_ns += done[1]

    def record(self) -> CalibrationRecord:
        rate = None
        if self.during_compute:
            alone = self.products_alone / self.alone_ns
            rate = self.products / self.computed_ns / alone
        return CalibrationRecord(
            collective=self.collective,
            group="0",
            size_bytes=self.size_bytes,
            concurrent=self.concurrent,
            beside_compute=self.during_compute,
            durations_ns=self.durations_ns,
            compute_rate=rate,
        )


class _Calibration:
    """Rank 0 chooses the number of repetitions, so that all ranks do the same."""

    def __init__(self, group: Any, situations: Sequence[tuple[str, int, int, bool]]) -> None:
        import torch

        self._group = group
        self._situations = situations
        # Zeros stay zeros however often they are summed.
        self._data = [torch.zeros(max(SIZES_BYTES), dtype=torch.uint8) for _ in range(2)]
        self._alone_ns: dict[int, int] = {}
        """Duration of messages without compute, by their size."""
        self._matrix, self._product = torch.ones(96, 96), torch.empty(96, 96)

    def run(self) -> list[CalibrationRecord]:
        for _ in range(2):  # opens connections and uses up the burst of a rate limit
            first_ns = self._one("all_reduce", MIB, concurrent=1)
        guesses = [
            first_ns * concurrent * size_bytes // MIB
            for _, size_bytes, concurrent, _ in self._situations
        ]
        counts = self._agree([_repeats(guess) for guess in guesses])
        found = [_Samples(*situation) for situation in self._situations]
        for samples, repeats in zip(found, counts, strict=True):
            self._measure(samples, repeats)
            if samples.durations_ns and samples.collective == "send" and not samples.during_compute:
                self._alone_ns[samples.size_bytes] = min(samples.durations_ns)
        self._group.barrier().wait()
        return [samples.record() for samples in found if samples.durations_ns]

    def _measure(self, samples: _Samples, repeats: int) -> None:
        """Repeats without a pause, as in a step: after a pause, the burst of a rate limit and the
        scheduler's credit for a sleeping thread would make the next one faster."""
        if samples.during_compute and repeats:
            samples.add_alone(self._compute_alone())
        self._group.barrier().wait()
        for _ in range(repeats):
            if samples.during_compute:
                duration_ns = self._during_compute(samples)
            else:
                duration_ns = self._one(
                    samples.collective, samples.size_bytes, concurrent=samples.concurrent
                )
            samples.durations_ns.append(duration_ns)
        if samples.during_compute and repeats:
            samples.add_alone(self._compute_alone())

    def _agree(self, repeats: list[int]) -> list[int]:
        import torch

        chosen = torch.tensor(repeats, dtype=torch.int64)
        self._group.broadcast(chosen, 0).wait()
        return [int(number) for number in chosen.tolist()]

    def _begin(self, collective: str, size_bytes: int, *, concurrent: int) -> tuple[int, list[Any]]:
        group, (sent, taken) = self._group, self._data
        if collective == "all_reduce":
            group.barrier().wait()
        # Messages in both directions end at the same time on both ranks, where the next ones begin.
        start_ns = time.perf_counter_ns()
        if collective == "all_reduce":
            return start_ns, [
                group.allreduce(data[:size_bytes]) for data in (sent, taken)[:concurrent]
            ]
        other = 1 - group.rank()
        # Zeros again, so that all of them may arrive in one buffer.
        works = [group.recv([taken[:size_bytes]], other, tag) for tag in range(concurrent)]
        works += [group.send([sent[:size_bytes]], other, tag) for tag in range(concurrent)]
        return start_ns, works

    def _one(self, collective: str, size_bytes: int, *, concurrent: int) -> int:
        start_ns, works = self._begin(collective, size_bytes, concurrent=concurrent)
        for work in works:
            work.wait()
        return time.perf_counter_ns() - start_ns

    def _during_compute(self, samples: _Samples) -> int:
        is_sent = samples.collective == "send"
        least_ns = round(COMPUTE_SHARE * self._alone_ns.get(samples.size_bytes, COMPUTE_NS))
        start_ns, works = self._begin(samples.collective, samples.size_bytes, concurrent=1)
        passed_ns = 0
        while passed_ns < least_ns if is_sent else not works[0].get_future().done():
            self._multiply()
            samples.products += 1
            passed_ns = time.perf_counter_ns() - start_ns
        samples.computed_ns += passed_ns
        for work in works:
            work.wait()
        return time.perf_counter_ns() - start_ns

    def _compute_alone(self) -> tuple[int, int]:
        """Returns the number of products and their duration while all ranks compute."""
        self._multiply()
        self._group.barrier().wait()
        start_ns = time.perf_counter_ns()
        products = passed_ns = 0
        while passed_ns < COMPUTE_NS:
            self._multiply()
            products += 1
            passed_ns = time.perf_counter_ns() - start_ns
        return products, passed_ns

    def _multiply(self) -> None:
        import torch

        torch.mm(self._matrix, self._matrix, out=self._product)


def _repeats(guess_ns: int) -> int:
    if guess_ns > TOO_LONG_NS:
        return 0
    if guess_ns > 2 * SHARE_NS:
        return 1
    return min(MAX_REPEATS, max(2, SHARE_NS // max(guess_ns, 1)))
