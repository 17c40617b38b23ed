"""Scheduling problems: random ones of small numbers, so that many things happen at one time, and
what tests build by hand."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from augury.core.plan.problem import Gradient, Network, Problem, Scheme

_SCHEMES = st.sampled_from(Scheme)
_TIMES_NS = st.integers(0, 40)
_RATES = st.sampled_from((1.0, 0.0, 0.25, 0.5, 1.5, 2.0, 7.0, 1 / 3))

_SCALES = st.sampled_from((1, 1, 20_000))


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    schemes: st.SearchStrategy[Scheme] = _SCHEMES,
    max_gradients: int = 8,
    overheads_ns: st.SearchStrategy[int] = _TIMES_NS,
    latencies_ns: st.SearchStrategy[int] = _TIMES_NS,
    updates_ns: st.SearchStrategy[int] = _TIMES_NS,
    scales: st.SearchStrategy[int] = _SCALES,
) -> Problem:
    """Releases mostly from the last gradient to the first, at times in any order; some at once.
    In some problems bytes are so many that published constants cut them."""
    count = draw(st.integers(1, max_gradients))
    some_ns = st.lists(_TIMES_NS, min_size=count, max_size=count)
    gaps_ns = draw(some_ns)
    releases_ns = [sum(gaps_ns[place:]) for place in range(count)]
    if draw(st.integers(0, 3)) == 3:
        releases_ns = draw(st.permutations(releases_ns))
    steps_ns = draw(some_ns)
    scale = draw(scales)
    gradients = []
    for place in range(count):
        item_bytes = draw(st.sampled_from((1, 4, 2, 8)))
        gradients.append(
            Gradient(
                name=f"p{place}",
                size_bytes=item_bytes * draw(st.integers(1, 30)) * scale,
                item_bytes=item_bytes,
                release_ns=releases_ns[place],
                need_ns=sum(steps_ns[: place + 1]),
                update_ns=draw(updates_ns),
            )
        )
    return Problem(
        gradients=tuple(gradients),
        backward_ns=sum(gaps_ns) + draw(st.integers(0, 10)),
        between_ns=draw(st.integers(0, 10)),
        forward_ns=sum(steps_ns) + draw(st.integers(0, 40)),
        network=Network(
            scheme=draw(schemes),
            overhead_ns=draw(overheads_ns),
            ns_per_byte=draw(_RATES) / scale,
            latency_ns=draw(latencies_ns),
            server_ns_per_byte=draw(_RATES) / scale,
        ),
    )


def problem_of(
    sizes_bytes: Sequence[int],
    releases_ns: Sequence[int],
    *,
    needs_ns: Sequence[int] | None = None,
    forward_ns: int = 100,
    **network: object,
) -> Problem:
    """Gradients in the order of the next forward, one byte to an item; one byte a nanosecond if
    nothing else is said."""
    return Problem(
        gradients=tuple(
            Gradient(
                name=f"p{place}",
                size_bytes=size_bytes,
                item_bytes=1,
                release_ns=release_ns,
                need_ns=needs_ns[place] if needs_ns is not None else 0,
            )
            for place, (size_bytes, release_ns) in enumerate(
                zip(sizes_bytes, releases_ns, strict=True)
            )
        ),
        backward_ns=max(releases_ns),
        forward_ns=forward_ns,
        network=Network(**{"ns_per_byte": 1.0, **network}),
    )
