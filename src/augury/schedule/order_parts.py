"""Building blocks of orders: slices, buckets, messages, pieces, and simulated priority queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import ceil

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.plan.plan import Piece, Slice
from augury.core.plan.problem import Network, Problem, Scheme

Message = tuple[Slice, ...]

MEGABYTE = 1_000_000
MEBIBYTE = 1 << 20


def release_order(problem: Problem) -> list[int]:
    """Returns gradients in the order of release. Of those released at once the last of the list is
    first, since backward runs through the layers in reverse."""
    releases = [gradient.release_ns for gradient in problem.gradients]
    return sorted(range(len(releases)), key=lambda place: (releases[place], -place))


def whole(problem: Problem, place: int) -> Slice:
    return Slice(gradient=place, offset_bytes=0, size_bytes=problem.gradients[place].size_bytes)


def cut(problem: Problem, place: int, most_bytes: int) -> Iterator[Slice]:
    """Yields slices of at most this size, or of one item where an item is larger; only the last one
    is smaller than the others."""
    gradient = problem.gradients[place]
    step_bytes = max(1, most_bytes // gradient.item_bytes) * gradient.item_bytes
    for offset_bytes in range(0, gradient.size_bytes, step_bytes):
        yield Slice(
            gradient=place,
            offset_bytes=offset_bytes,
            size_bytes=min(step_bytes, gradient.size_bytes - offset_bytes),
        )


def fill_buckets(sizes_bytes: Sequence[int], caps_bytes: Sequence[int]) -> list[list[int]]:
    """Fills buckets with gradients in the order of release; a bucket closes when it reaches its
    cap. The n-th bucket has the n-th cap, all further ones the last."""
    buckets: list[list[int]] = [[]]
    held_bytes = 0
    for gradient, size_bytes in enumerate(sizes_bytes):
        buckets[-1].append(gradient)
        held_bytes += size_bytes
        if held_bytes >= caps_bytes[min(len(buckets), len(caps_bytes)) - 1]:
            buckets.append([])
            held_bytes = 0
    return [bucket for bucket in buckets if bucket]


def buckets_as_released(problem: Problem, caps_bytes: Sequence[int]) -> list[Message]:
    """Returns buckets of whole gradients in the order of release."""
    coming = release_order(problem)
    sizes_bytes = [problem.gradients[place].size_bytes for place in coming]
    return [
        tuple(whole(problem, coming[nth]) for nth in bucket)
        for bucket in fill_buckets(sizes_bytes, caps_bytes)
    ]


def gather(slices: Iterable[Slice], most_bytes: int) -> list[Message]:
    """Joins slices in their order into messages of at most this size, with at least one slice."""
    messages: list[list[Slice]] = []
    held_bytes = 0
    for part in slices:
        if not messages or held_bytes + part.size_bytes > most_bytes:
            messages.append([])
            held_bytes = 0
        messages[-1].append(part)
        held_bytes += part.size_bytes
    return [tuple(message) for message in messages]


def size_of(message: Message) -> int:
    return sum(part.size_bytes for part in message)


def ready_ns(problem: Problem, message: Message) -> int:
    """Returns when backward has released all slices of a message."""
    return max(problem.gradients[part.gradient].release_ns for part in message)


def hold_ns(network: Network, size_bytes: int) -> int:
    """Returns how long a message holds its link, rounded as in the evaluator, without latency. A
    reduce-scatter or an all-gather takes half."""
    return ceil(network.overhead_ns + network.ns_per_byte * size_bytes)


def exchanged(
    problem: Problem,
    messages: Sequence[Message],
    *,
    not_before_ns: Sequence[int] | None = None,
    back: Sequence[int] | None = None,
) -> tuple[Piece, ...]:
    """Returns the pieces of messages in this order: all-reduces, or pushes and then pulls.
    ``back``: another order of the pulls, as indices of messages."""
    starts_ns = not_before_ns if not_before_ns is not None else [0] * len(messages)
    serves = problem.network.scheme is Scheme.PARAMETER_SERVER
    first_op = OpKind.PUSH if serves else OpKind.ALL_REDUCE
    first = tuple(
        Piece(op=first_op, slices=message, not_before_ns=start_ns)
        for message, start_ns in zip(messages, starts_ns, strict=True)
    )
    return first + completed(first, back, OpKind.PULL) if serves else first


def completed(first: Sequence[Piece], back: Sequence[int] | None, op: OpKind) -> tuple[Piece, ...]:
    """Returns the second halves of these pieces, which follow all of them in the list."""
    places = back if back is not None else range(len(first))
    return tuple(Piece(op=op, slices=first[place].slices, after=place) for place in places)


def by_priority(
    problem: Problem, messages: Sequence[Message], *, window_bytes: int | None
) -> tuple[Piece, ...]:
    """Returns the pieces in the order of a priority queue that sends whenever its link is free and
    fewer bytes than the window are in flight. The first message is the most urgent. A parameter
    server answers by the same kind of queue."""
    network = problem.network
    sizes_bytes = [size_of(message) for message in messages]
    holds_ns = [hold_ns(network, size_bytes) for size_bytes in sizes_bytes]
    sent = _served(
        [ready_ns(problem, message) for message in messages],
        holds_ns,
        sizes_bytes,
        latency_ns=network.latency_ns,
        window_bytes=window_bytes,
    )
    going = [messages[place] for place, _ in sent]
    if network.scheme is not Scheme.PARAMETER_SERVER:
        return exchanged(problem, going)
    answers_ns = [ceil(network.server_ns_per_byte * size_bytes) for size_bytes in sizes_bytes]
    nth_sent = [NONE] * len(messages)
    for nth, (place, arrive_ns) in enumerate(sent):
        answers_ns[place] += arrive_ns
        nth_sent[place] = nth
    came_back = _served(
        answers_ns,
        holds_ns,
        sizes_bytes,
        latency_ns=network.latency_ns,
        window_bytes=window_bytes,
    )
    return exchanged(problem, going, back=[nth_sent[place] for place, _ in came_back])


def _served(
    readies_ns: Sequence[int],
    holds_ns: Sequence[int],
    sizes_bytes: Sequence[int],
    *,
    latency_ns: int,
    window_bytes: int | None,
) -> list[tuple[int, int]]:
    """Simulates one link. Returns (message, arrival) in the order of sending."""
    coming = deque(sorted(range(len(readies_ns)), key=lambda place: (readies_ns[place], place)))
    waiting: list[int] = []
    in_flight: deque[tuple[int, int]] = deque()
    in_flight_bytes = 0
    served = []
    now_ns = 0
    while coming or waiting:
        if not waiting:
            now_ns = max(now_ns, readies_ns[coming[0]])
        while in_flight and (
            in_flight[0][0] <= now_ns
            or (window_bytes is not None and in_flight_bytes >= window_bytes)
        ):
            arrive_ns, size_bytes = in_flight.popleft()
            now_ns = max(now_ns, arrive_ns)
            in_flight_bytes -= size_bytes
        while coming and readies_ns[coming[0]] <= now_ns:
            heappush(waiting, coming.popleft())
        place = heappop(waiting)
        now_ns += holds_ns[place]
        in_flight.append((now_ns + latency_ns, sizes_bytes[place]))
        in_flight_bytes += sizes_bytes[place]
        served.append((place, now_ns + latency_ns))
    return served
