"""Measured step times of a job, from the ranks' own records and times."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

WARM_UP = 5
CHUNK = 9
"""Number of neighbouring plain steps that go into the same of two interleaved halves: the steps of
a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A median over steps, and the difference between its two interleaved halves."""

    step_ns: int
    noise_pct: float
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    plain: Measured
    recorded_ns: int | None
    """Median step within windows of the light kind."""

    @property
    def cost_pct(self) -> float | None:
        if self.recorded_ns is None:
            return None
        return 100 * (self.recorded_ns - self.plain.step_ns) / self.plain.step_ns


def of_halves(halves: tuple[list[int], list[int]]) -> Measured:
    whole = median([*halves[0], *halves[1]])
    noise = 0.0
    if halves[0] and halves[1]:
        noise = 100 * abs(median(halves[0]) - median(halves[1])) / whole
    return Measured(step_ns=round(whole), noise_pct=noise, num_steps=sum(map(len, halves)))


def of_record(run: Path) -> RecordedRun:
    """Reads rank 0: steps outside of every window that the recorder did not delay."""
    record = json.loads((run / "rank-00000.json").read_text())
    plain, recorded = plain_and_recorded(record)
    return RecordedRun(
        plain=of_halves(interleaved(list(plain.values()))),
        recorded_ns=round(median(recorded)) if recorded else None,
    )


def plain_and_recorded(record: dict[str, Any]) -> tuple[dict[int, int], list[int]]:
    """Returns the durations of a rank's plain steps by number, and those of the steps in light
    windows, without steps that the recorder delayed."""
    ends = record["step_end_ns"]
    windows = record["windows"]
    held = {step for step, _ in record["resumed"]}
    held |= {window[edge] for window in windows for edge in ("first", "last")}
    plain: dict[int, int] = {}
    recorded: list[int] = []
    for step in range(WARM_UP + 1, len(ends) + 1):
        if step - 1 in held:
            continue
        dur_ns = ends[step - 1] - ends[step - 2]
        around = [window for window in windows if window["first"] < step <= window["last"]]
        if not around:
            plain[step] = dur_ns
        elif around[0]["mode"] == "light":
            recorded.append(dur_ns)
    return plain, recorded


def interleaved(durations: list[int]) -> tuple[list[int], list[int]]:
    halves: tuple[list[int], list[int]] = ([], [])
    for index, dur_ns in enumerate(durations):
        halves[index // CHUNK % 2].append(dur_ns)
    return halves


def of_blocks(folder: Path) -> dict[str, Measured]:
    """Reads changed configurations by the change's name. A step is the mean over the ranks: where
    ranks need not alternate, the rank that is ahead changes often."""
    ranks = [json.loads(path.read_text())["blocks"] for path in sorted(folder.glob("times-*.json"))]
    found: dict[str, list[list[int]]] = {}
    for same in zip(*ranks, strict=True):
        label = same[0]["block"].partition("@")[2]
        if label:
            own = [_durations_ns(block) for block in same]
            steps = [round(sum(one) / len(one)) for one in zip(*own, strict=True)]
            found.setdefault(label, []).append(steps)
    return {label: of_halves(alternating(rounds)) for label, rounds in found.items()}


def leftover_hooks(folder: Path) -> int:
    """Number of hooks that were left in blocks without a plan, over all ranks."""
    ranks = [json.loads(path.read_text())["blocks"] for path in sorted(folder.glob("times-*.json"))]
    return sum(
        block.get("num_hooks", 0)
        for blocks in ranks
        for block in blocks
        if not block["block"].startswith(("plan=", "trial="))
    )


def _durations_ns(block: dict[str, Any]) -> list[int]:
    stamps = block["stamps_ns"][block["warm_up"] :]
    return [end - start for start, end in pairwise(stamps)]


def slowing(folder: Path, label: str, host: int) -> float:
    """Returns the measured slowdown of a host's forward, which has no communication. A quota slows
    bursty compute by another factor than its nominal one."""
    times: dict[str, Any] = json.loads((folder / f"times-{host:05d}.json").read_text())
    changed: list[int] = []
    usual: list[int] = []
    for block in times["blocks"][1:]:
        own = block["block"].partition("@")[2]
        where = changed if own == label else usual if not own else []
        where.extend(block["forward_ns"][block["warm_up"] :])
    return median(changed) / median(usual)


def alternating(rounds: list[list[int]]) -> tuple[list[int], list[int]]:
    even = [dur_ns for durations in rounds[::2] for dur_ns in durations]
    odd = [dur_ns for durations in rounds[1::2] for dur_ns in durations]
    return even, odd
