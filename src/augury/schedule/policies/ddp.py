"""The policies `ddp` and `ddp-best`: DDP's buckets, by default and with the best single size."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem
from augury.schedule.evaluate import step_ns
from augury.schedule.order_parts import MEBIBYTE, buckets_as_released, exchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Ddp:
    """Published: buckets of 25 MiB, the first of 1 MiB, filled in the order of release (DDP
    observes it once and rebuilds its buckets); each is sent when it is full and the ones before it
    were sent; the optimizer waits for all. Assumed: with a parameter server, a bucket is pushed and
    pulled like one tensor."""

    name: str = "ddp"
    bucket_caps_bytes: tuple[int, ...] = (MEBIBYTE, 25 * MEBIBYTE)

    def compile(self, problem: Problem) -> Order:
        return order_of_buckets(self.name, problem, self.bucket_caps_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpBest:
    """DDP with the best single bucket size, as a user who tries these sizes would find. Among
    equals the largest size wins: fewer messages."""

    name: str = "ddp-best"
    sizes_bytes: tuple[int, ...] = tuple(
        MEBIBYTE * quarters // 4
        for quarters in (1, 2, 4, 8, 12, 20, 32, 48, 64, 100, 160, 256, 400, 800, 1600, 4000)
    )

    def caps_bytes(self, problem: Problem) -> tuple[int, ...]:
        def took_ns(size_bytes: int) -> int:
            return step_ns(problem, order_of_buckets(self.name, problem, (size_bytes,)))

        return (min(sorted(self.sizes_bytes, reverse=True), key=took_ns),)

    def compile(self, problem: Problem) -> Order:
        return order_of_buckets(self.name, problem, self.caps_bytes(problem))


def order_of_buckets(name: str, problem: Problem, caps_bytes: tuple[int, ...]) -> Order:
    messages = buckets_as_released(problem, caps_bytes)
    return Order(policy=name, pieces=exchanged(problem, messages), has_barrier=True)
