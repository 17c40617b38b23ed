"""Decides which mode of training a step uses: trials of a plan, their outcome, and re-planning.

All ranks hold the same decision. Rank 0 makes it and sends it as a ControlMessage.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from augury.core.plan.plan import Plan, PlanSection, communication_of
from augury.core.plan.plan_board import board
from augury.core.plan.plan_file import decode_plan, encode_plan, plan_digest
from augury.core.plan.plan_status import PlanStatus, Replan, TrainingMode, TrialResult
from augury.runtime.meter import Meter
from augury.runtime.plan_reports import (
    bucket_sizes,
    refuse_plan,
    section_statuses,
    section_words,
    trial_summary,
    why_dropped,
    why_no_trial,
)
from augury.runtime.replan import Replanner
from augury.runtime.say import say
from augury.runtime.trial import Trial, TrialRules
from augury.runtime.trial_modes import (
    PARTS_PER_TRIAL,
    STOCK,
    StepMode,
    left_out_first,
    mode_of_time,
    parts_of,
    whole_mode,
    winner_of,
    without,
)


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision of rank 0: the verdict of a trial, or the outcome of a search for a plan."""

    verdict: TrialResult | None = None
    plan: str = ""
    """The new plan, as in its file; empty where the search found no better one."""
    reason: str = ""
    """Why there was a search."""


class PlanDecision:
    """The plan in use, its trial, and the mode of the next step. ``rules`` None: no trial."""

    def __init__(
        self, rank: int, rules: TrialRules | None, *, replan: bool, searches_here: bool
    ) -> None:
        self._rank, self._rules = rank, rules
        self._may_replan, self._searches_here = replan, searches_here
        self.plan: Plan | None = None
        """The plan that is followed or on trial, whatever the current mode."""
        self.caps_bytes: tuple[int, ...] = ()
        """Bucket sizes of mode BUCKETS; empty where that mode is not available."""
        self.target = STOCK
        """The mode from the next exchange on, unless a trial is running."""
        self.trial: Trial | None = None
        self._whole = STOCK
        """The mode with everything of the plan that all ranks can apply."""
        self._full = STOCK
        """The same before trials left parts out."""
        self._untried: list[PlanSection] = []
        """Parts of the plan that no trial has left out yet."""
        self._refused: dict[PlanSection, str] = {}
        self._replanner: Replanner | None = None
        self._outbox = b""

    def mode_at(self, step: int) -> StepMode:
        return self.target if self.trial is None else self.trial.mode_of(step)

    def choose_stock(self) -> None:
        self.trial, self.target, self._untried = None, STOCK, []

    def refuse(self, reason: str) -> None:
        self.plan = None
        self.choose_stock()
        refuse_plan(reason, is_said=self._rank == 0)

    def close(self) -> None:
        if self._replanner is not None:
            self._replanner.close()
        self.trial = self.plan = None

    def prepare(self, plan: Plan, refused: Mapping[PlanSection, str]) -> None:
        """Keeps stock DDP while the sections of the plan are prepared."""
        self.choose_stock()
        self.plan, self._refused = plan, {**refused}
        status = board.status or PlanStatus()
        if not status.digest:
            status = msgspec.structs.replace(status, digest=plan_digest(plan))
        self._publish(
            status,
            is_settled=False,
            is_followed=False,
            is_on_trial=True,
            has_trial=self._rules is not None and why_no_trial(plan, refused) is None,
        )

    def take(
        self,
        plan: Plan,
        *,
        from_step: int,
        can_change_buckets: bool,
        refused: Mapping[PlanSection, str] | None = None,
    ) -> None:
        """Tries the plan, or follows it where no trial is due; ``refused``: its sections that no
        rank applies, with reasons."""
        self.plan, self.caps_bytes, self._refused = plan, (), {**(refused or {})}
        agreed = [one for one in plan.applied if one not in self._refused]
        if can_change_buckets and PlanSection.COMMUNICATION in agreed:
            self.caps_bytes = communication_of(plan).bucket_caps_bytes or best_caps(plan)
        self._whole = self._full = whole_mode(plan, agreed)
        self._untried = left_out_first(plan, self._whole)
        status = board.status or PlanStatus()
        if not status.digest:
            status = msgspec.structs.replace(status, digest=plan_digest(plan))
        reason = why_no_trial(plan, self._refused) if self._rules is not None else None
        if self._rules is None or reason is not None or self._whole == STOCK:
            self.trial, self.target = None, self._whole
            self._publish(
                status,
                is_followed=True,
                from_step=from_step,
                has_trial=self._rules is not None and reason is None,
                why_no_trial=reason,
                is_on_trial=False,
            )
            self._report_followed(reason)
            self._observe()
            return
        self._begin_trial(from_step)
        self._publish(status, is_followed=False, is_on_trial=True, has_trial=True)

    def _begin_trial(self, from_step: int) -> None:
        """Starts a trial that leaves out the next parts of the plan."""
        assert self.plan is not None
        assert self._rules is not None
        parts, self._untried = self._untried[:PARTS_PER_TRIAL], self._untried[PARTS_PER_TRIAL:]
        modes = [STOCK, self._whole, *(without(self._whole, part) for part in parts)]
        if not self._whole.sections and self.caps_bytes:
            modes.append(StepMode(exchange=TrainingMode.BUCKETS))
        self.trial = Trial([*dict.fromkeys(modes)], from_step, self._rules, plan_digest(self.plan))
        self.target = STOCK

    def decide(self, step: int, meter: Meter) -> None:
        """Called on rank 0 at the end of a step. Decisions wait for the next message."""
        if self._rank:
            return
        if self.trial is not None:
            self.trial.note_end(step, time.perf_counter_ns())
            verdict = self.trial.verdict(step)
            if verdict is not None:
                self._outbox = msgspec.json.encode(ControlMessage(verdict=verdict))
        elif self._replanner is not None and not self._outbox and not board.is_recording:
            found = self._replanner.look(meter)
            if found is not None:
                content = "" if found.plan is None else encode_plan(found.plan).decode()
                self._outbox = msgspec.json.encode(
                    ControlMessage(plan=content, reason=found.reason)
                )

    def next_message(self) -> bytes:
        """Returns the decision to send, once; empty: none."""
        message, self._outbox = self._outbox, b""
        return message

    def receive(self, content: bytes, *, from_step: int) -> tuple[Plan, str] | None:
        """Applies a message of rank 0. Returns a new plan and the reason for it, if there is one:
        the caller checks whether it fits and calls ``note_new``."""
        message = msgspec.json.decode(content, type=ControlMessage)
        status = board.status or PlanStatus()
        if message.verdict is not None:
            self._apply_verdict(message.verdict, status, from_step)
        elif not message.plan:
            in_vain = Replan(step=from_step, reason=message.reason)
            board.status = msgspec.structs.replace(status, replans=[*status.replans, in_vain])
        else:
            return decode_plan(message.plan.encode()), message.reason
        return None

    def note_new(self, plan: Plan, reason: str, *, from_step: int) -> None:
        """A plan that was found in the job is taken."""
        status = board.status or PlanStatus()
        new = Replan(step=from_step, reason=reason, digest=plan_digest(plan))
        board.status = msgspec.structs.replace(status, replans=[*status.replans, new])

    def _apply_verdict(self, verdict: TrialResult, status: PlanStatus, from_step: int) -> None:
        self.trial, self.target = None, winner_of(verdict)
        if self._rank == 0:
            say(trial_summary(verdict, self._full))
        trials = [*status.trials, verdict]
        if self.target == STOCK and self._untried:
            self._leave_out_slowest(verdict)
            self._begin_trial(from_step)
            self._publish(status, is_followed=False, is_on_trial=True, trials=trials)
            return
        is_others = self.target.exchange not in (TrainingMode.STOCK, self._whole.exchange)
        is_followed = self.plan is not None and self.target != STOCK and not is_others
        self._publish(
            status,
            is_followed=is_followed,
            from_step=from_step if is_followed else None,
            is_on_trial=False,
            trials=trials,
            reason=None if is_followed else why_dropped(verdict),
        )
        self._observe()

    def _leave_out_slowest(self, verdict: TrialResult) -> None:
        """What lost least is the plan of the next trial, which leaves out other parts."""
        best = max(verdict.times[1:], key=lambda one: one.gain_pct)
        self._whole = mode_of_time(best)
        left = parts_of(self._whole)
        self._untried = [part for part in self._untried if part in left]

    def _observe(self) -> None:
        """From now on, rank 0 checks whether conditions are still those of the plan. A plan for a
        memory limit stays: no trial could compare a new one with stock DDP."""
        is_due = self._rank == 0 and self.target.exchange is TrainingMode.PLANNED
        if not self._may_replan or not is_due:
            return
        assert self.plan is not None
        if self.plan.memory_limit_bytes is None:
            self._replanner = self._replanner or Replanner(is_here=self._searches_here)
            self._replanner.watch(self.plan)

    def _report_followed(self, why_untried: str | None) -> None:
        if self._rank or self.plan is None:
            return
        words = []
        if self.target.exchange is TrainingMode.BUCKETS:
            words.append(bucket_sizes(self.caps_bytes))
        elif self.target.exchange is TrainingMode.PLANNED:
            order = communication_of(self.plan).order
            words.append(f"{order.policy}, {len(order.pieces)} pieces a step")
        words += section_words(self.plan, self._refused)
        if why_untried is not None:
            words.append(f"followed without a trial: {why_untried}")
        say(f"follows the plan: {'; '.join(words)}")

    def _publish(
        self,
        status: PlanStatus,
        *,
        reason: str | None = None,
        is_settled: bool | None = None,
        **changes: Any,
    ) -> None:
        is_settled = self.trial is None if is_settled is None else is_settled
        board.status = msgspec.structs.replace(
            status,
            mode=self.target.exchange,
            reason=reason,
            sections=section_statuses(
                self.plan,
                self.target,
                self._refused,
                otherwise=(reason or "the trial in the job left it out") if is_settled else None,
            ),
            **changes,
        )
        board.is_trial_due = not is_settled


def best_caps(plan: Plan) -> tuple[int, ...]:
    """Returns the best list of bucket sizes for stock DDP; empty where it is DDP's default."""
    from augury.schedule.policies.bucket_list import BucketList, bucket_caps  # noqa: PLC0415
    from augury.schedule.policies.registry import find_policy  # noqa: PLC0415

    with suppress(Exception):
        problem = communication_of(plan).problem
        best = BucketList().compile(problem)
        if best.pieces != find_policy("ddp").compile(problem).pieces:
            return bucket_caps(problem, best) or ()
    return ()
