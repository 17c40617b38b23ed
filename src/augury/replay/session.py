"""ReplaySession: repeated replays of one graph under changes, and screening of many durations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from augury.core.columns import I8
from augury.core.errors import DeadlockError, UsageError
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import verify, verify_durations
from augury.core.timeline import Timeline
from augury.replay.engine import Engine, EngineName, find_engine, is_native_built
from augury.replay.fixed_order import FixedOrder
from augury.replay.fold import FoldedGraph, may_pay
from augury.replay.fold import fold as fold_ranks
from augury.replay.op_times import OpTimes
from augury.replay.run import refusing_deadlocks, replay, replay_folded
from augury.replay.window import predicted_step_ns

if TYPE_CHECKING:
    from augury.replay.kernel import Replayer


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedCandidate:
    """One of the best candidates of ``ReplaySession.screen``."""

    candidate: int
    """Its row."""
    estimated_step_ns: int
    step_ns: int
    """Result of an exact replay."""


class ReplaySession:
    """Replays of ``base`` and of changed versions of it.

    The base graph is verified and folded once, and the kernel prepares it once. A change of
    durations reuses all of that, and the part of the base replay before the first changed
    operation begins. A change of structure is verified and replayed as a whole. Results equal
    those of ``replay`` to the nanosecond; where several ranks are equally late, the critical path
    may lead through another one of them.

    A session may be used by one thread at a time.
    """

    def __init__(self, base: Graph, *, engine: EngineName = "auto", fold: bool = True) -> None:
        verify(base)
        self.base = base
        self._engine_name = engine
        self._fold = fold
        self._folded = fold_ranks(base) if fold and may_pay(base) else None
        self._whole_engine = _CachingEngine(base, engine)
        self._folded_engine = (
            None if self._folded is None else _CachingEngine(self._folded.graph, engine)
        )
        self._orders: dict[bool, FixedOrder | None] = {}

    @property
    def num_reused_ops(self) -> int:
        """Number of operations that the last replay took from the base replay, in all windows."""
        engine = self._folded_engine or self._whole_engine
        return engine.num_reused_ops

    def replay(
        self, change: Graph | ArrayLike | None = None, *, touched: ArrayLike | None = None
    ) -> Timeline:
        """Replays the base, or a changed version of it: a Graph, or durations. Durations are those
        of the operations ``touched``, or of all operations without it."""
        prepared = self._prepare(change, touched)
        if isinstance(prepared, Graph):
            return replay(prepared, engine=self._engine_name, fold=self._fold)
        try:
            return replay_folded(
                prepared.graph, prepared.folded, self._simulate(prepared, copy=True)
            )
        except DeadlockError:
            if prepared.folded is None:
                raise
            return replay(prepared.graph, engine=self._engine_name, fold=False)

    def step_ns(
        self, change: Graph | ArrayLike | None = None, *, touched: ArrayLike | None = None
    ) -> int:
        """Returns the step of ``replay(change, touched=touched)`` alone, which is cheaper."""
        prepared = self._prepare(change, touched)
        if isinstance(prepared, Graph):
            return replay(prepared, engine=self._engine_name, fold=self._fold).step_ns
        graph = prepared.graph if prepared.folded is None else prepared.folded.graph
        try:
            return predicted_step_ns(graph, self._simulate(prepared, copy=False))
        except DeadlockError:
            if prepared.folded is None:
                raise
            return replay(prepared.graph, engine=self._engine_name, fold=False).step_ns

    def screen(self, candidates: I8, *, keep: int = 8) -> tuple[ScreenedCandidate, ...]:
        """Returns the ``keep`` best rows of durations, best first.

        A sweep in the base's service order estimates all rows; exact replays check the best.
        Where no sweep is possible, all rows are replayed exactly.
        """
        rows = np.atleast_2d(np.asarray(candidates, dtype=np.int64))
        estimates = self.estimate(rows)
        exact: dict[int, int] = {}
        if estimates is None:
            exact = {row: self.step_ns(work_ns) for row, work_ns in enumerate(rows)}
            estimates = np.array(list(exact.values()), dtype=np.int64)
        best = np.argsort(estimates, kind="stable")[:keep].tolist()
        exact |= {row: self.step_ns(rows[row]) for row in best if row not in exact}
        return tuple(
            ScreenedCandidate(
                candidate=row, estimated_step_ns=int(estimates[row]), step_ns=exact[row]
            )
            for row in sorted(best, key=lambda row: (exact[row], row))
        )

    def _prepare(
        self, change: Graph | ArrayLike | None, touched: ArrayLike | None
    ) -> _ChangedDurations | Graph:
        """Verifies a change. Returns a Graph if it has to be replayed as a whole."""
        if isinstance(change, Graph):
            if not _differs_in_durations_only(self.base, change):
                verify(change)
                return change
            graph = change
        elif change is None:
            graph = self.base
        else:
            graph = self.base.with_work_ns(_new_durations(self.base, change, touched))
        if graph is not self.base:
            verify_durations(graph, self.base)
        if self._folded is None:
            return _ChangedDurations(graph, None)
        folded_work_ns = self._folded.fold_work_ns(graph.ops.work_ns)
        if folded_work_ns is None:
            return graph  # ranks of one class change differently: other classes
        return _ChangedDurations(graph, self._folded.with_work_ns(folded_work_ns))

    def _simulate(self, prepared: _ChangedDurations, *, copy: bool) -> Engine:
        engine = self._whole_engine if prepared.folded is None else self._folded_engine
        assert engine is not None

        def simulate(graph: Graph, num_windows: int = 1) -> OpTimes:
            op_times = engine(graph, num_windows)
            # The Timeline of a single window keeps the arrays, which the next replay overwrites.
            return op_times.copy() if copy and num_windows == 1 else op_times

        return refusing_deadlocks(simulate, num_ops=self.base.num_ops)

    def estimate(self, candidates: I8) -> I8 | None:
        """Estimates the step for each row of durations by a sweep in the base's service order;
        None where the kernel is missing or the order unknown. A sweep gives the mean step of the
        window, and a replay of recorded steps their median: the base's ratio of both holds for all
        rows."""
        rows = np.atleast_2d(np.asarray(candidates, dtype=np.int64))
        if not is_native_built() or self._engine_name == "reference":
            return None
        folded_rows = None if self._folded is None else self._folded.fold_work_ns(rows)
        order = self._order(is_folded=folded_rows is not None)
        if order is None:
            return None
        swept_ns = order.step_ns(rows if folded_rows is None else folded_rows)
        base = self.base if folded_rows is None or self._folded is None else self._folded.graph
        base_ns = int(order.step_ns(base.ops.work_ns)[0])
        if base_ns in (0, self._base_step_ns):
            return swept_ns
        return np.asarray(np.rint(swept_ns * (self._base_step_ns / base_ns)), dtype=np.int64)

    @cached_property
    def _base_step_ns(self) -> int:
        return self.step_ns()

    def _order(self, *, is_folded: bool) -> FixedOrder | None:
        if is_folded not in self._orders:
            graph = self._folded.graph if is_folded and self._folded is not None else self.base
            try:
                self._orders[is_folded] = FixedOrder(graph)
            except ValueError:
                self._orders[is_folded] = None
        return self._orders[is_folded]


@dataclass(frozen=True, slots=True)
class _ChangedDurations:
    """A graph with the structure of the base, folded as the base is."""

    graph: Graph
    folded: FoldedGraph | None


class _CachingEngine:
    """An engine for graphs of one structure. The kernel prepares each number of windows once."""

    def __init__(self, base: Graph, name: EngineName) -> None:
        self._base = base
        self._simulate = find_engine(name)
        self._is_native = name != "reference" and is_native_built()
        self._replayers: dict[int, Replayer] = {}
        self.num_reused_ops = 0

    def __call__(self, graph: Graph, num_windows: int = 1) -> OpTimes:
        if not self._is_native:
            return self._simulate(graph, num_windows)
        if num_windows not in self._replayers:
            from augury.replay.kernel import Replayer  # noqa: PLC0415

            self._replayers[num_windows] = Replayer(self._base, num_windows)
        replayer = self._replayers[num_windows]
        op_times = replayer.simulate_change(graph.ops.work_ns)
        self.num_reused_ops = replayer.num_reused_ops
        return op_times


def _new_durations(base: Graph, change: ArrayLike, touched: ArrayLike | None) -> I8:
    given = np.asarray(change, dtype=np.int64)
    if touched is None:
        if given.shape != (base.num_ops,):
            raise UsageError(
                f"there are {given.size} durations for {base.num_ops} operations",
                remedy="pass one duration per operation, or name the operations with touched=",
            )
        return given
    ops = np.asarray(touched, dtype=np.int64)
    if given.shape != ops.shape or ((ops < 0) | (ops >= base.num_ops)).any():
        raise UsageError(
            f"there are {given.size} durations for {ops.size} touched operations"
            f" of a graph with {base.num_ops}",
            remedy="pass one duration per touched operation, and ids of operations of the graph",
        )
    work_ns = base.ops.work_ns.copy()
    work_ns[ops] = given
    return work_ns


def _differs_in_durations_only(base: Graph, changed: Graph) -> bool:
    if changed is base:
        return True
    for entry in fields(Graph):
        if entry.name in ("ops", "meta", "ledger"):
            continue
        mine, other = getattr(base, entry.name), getattr(changed, entry.name)
        if mine is not other and mine != other:
            return False
    return all(
        name == "work_ns" or np.array_equal(mine, getattr(changed.ops, name))
        for name, mine in base.ops.columns()
    )
