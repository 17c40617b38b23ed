"""What-if changes as people write them, made to a graph one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.core.units import format_bytes, parse_bandwidth, parse_bytes, parse_time_ns

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.costs.links import Links
    from augury.passes.expand_collectives import Topology
    from augury.passes.network import Changed, Costs

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*[x×]")


@dataclass(frozen=True, slots=True)
class Change:
    """``assumes`` is what a prediction of it may be off by, as a share of the step, beyond what
    the recorded run shows."""

    words: str
    make: Callable[[Graph, Costs], Changed]
    assumes: float
    links: Callable[[Links], Links] | None = None
    """The same, where links are known one by one: done to them, not to the graph."""


def factor_of(text: str) -> float | None:
    """``0.5x``: a share of what was recorded."""
    match = _FACTOR.fullmatch(text.strip())
    return float(match.group(1)) if match else None


def bandwidth(text: str) -> Change:
    from augury.passes.network import change_bandwidth, link_rate

    factor = factor_of(text)
    rate = None if factor is not None else parse_bandwidth(text)
    if not (factor or rate):
        raise UsageError(f"with a bandwidth of {text} nothing ends", remedy="give more than 0")

    def make(graph: Graph, costs: Costs) -> Changed:
        share = factor if rate is None else rate / link_rate(graph, costs)
        assert share is not None
        return change_bandwidth(graph, costs, share)

    def make_links(links: Links) -> Links:
        share = factor if rate is None else rate / links.typical_rate
        assert share is not None
        return links.all_faster(share)

    return Change(f"bandwidth {text}", make, 0.015, make_links)


def link_bandwidth(text: str) -> Change:
    """``1:0.5x``: of the link of rank 1, both ways; ``1.out:0.5x`` and ``1.in:0.5x`` one way."""
    where, _, value = text.partition(":")
    rank, _, way = where.partition(".")
    factor = factor_of(value)
    if not (rank.isascii() and rank.isdecimal() and len(rank) < 7 and way in ("", "in", "out")):
        raise UsageError(
            f"{text!r} names no link", remedy="write 1:0.5x, or 1.out:0.5x for one way"
        )
    rate = None if factor is not None else parse_bandwidth(value)
    if not (factor or rate):
        raise UsageError(f"with a bandwidth of {text} nothing ends", remedy="give more than 0")

    def make_links(links: Links) -> Links:
        share = factor if rate is None else rate / links.rate_of(int(rank))
        assert share is not None
        return links.faster(int(rank), share, sends=way != "in", receives=way != "out")

    def only_fine(_graph: Graph, _costs: Costs) -> Changed:
        raise UsageError("single links are known to fine replays only", remedy="add --fine")

    ways = {"": "", "in": " inwards", "out": " outwards"}[way]
    return Change(f"the link of rank {rank}{ways} at {value}", only_fine, 0.015, make_links)


def latency(text: str) -> Change:
    from augury.passes.network import change_latency

    factor = factor_of(text)
    if factor is not None:
        return Change(
            f"latency {text}",
            lambda graph, costs: change_latency(graph, costs, factor=factor),
            0.02,
            lambda links: links.slower_by(factor=factor),
        )
    more_ns = parse_time_ns(text.removeprefix("+"))
    return Change(
        f"latency +{text.removeprefix('+')}",
        lambda graph, costs: change_latency(graph, costs, more_ns=more_ns),
        0.02,
        lambda links: links.slower_by(more_ns=more_ns),
    )


def buckets(text: str) -> Change:
    """``25``, or ``1,5,25``: one cap after the other; in MiB, as DDP counts them."""
    from augury.passes.buckets import change_buckets

    parts = [part.strip() for part in text.split(",")]
    caps = [parse_bytes(part if re.search(r"[a-zA-Z]", part) else f"{part}MiB") for part in parts]
    if not all(caps):
        raise UsageError("a bucket of no bytes", remedy="give sizes above 0, such as 25")
    words = ", ".join(format_bytes(cap) for cap in caps)
    return Change(
        f"buckets of {words}",
        lambda graph, costs: (change_buckets(graph, costs, caps), costs),
        0.015,
    )


def ranks(number: int) -> Change:
    from augury.passes.ranks import change_ranks

    return Change(f"{number} ranks", lambda graph, costs: change_ranks(graph, costs, number), 0.025)


def compute_scale(text: str) -> Change:
    """``1.5``, or ``1:1.5`` for rank 1 alone; ``0-3:0.5`` for several."""
    from augury.capture.settings import parse_ranks
    from augury.passes.compute import scale_compute

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

    def make(graph: Graph, costs: Costs) -> Changed:
        if chosen is not None and max(chosen) >= len(graph.ranks):
            raise UsageError(
                f"there is no rank {max(chosen)}", remedy=f"name 0 to {len(graph.ranks) - 1}"
            )
        return scale_compute(graph, factor, chosen), costs

    who = f" on rank {where}" if where else ""
    return Change(f"compute takes {value} times as long{who}", make, 0.01)


def no_straggler() -> Change:
    from augury.passes.compute import without_stragglers

    return Change("no stragglers", lambda graph, costs: (without_stragglers(graph), costs), 0.01)


def perfect_overlap() -> Change:
    from augury.passes.perfect_overlap import perfect_overlap as hide

    return Change("communication hidden", lambda graph, costs: (hide(graph), costs), 0.01)


def make_all(graph: Graph, costs: Costs, changes: Sequence[Change]) -> Graph:
    for change in changes:
        graph, costs = change.make(graph, costs)
        _check(graph, change)
    return graph


def make_all_fine(
    graph: Graph,
    costs: Costs,
    recorded: Links,
    changes: Sequence[Change],
    topology: Topology | None,
) -> Graph:
    """What concerns links is done to them, all else to the graph before its collectives are
    expanded on them."""
    from augury.passes.expand_collectives import RECORDED, expand

    links = recorded
    for change in changes:
        if change.links is not None:
            links = change.links(links)
            continue
        graph, costs = change.make(graph, costs)
        _check(graph, change)
        if graph.num_ranks != links.num_ranks:
            recorded, links = recorded.grown(graph.num_ranks), links.grown(graph.num_ranks)
    expanded = expand(graph, recorded, links=links, topology=topology or RECORDED)
    if changes:
        _check(expanded, changes[-1])
    return expanded


def _check(graph: Graph, change: Change) -> None:
    from augury.core.graph.graph_spec import check

    wrong = check(graph)
    if wrong:
        raise UsageError(
            f"{change.words}: that is too much ({wrong[0].message})",
            remedy="name a smaller change",
        )
