"""Damaged variants of a set of Kineto traces: lost collectives and ranks, cuts, other clocks.

Variants are made of the JSON itself, so that all readers see the damage. A variant is a list of
changes with a seed; the same seed makes the same files.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Files = dict[int, dict[str, Any]]
"""Content of each rank's file."""
Change = Callable[[Files, random.Random], None]

_KERNELS = ("nccl", "rccl")
_HOST_PARTS = ("nccl:", "record_param_comms", "c10d::")
_RANK = re.compile(r"rank[-_ ]?0*(\d+)")


@dataclass(frozen=True)
class Variant:
    """Changes of one set of traces, applied in order."""

    source: str
    seed: int
    name: str
    changes: tuple[Change, ...]

    @property
    def label(self) -> str:
        return f"{self.source}, {self.name}, seed {self.seed}"

    def write(self, traces: Path, out: Path) -> Path:
        files = {rank: json.loads(text) for rank, text in read_set(traces / self.source).items()}
        chance = random.Random(f"{self.source} {self.name} {self.seed}")
        for change in self.changes:
            change(files, chance)
        return write_set(files, out)


@cache
def read_set(folder: Path) -> dict[int, bytes]:
    """Unpacked content of each rank's file."""
    found = {}
    for path in sorted(folder.glob("*.json.gz")):
        named = _RANK.search(path.name)
        assert named is not None
        with gzip.open(path) as file:
            found[int(named[1])] = file.read()
    return found


def write_set(files: Files, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    for rank, content in files.items():
        (out / f"rank{rank}.json").write_text(json.dumps(content))
    return out


def is_collective_kernel(event: Event) -> bool:
    return event.get("cat", "").lower() == "kernel" and event["name"].lower().startswith(_KERNELS)


def drop_collectives(share: float, *, with_host: bool = False) -> Change:
    """Drops this share of the collectives' kernels, at least one, on random ranks. ``with_host``
    drops the launch and torch's ranges around it as well."""

    def change(files: Files, chance: random.Random) -> None:
        places = [
            (rank, i)
            for rank, content in files.items()
            for i, event in enumerate(content["traceEvents"])
            if is_collective_kernel(event)
        ]
        chosen = chance.sample(places, max(1, round(share * len(places))))
        for rank, content in files.items():
            events = content["traceEvents"]
            gone = {i for at, i in chosen if at == rank}
            if with_host:
                gone |= _host_parts(events, [events[i] for i in gone])
            content["traceEvents"] = [e for i, e in enumerate(events) if i not in gone]

    return change


def _host_parts(events: list[Event], kernels: Iterable[Event]) -> set[int]:
    """Launches of the kernels, and the ranges of torch around them."""
    wanted = {kernel["args"].get("correlation") for kernel in kernels}
    launches = {
        i: event
        for i, event in enumerate(events)
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and event.get("args", {}).get("correlation") in wanted
    }
    around = {
        i
        for i, event in enumerate(events)
        if event.get("ph") == "X"
        and event["name"].startswith(_HOST_PARTS)
        and any(
            event["tid"] == launch["tid"]
            and event["ts"] <= launch["ts"] <= event["ts"] + event["dur"]
            for launch in launches.values()
        )
    }
    return {*launches} | around


def drop_ranks(count: int) -> Change:
    def change(files: Files, chance: random.Random) -> None:
        for rank in chance.sample(sorted(files), min(count, len(files) - 1)):
            del files[rank]

    return change


def _span_us(events: list[Event]) -> tuple[float, float]:
    timed = [e for e in events if e.get("ph") == "X"]
    return min(e["ts"] for e in timed), max(e["ts"] + e.get("dur", 0) for e in timed)


def cut_head(share: float, *, ranks: int = 1) -> Change:
    """Recordings of some ranks begin late: events that began before are lost."""

    def change(files: Files, chance: random.Random) -> None:
        for rank in chance.sample(sorted(files), min(ranks, len(files))):
            events = files[rank]["traceEvents"]
            first, last = _span_us(events)
            begin = first + share * (last - first)
            files[rank]["traceEvents"] = [
                e for e in events if e.get("ph") == "M" or e.get("ts", 0) >= begin
            ]

    return change


def cut_tail(share: float, *, ranks: int = 1, keeps_open: bool = False) -> Change:
    """Recordings of some ranks end early: events that end later are lost. ``keeps_open`` keeps the
    events that had begun, such as the annotation of the step that was cut."""

    def change(files: Files, chance: random.Random) -> None:
        for rank in chance.sample(sorted(files), min(ranks, len(files))):
            events = files[rank]["traceEvents"]
            first, last = _span_us(events)
            end = last - share * (last - first)
            files[rank]["traceEvents"] = [
                e
                for e in events
                if e.get("ph") == "M"
                or e.get("ts", 0) + (0 if keeps_open else e.get("dur", 0)) <= end
            ]

    return change


def move_clocks(offset_us: float, drift_ppm: float = 0.0) -> Change:
    """All ranks but the first get a clock of their own, as on different hosts."""

    def change(files: Files, chance: random.Random) -> None:
        for rank in sorted(files)[1:]:
            events = files[rank]["traceEvents"]
            first, _ = _span_us(events)
            offset = chance.uniform(-offset_us, offset_us)
            rate = 1 + chance.uniform(-drift_ppm, drift_ppm) / 1e6
            for event in events:
                if "ts" in event:
                    event["ts"] = first + offset + (event["ts"] - first) * rate
                    if "dur" in event:
                        event["dur"] *= rate

    return change


def keep_steps(count: int, *, ranks: int = 1, last: bool = False) -> Change:
    """Some ranks recorded fewer steps than the others: the first or the last ``count``."""

    def change(files: Files, chance: random.Random) -> None:
        for rank in chance.sample(sorted(files), min(ranks, len(files))):
            events = files[rank]["traceEvents"]
            steps = sorted(
                (e["ts"], e["ts"] + e["dur"])
                for e in events
                if e.get("ph") == "X"
                and e.get("cat") == "user_annotation"
                and e["name"].startswith("ProfilerStep#")
            )
            kept = steps[-count:] if last else steps[:count]
            begin, end = kept[0][0], kept[-1][1]
            files[rank]["traceEvents"] = [
                e
                for e in events
                if e.get("ph") == "M" or (begin <= e.get("ts", 0) and _end_us(e) <= end)
            ]

    return change


def _end_us(event: Event) -> float:
    return float(event.get("ts", 0) + event.get("dur", 0))


def rename_groups(*, also_streams: bool = True) -> Change:
    """Every rank has names of its own for its process groups and numbers for its streams."""

    def change(files: Files, chance: random.Random) -> None:
        for content in files.values():
            salt = chance.randrange(1_000)
            for group in content.get("distributedInfo", {}).get("pg_config", []):
                group["pg_name"] = f"{group['pg_name']}-{salt}"
            for event in content["traceEvents"]:
                args = event.get("args", {})
                if "Process Group Name" in args:
                    args["Process Group Name"] = f"{args['Process Group Name']}-{salt}"
                if also_streams and is_collective_kernel(event):
                    event["tid"] = args["stream"] = 1_000 + salt + int(event["tid"])

    return change


def shift_step_numbers() -> Change:
    """Profilers were created at different steps: each rank counts from another number."""

    def change(files: Files, chance: random.Random) -> None:
        for rank in sorted(files):
            by = chance.randrange(4)
            for event in files[rank]["traceEvents"]:
                name = event.get("name", "")
                if name.startswith("ProfilerStep#"):
                    event["name"] = f"ProfilerStep#{int(name.partition('#')[2]) + by}"

    return change


_SETS_OF_SEVERAL = ("dlrm8_v100", "torchrec_dlrm4_a", "torchrec_dlrm4_b", "torchrec_resnet18_2")


def variants() -> list[Variant]:
    """50 variants over all sets of Kineto traces that are small enough."""
    damage: list[tuple[str, tuple[Change, ...]]] = [
        ("5 % of collectives lost", (drop_collectives(0.05),)),
        ("20 % of collectives lost", (drop_collectives(0.2),)),
        ("10 % lost with their launches", (drop_collectives(0.1, with_host=True),)),
        ("one rank lost", (drop_ranks(1),)),
        ("clocks apart", (move_clocks(400_000, 80),)),
        ("groups and streams renamed", (rename_groups(),)),
        ("head of a rank cut", (cut_head(0.15),)),
        ("tail of a rank cut", (cut_tail(0.15),)),
        (
            "lost collectives, clocks apart, renamed",
            (drop_collectives(0.1), move_clocks(50_000, 20), rename_groups()),
        ),
    ]
    steps: list[tuple[str, tuple[Change, ...]]] = [
        ("fewer steps on a rank", (keep_steps(2),)),
        ("last steps on a rank, other numbers", (keep_steps(2, last=True), shift_step_numbers())),
        ("tail cut within open events", (cut_tail(0.2, keeps_open=True),)),
        (
            "head and tail of two ranks cut, collectives lost",
            (cut_head(0.1), cut_tail(0.1), drop_collectives(0.05)),
        ),
    ]
    single: list[tuple[str, tuple[Change, ...]]] = [
        ("20 % of collectives lost", (drop_collectives(0.2),)),
    ]
    found = [
        Variant(source, seed, name, changes)
        for seed, source in enumerate(_SETS_OF_SEVERAL)
        for name, changes in [*damage, *(steps if source != "dlrm8_v100" else [])]
    ]
    found += [
        Variant(source, 9, name, changes)
        for source in ("nccl_args_a100", "rccl_args_mi300")
        for name, changes in single
    ]
    return found
