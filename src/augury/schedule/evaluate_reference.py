"""The reference evaluation of an Order in plain Python; the kernel must give the same times.

Time zero is the start of backward. Each link takes its pieces strictly in the order of the list.
A piece starts when its link is free, all its gradients are released, the piece it completes has
arrived (and the server has handled it), ``not_before_ns`` has passed, and fewer bytes than the
window are in flight before it on its link. It holds the link, and arrives a latency after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from augury.core.graph.graph import NONE
from augury.schedule.flat_arrays import FlatOrder, FlatProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    step_ns: int
    waiting_ns: int
    start_ns: list[int]
    arrive_ns: list[int]
    arrived_ns: list[int]


def times_of(problem: FlatProblem, order: FlatOrder) -> Times:
    start_ns, arrive_ns = _on_links(problem, order)
    arrived = _arrivals(problem, order, arrive_ns)
    main_thread = _with_barrier if order.has_barrier else _without_barrier
    step_ns, waiting_ns = main_thread(problem, arrived)
    arrived_ns = [0] * len(problem.release_ns)
    for when_ns, gradient in arrived:
        arrived_ns[gradient] = when_ns
    return Times(
        step_ns=step_ns,
        waiting_ns=waiting_ns,
        start_ns=start_ns,
        arrive_ns=arrive_ns,
        arrived_ns=arrived_ns,
    )


def _on_links(problem: FlatProblem, order: FlatOrder) -> tuple[list[int], list[int]]:
    release_ns = problem.release_ns.tolist()
    hold_ns, size_bytes = order.hold_ns.tolist(), order.size_bytes.tolist()
    first, gradient = order.first.tolist(), order.gradient.tolist()
    start_ns: list[int] = []
    arrive_ns: list[int] = []
    free_ns = [0, 0]
    in_flight: tuple[list[int], list[int]] = ([], [])
    in_flight_bytes = [0, 0]
    for piece, (link, after) in enumerate(
        zip(order.link.tolist(), order.after.tolist(), strict=True)
    ):
        start = max(free_ns[link], int(order.not_before_ns[piece]))
        for place in range(first[piece], first[piece + 1]):
            start = max(start, release_ns[gradient[place]])
        if after != NONE:
            start = max(start, arrive_ns[after] + int(order.lag_ns[piece]))
        # Pieces of a link arrive in order: the piece in front arrives first.
        while in_flight_bytes[link] >= order.window_bytes:
            ahead = in_flight[link].pop(0)
            in_flight_bytes[link] -= size_bytes[ahead]
            start = max(start, arrive_ns[ahead])
        in_flight[link].append(piece)
        in_flight_bytes[link] += size_bytes[piece]
        free_ns[link] = start + hold_ns[piece]
        start_ns.append(start)
        arrive_ns.append(free_ns[link] + order.latency_ns)
    return start_ns, arrive_ns


def _arrivals(
    problem: FlatProblem, order: FlatOrder, arrive_ns: list[int]
) -> list[tuple[int, int]]:
    """Returns (arrival, gradient) for all gradients, in the order of arrival."""
    missing_bytes = problem.size_bytes.tolist()
    arrived = []
    for piece in range(len(arrive_ns)):
        if order.is_last[piece]:
            for place in range(order.first[piece], order.first[piece + 1]):
                gradient = int(order.gradient[place])
                missing_bytes[gradient] -= int(order.slice_bytes[place])
                if missing_bytes[gradient] == 0:
                    arrived.append((arrive_ns[piece], gradient))
    return sorted(arrived)


def _with_barrier(problem: FlatProblem, arrived: list[tuple[int, int]]) -> tuple[int, int]:
    last_ns = max(problem.begin_ns, arrived[-1][0])
    work_ns = int(problem.update_ns.sum()) + int(problem.segment_ns.sum())
    return last_ns + work_ns, last_ns - problem.begin_ns


def _without_barrier(problem: FlatProblem, arrived: list[tuple[int, int]]) -> tuple[int, int]:
    """Runs forward as far as possible. Where it must wait, arrived gradients are applied, lowest
    index first; where there are none, it waits for the next arrival."""
    segment_ns, update_ns = problem.segment_ns.tolist(), problem.update_ns.tolist()
    now_ns = problem.begin_ns + segment_ns[0]
    waiting_ns = 0
    num_seen = 0
    to_update: list[int] = []
    is_updated = [False] * len(update_ns)
    for gradient, forward_ns in enumerate(segment_ns[1:]):
        while not is_updated[gradient]:
            while num_seen < len(arrived) and arrived[num_seen][0] <= now_ns:
                heappush(to_update, arrived[num_seen][1])
                num_seen += 1
            if to_update:
                updated = heappop(to_update)
                is_updated[updated] = True
                now_ns += update_ns[updated]
            else:
                waiting_ns += arrived[num_seen][0] - now_ns
                now_ns = arrived[num_seen][0]
        now_ns += forward_ns
    return now_ns, waiting_ns
