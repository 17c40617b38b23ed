"""Rows of predicted and measured steps of a job under several policies, and the quality of the
choice.

Predictions are compared as they were made: they are not scaled by later measurements.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.validate.measured import Measured, leftover_hooks, of_blocks
from benchmarks.validate.policy_job import LAYOUTS, TRIAL, TRIAL_BUCKETS
from benchmarks.validate.policy_settings import PolicyCase
from benchmarks.validate.rows import Row

SUITE = "schedule"
STOCK = "ddp"
OURS = "augury"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one case, by policy."""

    case: str
    measured: dict[str, Measured]
    """Measurements by label: policies that make DDP use the same buckets have one label."""
    labels: dict[str, str]
    """The label under which each policy was measured."""
    predicted: dict[str, dict[str, Any]]
    ratio: float
    bound_ns: int
    num_ranks: int
    leftover_hooks: int = 0
    """Number of runtime hooks that were still installed in blocks of stock DDP."""
    trial: dict[str, Any] | None = None
    """Result of the trial inside the job, as ``core.plan_status.TrialResult``."""

    def of(self, policy: str) -> Measured:
        return self.measured[self.labels.get(policy, policy)]

    @property
    def best_bucket(self) -> Measured:
        """The best single bucket size: the planned one, or the one that pilot steps chose."""
        return min((self.of(name) for name in ("ddp-best", "ddp-pilot")), key=_step_ns)

    def gain_pct(self, over: Measured) -> float:
        return 100 * (1 - self.of(OURS).step_ns / over.step_ns)

    @property
    def slower_than_stock_pct(self) -> float:
        """Slowdown of our plan over stock DDP, beyond the noise of the two."""
        return _slower_pct(self.of(OURS), self.of(STOCK))

    @property
    def trial_slower_pct(self) -> float | None:
        """Slowdown of the mode that the trial chose over stock DDP, from the rounds in which
        policies alternate."""
        if self.trial is None:
            return None
        winner = self.trial["winner"]
        if winner == "stock":
            return 0.0
        if winner == "planned" or self.predicted[OURS]["is_stock_ddp"]:
            return self.slower_than_stock_pct
        return _slower_pct(self.of(TRIAL_BUCKETS), self.of(STOCK))

    @property
    def picks_winner(self) -> bool:
        """Whether the policy predicted to be fastest is the fastest measured one, or within the
        noise of the two."""
        chosen = self.of(min(self.predicted, key=lambda name: int(self.predicted[name]["step_ns"])))
        fastest = min(self.measured.values(), key=_step_ns)
        band_pct = max(2.0, 2 * max(chosen.noise_pct, fastest.noise_pct))
        return chosen.step_ns <= (1 + band_pct / 100) * fastest.step_ns

    @property
    def is_below_bound(self) -> bool:
        """Whether a measured policy was faster than the bound, beyond its noise."""
        fastest = min(self.measured.values(), key=_step_ns)
        return fastest.step_ns * (1 + 2 * fastest.noise_pct / 100) < self.bound_ns


def _step_ns(one: Measured) -> int:
    return one.step_ns


def _slower_pct(one: Measured, other: Measured) -> float:
    """Slowdown beyond noise; negative if there is none."""
    return 100 * (one.step_ns / other.step_ns - 1) - one.noise_pct - other.noise_pct


def outcome_of(case: PolicyCase, folder: Path) -> Outcome:
    answers = {
        policy: json.loads((folder / f"{policy}.predicted.json").read_text())
        for policy in case.policies
    }
    ours = answers[OURS]
    trial = folder / TRIAL
    return Outcome(
        case=case.name,
        measured={
            label: own
            for label, own in of_blocks(folder).items()
            if not label.startswith("pilot-") and label != "trial"
        },
        labels=json.loads((folder / LAYOUTS).read_text()),
        predicted={policy: answer["policies"][0] for policy, answer in answers.items()},
        ratio=float(ours["ratio"]),
        bound_ns=int(ours["bound_ns"]),
        num_ranks=case.setting.num_ranks,
        leftover_hooks=leftover_hooks(folder),
        trial=json.loads(trial.read_text()) if trial.exists() else None,
    )


def rows_of(found: Outcome) -> list[Row]:
    """Returns a row for each measured configuration. Stock DDP was recorded, so its row is a replay
    and no change: its kind is ``stock``."""
    rows = []
    told: set[str] = set()
    # Stock DDP first: policies measured as stock DDP share its row.
    for policy in sorted(found.predicted, key=lambda name: name != STOCK):
        answer = found.predicted[policy]
        label = found.labels[policy]
        if label in told:
            continue
        told.add(label)
        interval = answer["interval_ns"]
        rows.append(
            Row(
                suite=SUITE,
                case=f"{found.case}/{policy}",
                kind="stock" if label == found.labels[STOCK] else "policy",
                measured_ns=found.of(policy).step_ns,
                predicted_ns=int(answer["step_ns"]),
                interval_ns=None if interval is None else (interval[0], interval[1]),
                noise_pct=found.of(policy).noise_pct,
                num_steps=found.of(policy).num_steps,
                baseline_ns=found.of(STOCK).step_ns,
            )
        )
    return rows
