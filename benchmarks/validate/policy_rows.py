"""What a job under several policies came to: rows, and how good the choice among them was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.validate.measured import Measured, of_blocks
from benchmarks.validate.policy_settings import PolicyCase
from benchmarks.validate.rows import Row

SUITE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one case: what was foretold and measured of every policy, by its name."""

    case: str
    measured: dict[str, Measured]
    foretold: dict[str, dict[str, Any]]
    ratio: float
    baseline_ns: int
    """The recorded steps, replayed as they were: what foretold ones are shares of."""
    bound_ns: int
    num_ranks: int

    @property
    def pace(self) -> float:
        """How many times as long the same steps take now as when they were recorded: minutes lie
        between on a machine that is not ours alone."""
        return self.measured["ddp"].step_ns / self.baseline_ns

    @property
    def best_bucket_ns(self) -> int:
        """The best single bucket size: what planning says, or what trying out says."""
        return min(self.measured[name].step_ns for name in ("ddp-best", "ddp-pilot"))

    @property
    def noise_pct(self) -> float:
        return max(own.noise_pct for own in self.measured.values())

    def gain_pct(self, over_ns: int) -> float:
        return 100 * (1 - self.measured["augury"].step_ns / over_ns)

    @property
    def realised(self) -> float | None:
        """How much of what lies between the best bucket size and the bound we got."""
        headroom_ns = self.best_bucket_ns - self.bound_ns * self.pace
        if headroom_ns <= 0:
            return None
        return (self.best_bucket_ns - self.measured["augury"].step_ns) / headroom_ns

    @property
    def picks_winner(self) -> bool:
        """Whether the policy foretold to be fastest is it, or within noise of it."""
        names = list(self.foretold)
        chosen = min(names, key=lambda name: int(self.foretold[name]["step_ns"]))
        fastest = min(names, key=lambda name: self.measured[name].step_ns)
        noise_pct = max(self.measured[name].noise_pct for name in (chosen, fastest))
        lead_ns = self.measured[chosen].step_ns - self.measured[fastest].step_ns
        return lead_ns <= max(2.0, 2 * noise_pct) / 100 * self.measured[fastest].step_ns


def outcome_of(case: PolicyCase, folder: Path) -> Outcome:
    answers = {
        policy: json.loads((folder / f"{policy}.foretold.json").read_text())
        for policy in case.policies
    }
    ours = answers["augury"]
    return Outcome(
        case=case.name,
        measured={
            label: own for label, own in of_blocks(folder).items() if not label.startswith("pilot-")
        },
        foretold={policy: answer["policies"][0] for policy, answer in answers.items()},
        ratio=float(ours["ratio"]),
        baseline_ns=int(ours["baseline_step_ns"]),
        bound_ns=int(ours["bound_ns"]),
        num_ranks=case.setting.num_ranks,
    )


def rows_of(found: Outcome) -> list[Row]:
    return [
        Row(
            suite=SUITE,
            case=f"{found.case}/{policy}",
            kind="policy",
            measured_ns=found.measured[policy].step_ns,
            predicted_ns=round(answer["step_ns"] * found.pace),
            interval_ns=_interval(answer["interval_ns"], found.pace),
            noise_pct=found.measured[policy].noise_pct,
            num_steps=found.measured[policy].num_steps,
            baseline_ns=found.measured["ddp"].step_ns,
        )
        for policy, answer in found.foretold.items()
    ]


def _interval(foretold: list[int] | None, pace: float) -> tuple[int, int] | None:
    return None if foretold is None else (round(foretold[0] * pace), round(foretold[1] * pace))
