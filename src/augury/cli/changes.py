"""What-if changes as people write them, made to a graph one after the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from augury.core.errors import UsageError
from augury.core.units import format_bytes, parse_bandwidth, parse_bytes, parse_time_ns

if TYPE_CHECKING:
    from augury.core.graph import Graph
    from augury.rewrite.network import Changed, Costs

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)\s*[x×]")


@dataclass(frozen=True, slots=True)
class Change:
    """``assumes`` is what a prediction of it may be off by, as a share of the step, beyond what
    the recorded run shows."""

    words: str
    make: Callable[[Graph, Costs], Changed]
    assumes: float


def factor_of(text: str) -> float | None:
    """``0.5x``: a share of what was recorded."""
    match = _FACTOR.fullmatch(text.strip())
    return float(match.group(1)) if match else None


def bandwidth(text: str) -> Change:
    from augury.rewrite.network import change_bandwidth, link_rate

    factor = factor_of(text)
    rate = None if factor is not None else parse_bandwidth(text)
    if not (factor or rate):
        raise UsageError(f"with a bandwidth of {text} nothing ends", remedy="give more than 0")

    def make(graph: Graph, costs: Costs) -> Changed:
        share = factor if rate is None else rate / link_rate(graph, costs)
        assert share is not None
        return change_bandwidth(graph, costs, share)

    return Change(f"bandwidth {text}", make, 0.015)


def latency(text: str) -> Change:
    from augury.rewrite.network import change_latency

    factor = factor_of(text)
    if factor is not None:
        return Change(
            f"latency {text}",
            lambda graph, costs: change_latency(graph, costs, factor=factor),
            0.02,
        )
    more_ns = parse_time_ns(text.removeprefix("+"))
    return Change(
        f"latency +{text.removeprefix('+')}",
        lambda graph, costs: change_latency(graph, costs, more_ns=more_ns),
        0.02,
    )


def buckets(text: str) -> Change:
    """``25``, or ``1,5,25``: one cap after the other; in MiB, as DDP counts them."""
    from augury.rewrite.buckets import change_buckets

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
    from augury.rewrite.ranks import change_ranks

    return Change(f"{number} ranks", lambda graph, costs: change_ranks(graph, costs, number), 0.025)


def compute_scale(text: str) -> Change:
    """``1.5``, or ``1:1.5`` for rank 1 alone; ``0-3:0.5`` for several."""
    from augury.capture.settings import parse_ranks
    from augury.rewrite.compute import scale_compute

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
    from augury.rewrite.compute import without_stragglers

    return Change("no stragglers", lambda graph, costs: (without_stragglers(graph), costs), 0.01)


def perfect_overlap() -> Change:
    from augury.rewrite.overlap import perfect_overlap as hide

    return Change("communication hidden", lambda graph, costs: (hide(graph), costs), 0.01)


def make_all(graph: Graph, costs: Costs, changes: Sequence[Change]) -> Graph:
    from augury.core.spec import check

    for change in changes:
        graph, costs = change.make(graph, costs)
        wrong = check(graph)
        if wrong:
            raise UsageError(
                f"{change.words}: that is too much ({wrong[0].message})",
                remedy="name a smaller change",
            )
    return graph
