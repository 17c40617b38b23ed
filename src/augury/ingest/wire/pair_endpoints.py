"""Pairs the two ends of each connection by address, port and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from augury.core.ledger import Ledger, Severity
from augury.ingest.wire.wire_file import WireFile

MAX_APART_NS = 120 * 10**9
"""Ends that were opened further apart belong to two connections, however clocks differ."""


class End(NamedTuple):
    """One end of a connection: index of the file, and row in it."""

    file: int
    row: int


class Pair(NamedTuple):
    """Both ends of a connection; ``b`` is None if that end was not recorded."""

    a: End
    b: End | None


def pair_ends(files: Sequence[WireFile], ledger: Ledger) -> list[Pair]:
    """Returns pairs in the order of ``a``, which is the earlier end in the list of files."""
    ends: dict[tuple[str, str, str], list[End]] = defaultdict(list)
    for number, file in enumerate(files):
        for row, (own, peer) in enumerate(zip(file.own, file.peer, strict=True)):
            ends[_scope(own, file.host), own, peer].append(End(number, row))
    partner: dict[End, End] = {}
    for (scope, own, peer), there in ends.items():
        back = ends.get((scope, peer, own), [])
        if own < peer and back:
            _match(files, there, back, partner)
    pairs: list[Pair] = []
    for end in sorted(end for some in ends.values() for end in some):
        other = partner.get(end)
        if other is None or end < other:
            pairs.append(Pair(end, other))
    _note_unpaired(files, pairs, ledger)
    return pairs


def _scope(address: str, host: str) -> str:
    """Loopback addresses are distinct on each host."""
    return host if address.startswith(("127.", "[::1]")) else ""


def _match(
    files: Sequence[WireFile], there: list[End], back: list[End], partner: dict[End, End]
) -> None:
    """A pair of ports may be reused: the ends opened closest together belong together."""

    def opened_ns(end: End) -> int:
        return int(files[end.file].ends.opened_ns[end.row])

    if len(there) * len(back) > 1 << 16:
        there, back = there[:256], back[:256]
    distances = sorted(
        (abs(opened_ns(one) - opened_ns(other)), one, other) for one in there for other in back
    )
    for apart_ns, one, other in distances:
        if apart_ns > MAX_APART_NS and len(distances) > 1:
            break
        if one not in partner and other not in partner:
            partner[one], partner[other] = other, one


def _note_unpaired(files: Sequence[WireFile], pairs: list[Pair], ledger: Ledger) -> None:
    alone = [pair.a for pair in pairs if pair.b is None]
    ledger.note(
        "wire-peer-not-recorded",
        "the other end of a connection was not recorded; arrival times there are unknown",
        severity=Severity.INFO,
        count=len(alone),
        remedy="record all processes of the job",
        example=_label(files, alone[0]) if alone else "",
    )
    inherited = [
        end
        for pair in pairs
        for end in (pair.a, pair.b)
        if end is not None and files[end.file].ends.is_inherited[end.row]
    ]
    ledger.note(
        "wire-inherited-connection",
        "a process used a connection of its parent; bytes are counted from its first use",
        severity=Severity.INFO,
        count=len(inherited),
        example=_label(files, inherited[0]) if inherited else "",
    )


def _label(files: Sequence[WireFile], end: End) -> str:
    file = files[end.file]
    process = f"rank {file.rank}" if file.rank >= 0 else f"process {file.pid}"
    return f"{process}: {file.own[end.row]} to {file.peer[end.row]}"
