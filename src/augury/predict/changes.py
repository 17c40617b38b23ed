"""What-if changes as users write them, parsed into passes with parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from augury.core.errors import UsageError
from augury.core.graph.graph_spec import check
from augury.core.units import (
    format_bytes,
    parse_bandwidth,
    parse_bytes,
    parse_ranks,
    parse_time_ns,
)
from augury.passes.bandwidth import BANDWIDTH, LINK_BANDWIDTH, LinkRate, Rate
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.passes.compute_scale import COMPUTE_SCALE, ComputeFactor
from augury.passes.expand_collectives import EXPAND_COLLECTIVES, RECORDED, Topology
from augury.passes.latency import LATENCY, LatencyChange
from augury.passes.no_stragglers import NO_STRAGGLERS
from augury.passes.perfect_overlap import PERFECT_OVERLAP
from augury.passes.protocol import Changed, ErrorModel, Pass, Scene, followed_by, unchanged
from augury.passes.ranks import CHANGE_RANKS, NumRanks

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*[x×]")


@dataclass(frozen=True, slots=True)
class Change:
    """A pass with its parameters, and its description in words."""

    words: tuple[str, ...]
    made_by: Pass[Any]
    parameters: Any = None

    @property
    def error_model(self) -> ErrorModel:
        return self.made_by.error_model(self.parameters)

    def apply(self, scene: Scene) -> Changed:
        """Returns the changed scene. Raises UsageError where it is beyond the limits of a graph."""
        found = self.made_by.apply(scene, self.parameters)
        is_same = found.scene.graph is scene.graph
        wrong = [] if is_same else check(found.scene.graph)
        if wrong:
            raise UsageError(
                f"{', '.join(self.words) or self.made_by.name}: the change is too large"
                f" ({wrong[0].message})",
                remedy="name a smaller change",
            )
        return found


def apply_all(scene: Scene, changes: Sequence[Change]) -> Changed:
    """Applies changes in the given order, each to the outcome of the one before."""
    whole = unchanged(scene)
    for change in changes:
        whole = followed_by(whole, change.apply(whole.scene))
    return whole


def error_of(changes: Sequence[Change]) -> ErrorModel:
    """Returns the error of a prediction of these changes together."""
    return ErrorModel.combined(change.error_model for change in changes)


def words_of(changes: Sequence[Change]) -> list[str]:
    """Returns the descriptions of the changes, in their order."""
    return [words for change in changes for words in change.words]


def factor_of(text: str) -> float | None:
    """Returns the factor that a text such as ``0.5x`` names; None if it names none."""
    match = _FACTOR.fullmatch(text.strip())
    return float(match.group(1)) if match else None


def bandwidth(text: str) -> Change:
    """Parses the bandwidth of all links: ``0.5x``, or ``10Gbit/s``."""
    return Change((f"bandwidth {text}",), BANDWIDTH, _rate(text))


def link_bandwidth(text: str) -> Change:
    """Parses the bandwidth of one rank's link: ``1:0.5x`` of rank 1, both ways; ``1.out:0.5x`` and
    ``1.in:0.5x`` one way."""
    where, _, value = text.partition(":")
    rank, _, way = where.partition(".")
    if not (rank.isascii() and rank.isdecimal() and len(rank) < 7 and way in ("", "in", "out")):
        raise UsageError(
            f"{text!r} names no link", remedy="write 1:0.5x, or 1.out:0.5x for one way"
        )
    ways = {"": "", "in": " inwards", "out": " outwards"}[way]
    return Change(
        (f"the link of rank {rank}{ways} at {value}",),
        LINK_BANDWIDTH,
        LinkRate(rank=int(rank), rate=_rate(value), sends=way != "in", receives=way != "out"),
    )


def _rate(text: str) -> Rate:
    factor = factor_of(text)
    if factor is not None:
        return Rate(factor=factor)
    return Rate(bytes_per_s=parse_bandwidth(text))


def latency(text: str) -> Change:
    """Parses the latency of all links: ``2x``, or ``+1ms`` for each message."""
    factor = factor_of(text)
    if factor is not None:
        return Change((f"latency {text}",), LATENCY, LatencyChange(factor=factor))
    more = text.removeprefix("+")
    return Change((f"latency +{more}",), LATENCY, LatencyChange(more_ns=parse_time_ns(more)))


def buckets(text: str) -> Change:
    """Parses capacities of DDP's buckets in MiB: ``25``, or ``1,5,25``, one after the other."""
    parts = [part.strip() for part in text.split(",")]
    caps = [parse_bytes(part if re.search(r"[a-zA-Z]", part) else f"{part}MiB") for part in parts]
    if not all(caps):
        raise UsageError("a bucket of no bytes", remedy="give sizes above 0, such as 25")
    words = ", ".join(format_bytes(cap) for cap in caps)
    return Change((f"buckets of {words}",), BUCKETS, BucketCaps(tuple(caps)))


def ranks(number: int) -> Change:
    """Returns a change of the number of ranks."""
    return Change((f"{number} ranks",), CHANGE_RANKS, NumRanks(number))


def compute_scale(text: str) -> Change:
    """Parses a factor on the time of compute: ``1.5``; ``1:1.5`` for rank 1 alone; ``0-3:0.5`` for
    several ranks."""
    where, named, value = text.rpartition(":")
    chosen = parse_ranks(where) if named else None
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise UsageError(
            f"{text!r} is not a factor of time",
            remedy="write 0.5, or 3:1.5 for rank 3 alone",
        )
    place = f" on rank {where}" if where else ""
    return Change(
        (f"compute takes {value} times as long{place}",),
        COMPUTE_SCALE,
        ComputeFactor(factor=factor, ranks=chosen),
    )


def no_straggler() -> Change:
    """Returns the change to ranks that are all as fast as the fastest."""
    return Change(("no stragglers",), NO_STRAGGLERS)


def perfect_overlap() -> Change:
    """Returns the change to compute that does not wait for communication."""
    return Change(("communication hidden",), PERFECT_OVERLAP)


def expanded(topology: Topology | None = None) -> Change:
    """Returns the expansion of collectives into sends on links, the last change of a fine replay.
    ``topology`` is None where collectives use the links as recorded."""
    return Change(tuple(_topology_words(topology)), EXPAND_COLLECTIVES, topology)


def topology_of(
    algorithm: str | None, ring_order: str | None, half_duplex: bool
) -> Topology | None:
    """Parses the use of links by collectives; None if nothing is named."""
    if algorithm is None and ring_order is None and not half_duplex:
        return None
    topology = Topology(algorithm=algorithm or RECORDED.algorithm, half_duplex=half_duplex)
    if ring_order is None:
        return topology
    parts = [part.strip() for part in ring_order.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 7 for part in parts):
        raise UsageError(f"{ring_order!r} is no order of ranks", remedy="write it as 0,2,1,3")
    return replace(topology, ring_order=tuple(int(part) for part in parts))


def _topology_words(topology: Topology | None) -> list[str]:
    if topology is None:
        return []
    words = []
    if topology.algorithm != RECORDED.algorithm:
        words.append(f"all-reduce by {topology.algorithm}")
    if topology.ring_order is not None:
        words.append(f"ring in the order {', '.join(map(str, topology.ring_order))}")
    if topology.half_duplex:
        words.append("links that send or receive, not both at once")
    return words
