"""Plans anew when the network or backward is no longer what the plan was made for."""

from __future__ import annotations

from dataclasses import replace

from augury.core.plan import Plan
from augury.core.plan_file import encode_plan
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
        try:
            from augury.schedule.policies import find_policy  # noqa: PLC0415

            order = find_policy(self._plan.order.policy).compile(problem)
        except Exception as error:
            say(f"cannot plan anew: {error}")
            self._can = False
            return None
        new = replace(self._plan, problem=problem, order=order, foretold=None)
        self.size_bytes = len(encode_plan(new))
        say(
            f"planned anew: {self._drift.why}; {len(order.pieces)} pieces instead of "
            f"{len(self._plan.order.pieces)}"
        )
        return new
