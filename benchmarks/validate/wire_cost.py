"""Overhead of the wire recorder: the same job with and without it, in alternation.

Both jobs are alive at the same time on the same hosts; one is paused at a gate while the other runs
a block of steps, so a slow minute of the machine affects both. Equal processes differ by the
placement of their memory, so there are several such pairs. The recorder is preloaded without
recording windows: it records every call of every step.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from augury.capture.settings import Settings
from augury.capture.wire.preload import wire_environment
from augury.core.errors import UsageError
from benchmarks.testbed.bed import Host
from benchmarks.validate.checks import Check
from benchmarks.validate.job import PORT, JobError, bed_as_recorded, bed_of
from benchmarks.validate.settings import Setting
from benchmarks.validate.turns import TurnTaker

SUITE = "wire"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    name: str
    setting: Setting
    steps: int
    """Steps of a block."""
    at_most_pct: float
    num_events: int
    """Number of events in the recorder's buffer."""
    pairs: int = 3
    rounds: int = 8
    """Rounds of every pair; even, because the order alternates."""


COSTS = (
    Cost(
        name="cost-1gbit",
        setting=Setting(name="cost-1gbit", model="transformer", mbit=1000, cap="5"),
        steps=12,
        at_most_pct=1.0,
        num_events=1 << 20,
    ),
    # So few that the buffer wraps around.
    Cost(
        name="cost-loopback",
        setting=Setting(name="cost-loopback", model="transformer", mbit=None, cap="5"),
        steps=24,
        at_most_pct=3.0,
        num_events=1 << 12,
    ),
)


def cost_of_wire(cost: Cost, folder: Path) -> Iterator[Check]:
    folder = folder.resolve()  # a host's processes start in another folder
    shutil.rmtree(folder, ignore_errors=True)
    try:
        pairs = [_measure(cost, folder / f"pair-{number}") for number in range(cost.pairs)]
    except (JobError, OSError, UsageError) as error:
        yield Check(
            suite=SUITE,
            case=cost.name,
            kind="cost",
            value=None,
            unit="%",
            at_most=cost.at_most_pct,
            trouble=str(error),
        )
        return
    ratios = [ratio for pair in pairs for ratio in pair.ratios]
    yield Check(
        suite=SUITE,
        case=cost.name,
        kind="cost",
        value=round(100 * (median(ratios) - 1), 2),
        unit="%",
        at_most=cost.at_most_pct,
        noise=round(noise_pct(ratios), 2),
    )
    yield Check(
        suite=SUITE,
        case=f"{cost.name}/losses-that-differ",
        kind="loss",
        value=len({loss for pair in pairs for loss in pair.losses}) - 1,
        unit="",
        at_most=0,
    )
    yield Check(
        suite=SUITE,
        case=f"{cost.name}/buffer-beyond-what-was-asked",
        kind="memory",
        value=max(beyond for pair in pairs for beyond in pair.beyond_bytes),
        unit="B",
        at_most=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    ratios: list[float]
    """For each round, the median step with the recorder divided by that without."""
    losses: list[str]
    beyond_bytes: list[int]


def noise_pct(ratios: list[float]) -> float:
    """Twice the difference between the medians of two interleaved halves."""
    return 200 * abs(median(ratios[::2]) - median(ratios[1::2]))


def _measure(cost: Cost, folder: Path) -> Pair:
    with bed_of(cost.setting) as bed:
        bed_as_recorded(bed, cost.setting)
        hosts = bed.hosts[: cost.setting.num_ranks]
        preloads = [_preloading(host, cost.num_events) for host in hosts]
        without, recorded = (
            TurnTaker(
                cost.setting,
                bed,
                folder / name,
                port,
                rounds=cost.rounds,
                steps=cost.steps,
                before=before,
            )
            for name, port, before in (("without", PORT, ()), ("with", PORT + 1, preloads))
        )
        both = (without, recorded)
        try:
            for job in both:
                job.start()
                job.wait_for(0)
            for block in range(cost.rounds):
                for job in both if block % 2 else both[::-1]:
                    job.go(block)
                    job.wait_for(block + 1)
        finally:
            for job in both:
                job.end()
        beyond = _beyond_bytes(hosts, cost.num_events)
    ratios = [
        with_ns / without_ns
        for with_ns, without_ns in zip(recorded.block_ns(), without.block_ns(), strict=True)
    ]
    return Pair(ratios=ratios, losses=[job.loss() for job in both], beyond_bytes=beyond)


def _preloading(host: Host, num_events: int) -> list[str]:
    """Returns the command prefix that records a process on this host."""
    settings = Settings(out=str(host.scratch / "wire"), wire=True, wire_events=num_events)
    added = [f"{name}={value}" for name, value in wire_environment(settings).items()]
    (host.seen_from_outside / "wire").mkdir()
    return ["env", *added]


def _beyond_bytes(hosts: Sequence[Host], num_events: int) -> list[int]:
    """Returns how much larger each rank's buffer is than requested."""
    found = []
    for host in hosts:
        for path in (host.seen_from_outside / "wire").glob("rank-*.bin"):
            with path.open("rb") as file:
                header, connection, event, rows = struct.unpack_from("<3IQ", file.read(40), 12)
            found.append(path.stat().st_size - header - connection * rows - event * num_events)
    if not found:
        raise JobError("the wire was not recorded")
    return found
