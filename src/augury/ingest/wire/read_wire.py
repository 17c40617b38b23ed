"""Reads the network traffic of a run: processes, connections and messages, on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from augury.core.columns import I4, I8
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger, Severity
from augury.core.string_table import StringPool
from augury.core.trace.trace import Clock, Trace
from augury.core.wire import Messages, Wire, WireProcess, attributed_share
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.wire.attribution.attribute_by_size import attribute_by_size
from augury.ingest.wire.attribution.attribute_by_trace import attribute_by_trace
from augury.ingest.wire.attribution.gloo_messages import message_types
from augury.ingest.wire.attribution.infer_ranks import infer_ranks
from augury.ingest.wire.clocks.byte_flows import clocks_of_files
from augury.ingest.wire.connections import connections_of
from augury.ingest.wire.messages import ByteStreams, messages_of
from augury.ingest.wire.pair_endpoints import pair_ends
from augury.ingest.wire.wire_file import WireFile, read_wire_files

__all__ = ["attributed_share", "has_wire", "read_wire"]


def has_wire(folder: Path) -> bool:
    return any(folder.glob("*.wire-*"))


def read_wire(folder: Path, trace: Trace | None = None) -> Wire:
    """Reads the recorded socket calls of a run and reconstructs its messages.

    With ``trace``, messages are attributed to the collectives of the trace, and times are on its
    clock. Without it, the messages themselves align the clocks, and the lengths of messages reveal
    the all-reduces."""
    ledger = Ledger()
    files = read_wire_files(folder, ledger)
    if not files:
        details = "".join(f": {anomaly.example}" for anomaly in ledger)
        raise InputError(
            f"{folder} contains no record of socket calls{details}",
            remedy="record it with `augury run --wire --out DIR -- COMMAND`",
        )
    pairs = pair_ends(files, ledger)
    clocks = (
        clocks_of_files(files, pairs, ledger) if trace is None else _clocks_of_trace(files, trace)
    )
    strings = StringPool()
    connections = connections_of(
        files, pairs, strings, lambda file, ns: _to_common(clocks, file, ns), ledger
    )
    streams = ByteStreams(files, [_times(file, clocks.get(i)) for i, file in enumerate(files)])
    messages = messages_of(files, pairs, streams, ledger)
    types = message_types(messages)
    ranks = infer_ranks([file.rank for file in files], messages, types, ledger)
    end_ranks = _ranks_of(ranks, messages["src"]), _ranks_of(ranks, messages["dst"])
    if trace is not None:
        attribution = attribute_by_trace(messages, types, end_ranks, trace, ledger)
    else:
        attribution = attribute_by_size(messages, types, end_ranks, max(ranks) + 1)
    _note_losses(files, ledger)
    columns = messages | {
        "kind": attribution.kind,
        "payload_bytes": types.payload_bytes,
        "group": attribution.group,
        "sequence": attribution.sequence,
        "turn": attribution.turn,
    }
    return Wire(
        processes=[
            _process(file, rank, clocks.get(number, Clock()))
            for number, (file, rank) in enumerate(zip(files, ranks, strict=True))
        ],
        connections=connections,
        messages=Messages(**{name: columns[name] for name, _ in Messages.schema()}),
        strings=strings.table(),
        collectives=attribution.collectives,
        ledger=ledger,
    )


def _clocks_of_trace(files: Sequence[WireFile], trace: Trace) -> dict[int, Clock]:
    """Returns the clock of each file, by the file's number. A process without a rank gets the clock
    of the first rank on its host."""
    clock_of_rank = {facts.rank: facts.clock for facts in trace.ranks}
    clock_of_host: dict[str, Clock] = {}
    for facts in trace.ranks:
        clock_of_host.setdefault(facts.host, facts.clock)
    return {
        number: clock_of_rank.get(file.rank, clock_of_host.get(file.host, Clock()))
        for number, file in enumerate(files)
    }


def _to_common(clocks: Mapping[int, Clock], file: int, ns: int) -> int:
    return int(to_common(clocks.get(file, Clock()), np.array([ns], dtype=np.int64))[0])


def _times(file: WireFile, clock: Clock | None) -> tuple[I8, I8, I8]:
    """Returns the times at which the calls of a file started, ended and were refused, on the common
    clock."""
    calls = file.calls
    if clock is None or clock == Clock(source=clock.source):  # neither offset nor drift
        return calls.start_ns, calls.end_ns, calls.refused_ns
    refused = np.where(calls.refused_ns > 0, to_common(clock, calls.refused_ns), 0)
    return to_common(clock, calls.start_ns), to_common(clock, calls.end_ns), refused


def _ranks_of(ranks: Sequence[int], processes: I4) -> I4:
    """Returns the rank of each process. A process that is NONE, -1, indexes the appended element:
    its rank is NONE."""
    found: I4 = np.array([*ranks, NONE], dtype=np.int32)[processes]
    return found


def _process(file: WireFile, rank: int, clock: Clock) -> WireProcess:
    return WireProcess(
        pid=file.pid,
        host=file.host,
        rank=rank,
        clock=clock,
        num_calls=len(file.calls),
        calls_written_over=file.calls_written_over,
        calls_not_kept=file.calls_not_kept,
        bytes_not_kept=file.bytes_not_kept,
        connections_lost=file.connections_lost,
    )


def _note_losses(files: Sequence[WireFile], ledger: Ledger) -> None:
    ledger.note(
        "wire-written-over",
        "the buffer of a process was full; its oldest calls were overwritten",
        count=sum(file.calls_written_over for file in files),
        remedy="record shorter windows, or enlarge the buffer with --wire-events",
    )
    ledger.note(
        "wire-not-kept",
        "calls outside of windows were counted but not kept",
        severity=Severity.INFO,
        count=sum(file.calls_not_kept for file in files),
    )
    ledger.note(
        "wire-connections-lost",
        "a process had more connections than its table holds; the others were not recorded",
        count=sum(file.connections_lost for file in files),
    )
    known = [file.rank for file in files if file.rank >= 0]
    missing = sorted(set(range(max(known, default=-1) + 1)) - set(known))
    ledger.note(
        "wire-rank-missing",
        "a rank left no record of its socket calls",
        count=len(missing),
        example=f"rank {missing[0]}" if missing else "",
    )
    num_repeated = len(known) - len(set(known))
    ledger.note(
        "wire-rank-twice",
        "several processes state the same rank, as after a restart",
        severity=Severity.INFO,
        count=num_repeated,
    )
