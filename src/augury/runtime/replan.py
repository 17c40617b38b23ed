"""Re-plans in the job when the network or backward has drifted from the plan's assumptions.

Rank 0 observes. A separate process searches, so that training does not wait. The trial in the job
decides whether the new plan is followed. After each search there is a pause, twice as long every
time, and the observed conditions become the reference: conditions that alternate do not make plans
alternate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from augury.core.plan.plan import CommunicationSection, Plan, communication_of
from augury.core.plan.plan_file import decode_plan, encode_plan
from augury.core.plan.problem import Problem
from augury.runtime.meter import Meter
from augury.runtime.monitor import Drift, observe
from augury.runtime.say import say

PAUSE_STEPS = 100
WORTH = 0.97
"""A new plan must be predicted below this share of the step under the old order."""
_DROPPED_VARIABLES = ("AUGURY_RECORD", "AUGURY_PLAN", "LD_PRELOAD", "PYTHONPATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of a search."""

    plan: Plan | None
    """None: no better order was found."""
    reason: str
    """Why there was a search."""


class Replanner:
    """Detects drift and searches for a better plan. ``is_here``: search in this thread."""

    def __init__(self, *, is_here: bool = False) -> None:
        self._is_here = is_here
        self._plan: Plan | None = None
        self._section: CommunicationSection | None = None
        self._drift: Drift | None = None
        self._seen = 0
        self._quiet_until = 0
        self._pause_steps = PAUSE_STEPS
        self._search: subprocess.Popen[bytes] | None = None
        self._problem: Problem | None = None
        self._why = ""

    def watch(self, plan: Plan) -> None:
        """Observes the conditions of this plan from now on."""
        self.close()
        self._plan, self._section = plan, communication_of(plan)
        self._drift = Drift(self._section.problem)

    def close(self) -> None:
        if self._search is not None:
            self._search.kill()
            self._search.communicate()
            self._search = None

    def look(self, meter: Meter) -> Answer | None:
        """Returns the outcome of a finished search, if there is one. Never waits."""
        try:
            return self._look(meter)
        except Exception as error:
            say(f"re-planning failed and is switched off: {error}")
            self.close()
            self._plan = None
            return None

    def _look(self, meter: Meter) -> Answer | None:
        plan, section, drift = self._plan, self._section, self._drift
        if plan is None or section is None or drift is None:
            return None
        if self._search is not None:
            return self._found()
        for log in meter.log:
            if self._seen < log.step < meter.step:
                # The first steps after a change are not representative.
                is_settled = log.step >= self._quiet_until
                if is_settled and len(log.issued_ns) == len(section.order.pieces):
                    drift.note(observe(log, section))
                self._seen = log.step
        problem = drift.changed_problem()
        if problem is None:
            return None
        self._why, self._problem = drift.why, problem
        self._drift = Drift(problem)
        self._quiet_until = meter.step + self._pause_steps
        self._pause_steps *= 2
        if self._is_here:
            return self._answer(better_plan(plan, problem))
        self._search = _started(plan, problem)
        return None

    def _found(self) -> Answer | None:
        search = self._search
        assert search is not None
        if search.poll() is None:
            return None
        self._search = None
        content, trouble = search.communicate()
        if search.returncode:
            raise RuntimeError(trouble.decode(errors="replace").strip()[-300:])
        return self._answer(decode_plan(content) if content.strip() else None)

    def _answer(self, new: Plan | None) -> Answer:
        if new is None:
            say(f"{self._why}: no better order was found")
        else:
            num_pieces = len(communication_of(new).order.pieces)
            say(f"{self._why}: new plan with {num_pieces} pieces per step")
        return Answer(plan=new, reason=self._why)


def better_plan(plan: Plan, problem: Problem) -> Plan | None:
    """Returns a plan for the problem, made by the same policy; None where it gains too little."""
    from augury.schedule.evaluate import step_ns  # noqa: PLC0415
    from augury.schedule.policies.registry import find_policy  # noqa: PLC0415
    from augury.schedule.search.candidates import CandidateOrder, piece_candidates  # noqa: PLC0415

    section = communication_of(plan)
    ratios = section.replay_ratios

    def score(one: CandidateOrder) -> float:
        return step_ns(problem, one.order) * ratios.get(one.family, 1.0)

    lanes = section.order.lanes
    policy = find_policy(section.order.policy)
    if ratios:
        every = piece_candidates(problem, plan.num_ranks, policy)
    else:
        order = replace(policy.compile(problem), lanes=lanes)
        every = iter([CandidateOrder(family=section.family, order=order)])
    # The process groups of the ranks exist for this number of lanes only.
    fitting = [one for one in every if one.order.lanes == lanes]
    if not fitting:
        return None
    best = min(fitting, key=score)
    if score(best) > WORTH * score(CandidateOrder(family=section.family, order=section.order)):
        return None
    new = replace(section, problem=problem, order=best.order, family=best.family)
    return replace(plan, communication=new, prediction=None)


class _Asked(msgspec.Struct):
    plan: str
    problem: Problem


def _started(plan: Plan, problem: Problem) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k not in _DROPPED_VARIABLES}
    search = subprocess.Popen(
        [sys.executable, "-m", "augury.runtime.replan"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert search.stdin is not None
    with suppress(BrokenPipeError):
        search.stdin.write(
            msgspec.json.encode(_Asked(plan=encode_plan(plan).decode(), problem=problem))
        )
    search.stdin.close()
    search.stdin = None
    return search


def main() -> None:
    """Reads a plan and a problem from stdin, writes a better plan or nothing to stdout."""
    os.nice(10)
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=_Asked)
    found = better_plan(decode_plan(asked.plan.encode()), asked.problem)
    if found is not None:
        sys.stdout.buffer.write(encode_plan(found))


if __name__ == "__main__":
    main()
