"""Checks of a recorded wire: every byte is accounted for, and clocks agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind
from augury.core.errors import AuguryError
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.wire import MessageKind, Wire
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.open_run import open_run
from augury.ingest.recorded import clock_sources
from augury.ingest.wire.read_wire import attributed_share, read_wire
from benchmarks.validate.checks import Check

SUITE = "wire"
UNATTRIBUTED_PCT = 0.1


def bytes_of_job(run: Path, case: str) -> Iterator[Check]:
    """Checks a job with a Trace, which has the size of each all-reduce."""
    try:
        trace = open_run(run)
        wire = read_wire(run, trace)
    except AuguryError as error:
        yield bytes_check(f"{case}/not-received", None, trouble=str(error))
        return
    yield from bytes_of_wire(wire, case)
    sums = off_by(trace, wire)
    yield Check(
        suite=SUITE,
        case=f"{case}/all-reduces-off",
        kind="bytes",
        value=sum(off != 0 for off in sums) if sums else None,
        unit="",
        at_most=0,
        trouble=None if sums else "no all-reduce was recorded",
    )


def bytes_of_wire(wire: Wire, case: str, *, control: bool = True) -> Iterator[Check]:
    """Checks a wire. ``control``: connections without payload count too."""
    lost = not_received(wire, control=control)
    yield bytes_check(
        f"{case}/not-received",
        None if lost is None else int(np.abs(lost).sum()),
        trouble="no connection was recorded at both ends" if lost is None else None,
    )
    is_known = bool((wire.messages.kind == MessageKind.COLLECTIVE).any())
    yield Check(
        suite=SUITE,
        case=f"{case}/unattributed",
        kind="bytes",
        value=round(100 * (1 - attributed_share(wire)), 4) if is_known else None,
        unit="%",
        at_most=UNATTRIBUTED_PCT,
        trouble=None if is_known else "no collective was found",
    )


def bytes_check(case: str, value: int | None, trouble: str | None = None) -> Check:
    return Check(
        suite=SUITE, case=case, kind="bytes", value=value, unit="B", at_most=0, trouble=trouble
    )


def not_received(wire: Wire, *, control: bool = True) -> NDArray[np.int64] | None:
    """Bytes sent minus bytes received, per direction of each connection that was recorded
    completely at both ends."""
    rows = wire.connections
    whole = (rows.process_a != NONE) & (rows.process_b != NONE) & (rows.is_late == 0)
    if not control:
        with_payload = wire.messages.connection[wire.messages.kind == MessageKind.COLLECTIVE]
        whole &= np.isin(np.arange(len(rows)), with_payload)
    if not whole.any():
        return None
    there, back = rows.sent_a - rows.received_b, rows.sent_b - rows.received_a
    return np.concatenate([there[whole], back[whole]])


def off_by(trace: Trace, wire: Wire) -> list[int]:
    """Returns for each all-reduce the payload sent minus the payload of a ring of its ranks. Each
    byte travels once around to be reduced and once more to be distributed, except for the last hop.
    """
    sent: dict[tuple[int, int], int] = {}
    rows = wire.messages
    of_collectives = np.flatnonzero((rows.kind == MessageKind.COLLECTIVE) & (rows.sequence != NONE))
    for row in of_collectives.tolist():
        key = int(rows.group[row]), int(rows.sequence[row])
        sent[key] = sent.get(key, 0) + int(rows.payload_bytes[row])
    events = trace.events
    is_sum = (events.kind == OpKind.ALL_REDUCE) & (events.sequence != NONE)
    ranks: dict[tuple[int, int], set[int]] = {}
    size_bytes: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(is_sum & (events.size_bytes > 0)).tolist():
        key = int(events.group[row]), int(events.sequence[row])
        ranks.setdefault(key, set()).add(int(events.rank[row]))
        size_bytes[key] = int(events.size_bytes[row])
    return [
        sent.get(key, 0) - 2 * (len(members) - 1) * size_bytes[key]
        for key, members in ranks.items()
        if len(members) > 1
    ]


def sources_agree(run: Path, case: str) -> Iterator[Check]:
    """Checks that two sources of a clock differ by no more than their stated uncertainties."""
    try:
        sources = clock_sources(run)
        steps = open_run(run).steps
    except AuguryError as error:
        sources, trouble = {}, str(error)
    else:
        trouble = ""
    for one, other in combinations(sorted(sources), 2):
        beyond = [0]
        for rank in sorted(sources[one].keys() & sources[other].keys()):
            a, b = sources[one][rank], sources[other][rank]
            own = steps.end_ns[steps.rank == rank]
            if len(own):
                apart = int(np.median(np.abs(to_common(a, own) - to_common(b, own))))
                beyond.append(apart - a.residual_ns - b.residual_ns)
        yield Check(
            suite=SUITE,
            case=f"{case}/{one}-and-{other}",
            kind="clock",
            value=max(beyond) / 1000,
            unit="us",
            at_most=20,
        )
    if "wire" not in sources:
        yield Check(
            suite=SUITE,
            case=f"{case}/wire",
            kind="clock",
            value=None,
            unit="us",
            at_most=20,
            trouble=trouble or "the wire tells nothing of clocks",
        )
