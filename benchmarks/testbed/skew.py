"""Sets one rank's clock wrong in all its time stamps of a recorded run.

``python -m benchmarks.testbed.skew RUN OUT --rank 1 --offset-ms 50 --ppm 100``
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from augury.ingest.wire.wire_file_rows import CONNECTION, EVENT, HEADER, STATE_OF_TCP


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """A clock that is ``offset_ns`` ahead at ``since_ns`` and gains ``ppm`` from there."""

    since_ns: int
    offset_ns: int
    ppm: float

    def shift(self, true_ns: int) -> int:
        return true_ns + self.shift_by(true_ns - self.since_ns)

    def shift_by(self, after_ns: float) -> int:
        return self.offset_ns + round(after_ns * self.ppm * 1e-6)

    def shift_all(self, true_ns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Shifts all stamps except zeros, which mean no time."""
        ns = true_ns.astype(np.int64)
        gained = np.rint((ns - self.since_ns) * (self.ppm * 1e-6)).astype(np.int64)
        return np.where(ns == 0, 0, ns + self.offset_ns + gained).astype(np.uint64)


def skew_run(
    run: Path, out: Path, *, rank: int, offset_ns: int, ppm: float, handshake: bool = True
) -> Skew:
    """Writes a copy of the recorded ranks, optionally without the handshakes."""
    out.mkdir(parents=True)
    for path in (*run.glob("rank-*"), *run.glob("process.wire-*")):
        shutil.copyfile(path, out / path.name)
    own = out / f"rank-{rank:05d}.json"
    since_ns = json.loads(own.read_text())["step_end_ns"][0]
    skew = Skew(since_ns=since_ns, offset_ns=offset_ns, ppm=ppm)
    for path in out.glob("rank-?????.json"):
        record = json.loads(path.read_text())
        if record["rank"] == rank:
            _skew_own(record, skew)
        else:
            _skew_as_peer(record, rank, skew)
        if not handshake:
            record["handshake"] = []
        path.write_text(json.dumps(record))
    for path in out.glob(f"rank-{rank:05d}.*trace.json.gz"):
        _skew_trace(path, skew)
    for path in out.glob("*.wire-*"):
        _skew_wire(path, rank, skew)
    return skew


def _skew_own(record: dict[str, Any], skew: Skew) -> None:
    record["step_end_ns"] = [skew.shift(ns) for ns in record["step_end_ns"]]
    record["resumed"] = [[step, skew.shift(ns)] for step, ns in record.get("resumed", ())]
    record["calls"] = [
        [skew.shift(start), skew.shift(end), *rest] for start, end, *rest in record.get("calls", ())
    ]
    for meeting in record.get("handshake", ()):
        meeting["exchanges"] = [
            [skew.shift(asked), heard, answered, skew.shift(back)]
            for asked, heard, answered, back in meeting["exchanges"]
        ]


def _skew_as_peer(record: dict[str, Any], rank: int, skew: Skew) -> None:
    for meeting in record.get("handshake", ()):
        if meeting["peer"] == rank:
            meeting["exchanges"] = [
                [asked, skew.shift(heard), skew.shift(answered), back]
                for asked, heard, answered, back in meeting["exchanges"]
            ]


def _skew_trace(path: Path, skew: Skew) -> None:
    """Shifts Kineto's stamps: microseconds after a base in nanoseconds."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    since_us = (skew.since_ns - trace.get("baseTimeNanoseconds", 0)) / 1000
    for event in trace["traceEvents"]:
        if "ts" in event:
            shift_ns = skew.shift_by(1000 * (event["ts"] - since_us))
            event["ts"] = round(event["ts"] + shift_ns / 1000, 3)
        if "dur" in event:
            event["dur"] = round(event["dur"] * (1 + skew.ppm * 1e-6), 3)
    with gzip.open(path, "wt", compresslevel=3) as file:
        json.dump(trace, file)


def _skew_wire(path: Path, rank: int, skew: Skew) -> None:
    """Shifts the stamps of that rank's socket calls, and those of a process without a rank on its
    host if no other rank is on that host."""
    is_packed = path.name.endswith(".gz")
    content = path.read_bytes()
    data = bytearray(gzip.decompress(content) if is_packed else content)
    (header,) = np.frombuffer(data, HEADER, 1)
    if int(header["rank"]) != rank and not _is_on_its_host(path.parent, header, rank):
        return
    np.frombuffer(data, HEADER, 1)["realtime_ns"][:] = skew.shift_all(header["realtime_ns"])
    at = int(header["header"])
    connections = np.frombuffer(data, CONNECTION, int(header["num_connections"]), at)
    for name in ("opened_ns", "closed_ns", "refused_ns", "info_ns"):
        connections[name] = skew.shift_all(connections[name])
    at += int(header["max_connections"]) * CONNECTION.itemsize
    num_events = min(int(header["num_events"]), int(header["max_events"]))
    events = np.frombuffer(data, EVENT, num_events, at)
    for name in ("start_ns", "end_ns"):
        events[name] = skew.shift_all(events[name])
    is_call = events["kind"] != STATE_OF_TCP
    events["refused_ns"][is_call] = skew.shift_all(events["refused_ns"][is_call])
    path.write_bytes(gzip.compress(data, 1) if is_packed else data)


def _is_on_its_host(folder: Path, header: Any, rank: int) -> bool:
    of_host: dict[str, list[int]] = {}
    for path in folder.glob("rank-?????.json"):
        record = json.loads(path.read_text())
        of_host.setdefault(record.get("host", ""), []).append(record["rank"])
    host = bytes(header["host"]).decode("utf-8", "replace")
    return int(header["rank"]) < 0 and of_host.get(host) == [rank]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--offset-ms", type=float, default=0.0)
    parser.add_argument("--ppm", type=float, default=0.0)
    parser.add_argument("--no-handshake", action="store_true")
    options = parser.parse_args()
    skew_run(
        options.run,
        options.out,
        rank=options.rank,
        offset_ns=round(options.offset_ms * 1e6),
        ppm=options.ppm,
        handshake=not options.no_handshake,
    )


if __name__ == "__main__":
    main()
