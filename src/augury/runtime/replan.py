"""Plans anew when the network or backward is no longer what the plan was made for."""

from __future__ import annotations

from dataclasses import replace

from augury.core.plan import Plan
from augury.core.plan_file import encode_plan
from augury.core.problem import Problem
from augury.runtime.meter import Meter
from augury.runtime.monitor import Drift, observe
from augury.runtime.say import say


class Replanner:
    def __init__(self, plan: Plan, meter: Meter) -> None:
        self._plan = plan
        self._meter = meter
        self._drift = Drift(plan)
        self._seen = meter.step
        self._can = True
        self.size_bytes = 0
        """Of the plan that was made last, as it is sent."""

    def new_plan(self) -> Plan | None:
        """If what was seen since the last call asks for one."""
        self.size_bytes = 0
        if not self._can:
            return None
        for log in self._meter.log:
            if log.step > self._seen and log.step < self._meter.step:
                self._seen = log.step
                self._drift.note(observe(log, self._plan))
        problem = self._drift.changed_problem()
        if problem is None:
            return None
        why, old = self._drift.why, self._plan.order
        try:
            new, is_better = self._made_for(problem)
        except Exception as error:
            say(f"cannot plan anew: {error}")
            self._can = False
            return None
        pieces = f"{len(new.order.pieces)} pieces instead of {len(old.pieces)}"
        say(f"planned anew: {why}; {pieces if is_better else 'no better order was found'}")
        self.size_bytes = len(encode_plan(new))
        return new

    def _made_for(self, problem: Problem) -> tuple[Plan, bool]:
        """By the same policy; and whether its order is better than the one there is."""
        from augury.schedule.evaluate import step_ns  # noqa: PLC0415
        from augury.schedule.policies import find_policy  # noqa: PLC0415

        order = find_policy(self._plan.order.policy).compile(problem)
        is_better = step_ns(problem, order) < step_ns(problem, self._plan.order)
        order = order if is_better else self._plan.order
        return replace(self._plan, problem=problem, order=order, foretold=None), is_better
