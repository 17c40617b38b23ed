"""Measures the network between the ranks, when asked to: all-reduces of several sizes, alone, two
at once, and beside compute; between two ranks, which can do without them, also messages both ways,
one and many at once.

Through a process group of its own, made from gloo itself, so that torch.distributed's list of
groups, by which the program's own are named, stays as it is. All ranks are at the same step.
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
"""Smaller ones are over before anything beside them can be measured."""
SHARE_NS = 150_000_000
"""Of the time for each size and situation: some three seconds in all on a fast network."""
MOST_REPEATS = 40
"""Where cores are short, a small one takes now a tenth of a millisecond, now three."""
TOO_LONG_NS = 800_000_000
COMPUTE_NS = 20_000_000
STREAM = 8
"""So many messages at once tell what one costs that others precede."""
SITUATIONS = (
    *(("all_reduce", size_bytes, 1, False) for size_bytes in SIZES_BYTES),
    *(
        ("all_reduce", size_bytes, concurrent, beside)
        for size_bytes in SIZES_BYTES
        if size_bytes >= CROWDED_FROM_BYTES
        for concurrent, beside in ((2, False), (1, True))
    ),
)
"""Collective, bytes, how many at once, whether beside compute."""
BETWEEN_TWO = (
    *(("send", size_bytes, 1, False) for size_bytes in (4 * KIB, 64 * KIB, MIB, 4 * MIB)),
    *(("send", size_bytes, STREAM, False) for size_bytes in (64 * KIB, 256 * KIB, MIB)),
    ("send", 4 * MIB, 1, True),
)
BESIDE_SHARE = 0.8
"""Of what messages take alone: for so long there is compute beside them. Nobody is told when they
are there before somebody waits."""

_attempts = count()


def calibrate() -> list[CalibrationRecord]:
    """Empty where there is nothing to measure, or not all ranks came."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return []
    if distributed.get_world_size() < 2 or "gloo" not in distributed.get_backend():
        return []
    rank, size = distributed.get_rank(), distributed.get_world_size()
    store = distributed.PrefixStore(
        f"augury/calibrate/{next(_attempts)}", distributed.distributed_c10d._get_default_store()
    )
    if not _all_came(store, rank, size):
        return []
    group = distributed.ProcessGroupGloo(store, rank, size, TIMEOUT)
    return _Calibration(group, SITUATIONS if size > 2 else (*SITUATIONS, *BETWEEN_TWO)).run()


def _all_came(store: Any, rank: int, size: int) -> bool:
    """A rank whose recorder failed would leave the others waiting: rank 0 looks, and says."""
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
    beside: bool
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
        if self.beside:
            alone = self.products_alone / self.alone_ns
            rate = self.products / self.computed_ns / alone
        return CalibrationRecord(
            collective=self.collective,
            group="0",
            size_bytes=self.size_bytes,
            concurrent=self.concurrent,
            beside_compute=self.beside,
            durations_ns=self.durations_ns,
            compute_rate=rate,
        )


class _Calibration:
    """``repeats`` are rank 0's choice: ranks that counted by themselves could part."""

    def __init__(self, group: Any, situations: Sequence[tuple[str, int, int, bool]]) -> None:
        import torch

        self._group = group
        self._situations = situations
        # Zeros stay zeros however often they are summed.
        self._data = [torch.zeros(max(SIZES_BYTES), dtype=torch.uint8) for _ in range(2)]
        self._alone_ns: dict[int, int] = {}
        """Of messages, by their size."""
        self._matrix, self._product = torch.ones(96, 96), torch.empty(96, 96)

    def run(self) -> list[CalibrationRecord]:
        for _ in range(2):  # connections are made, and what a rate limit lets through at once is
            first_ns = self._one("all_reduce", MIB, concurrent=1)
        guesses = [
            first_ns * concurrent * size_bytes // MIB
            for _, size_bytes, concurrent, _ in self._situations
        ]
        counts = self._agree([_repeats(guess) for guess in guesses])
        found = [_Samples(*situation) for situation in self._situations]
        for samples, repeats in zip(found, counts, strict=True):
            self._measure(samples, repeats)
            if samples.durations_ns and samples.collective == "send" and not samples.beside:
                self._alone_ns[samples.size_bytes] = min(samples.durations_ns)
        self._group.barrier().wait()
        return [samples.record() for samples in found if samples.durations_ns]

    def _measure(self, samples: _Samples, repeats: int) -> None:
        """Without a pause between them, as in a step: after one, what a rate limit has saved up and
        a scheduler owes to who slept makes the next one faster than any that follows another."""
        if samples.beside and repeats:
            samples.add_alone(self._compute_alone())
        self._group.barrier().wait()
        for _ in range(repeats):
            if samples.beside:
                duration_ns = self._beside_compute(samples)
            else:
                duration_ns = self._one(
                    samples.collective, samples.size_bytes, concurrent=samples.concurrent
                )
            samples.durations_ns.append(duration_ns)
        if samples.beside and repeats:
            samples.add_alone(self._compute_alone())

    def _agree(self, repeats: list[int]) -> list[int]:
        import torch

        told = torch.tensor(repeats, dtype=torch.int64)
        self._group.broadcast(told, 0).wait()
        return [int(number) for number in told.tolist()]

    def _begin(self, collective: str, size_bytes: int, *, concurrent: int) -> tuple[int, list[Any]]:
        group, (sent, taken) = self._group, self._data
        if collective == "all_reduce":
            group.barrier().wait()
        # Messages both ways end at the same moment on both: that is where the next ones begin.
        start_ns = time.perf_counter_ns()
        if collective == "all_reduce":
            return start_ns, [
                group.allreduce(data[:size_bytes]) for data in (sent, taken)[:concurrent]
            ]
        other = 1 - group.rank()
        # All of them zeros too, so that they may come to the same place.
        works = [group.recv([taken[:size_bytes]], other, tag) for tag in range(concurrent)]
        works += [group.send([sent[:size_bytes]], other, tag) for tag in range(concurrent)]
        return start_ns, works

    def _one(self, collective: str, size_bytes: int, *, concurrent: int) -> int:
        start_ns, works = self._begin(collective, size_bytes, concurrent=concurrent)
        for work in works:
            work.wait()
        return time.perf_counter_ns() - start_ns

    def _beside_compute(self, samples: _Samples) -> int:
        is_sent = samples.collective == "send"
        least_ns = round(BESIDE_SHARE * self._alone_ns.get(samples.size_bytes, COMPUTE_NS))
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
        """Products and nanoseconds, while all ranks compute."""
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
    return min(MOST_REPEATS, max(2, SHARE_NS // max(guess_ns, 1)))
