"""A recorded graph that can be rewritten to follow any order of pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from augury.build.problem.recorded_problem import recorded_problem
from augury.core.ledger import Ledger
from augury.core.plan.plan import is_swapped
from augury.core.vocabulary.torch import GLOO_THREADS
from augury.costs.runtime_overhead import NO_OVERHEAD, RuntimeOverhead
from augury.passes.communication_order import COMMUNICATION_ORDER
from augury.passes.pieces.piece_exchange import OrderedPieces
from augury.predict.replay_bound import ExchangeCosts, replay_bound
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.bucket_list import bucket_caps

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph
    from augury.core.plan.plan import Order
    from augury.core.plan.problem import Problem
    from augury.core.timeline import Timeline
    from augury.costs.collective_costs import Costs
    from augury.costs.p2p_exchange import PeerCosts
    from augury.costs.transfer_times import TransferCost
    from augury.passes.protocol import Changed, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledGraph:
    """A recorded graph that can be rewritten to follow any order of pieces."""

    scene: Scene
    problem: Problem
    """Costs of the fastest transport for pieces."""
    stock: Problem
    """Costs of collectives, as stock DDP uses them."""
    costs: Costs
    shared_costs: Costs
    """Costs of pieces that share the link with others."""
    during_compute: TransferCost | None
    """Additional time of a piece while its rank computes."""
    p2p: PeerCosts | None
    """Costs of exchanges between two ranks; None where collectives are used."""
    needs: dict[str, float]
    """Share of forward that passes before a parameter is needed, as far as recorded."""

    def with_compute(self, scene: Scene, before: Timeline) -> ScheduledGraph:
        """Returns the same graph with other compute, and the problems that this states. ``before``
        is its replay."""
        problem, stock = problems_of(
            before, self.costs, self.needs, self.during_compute, self.p2p, Ledger()
        )
        return replace(self, scene=scene, problem=problem, stock=stock)

    @property
    def bound_ns(self) -> int:
        """Lower bound on the step of every order, however it is evaluated or replayed."""
        exchange = ExchangeCosts(
            collectives=(self.costs, self.shared_costs),
            during_compute=self.during_compute,
            p2p=self.p2p,
        )
        return min(
            replay_bound(self.scene.graph, self.stock, exchange),
            lower_bound(self.stock),
            lower_bound(self.problem),
        )

    def follow(self, order: Order) -> Graph:
        """Returns the graph with this order."""
        return self.change_to(order).scene.graph

    def change_to(self, order: Order, *, is_stock: bool | None = None) -> Changed:
        """Buckets of stock DDP share the link; pieces of a plan use it as the plan says, and two
        ranks exchange them without collectives. ``is_stock`` says which of them the order is; by
        default, whether stock DDP can follow it."""
        if is_stock is None:
            is_stock = bucket_caps(self.problem, order) is not None
        if self.p2p and not is_stock and is_swapped(order, self.scene.graph.num_ranks):
            pieces = OrderedPieces(
                problem=self.problem,
                order=order,
                costs=self.costs,
                p2p=self.p2p,
                overhead=RuntimeOverhead(),
            )
        else:
            concurrent = GLOO_THREADS if is_stock else order.lanes
            pieces = OrderedPieces(
                problem=self.stock,
                order=order,
                costs=self.shared_costs if concurrent > 1 else self.costs,
                during_compute=self.during_compute,
                concurrent=concurrent,
                overhead=NO_OVERHEAD if is_stock else RuntimeOverhead(),
            )
        return COMMUNICATION_ORDER.apply(self.scene, pieces)


def problems_of(
    before: Timeline,
    costs: Costs,
    needs: dict[str, float],
    during_compute: TransferCost | None,
    p2p: PeerCosts | None,
    ledger: Ledger,
) -> tuple[Problem, Problem]:
    """Returns the problem with the costs of pieces, and that with the costs of collectives."""
    stock = recorded_problem(
        before, costs, needs=needs, during_compute=during_compute, ledger=ledger
    )
    if p2p is None:
        return stock, stock
    return recorded_problem(before, costs, needs=needs, p2p=p2p, ledger=Ledger()), stock
