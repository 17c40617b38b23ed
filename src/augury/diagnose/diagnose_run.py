"""Diagnoses a run: verdict, waterfall, and findings ranked by gain."""

from __future__ import annotations

from typing import Any

from augury.core.results.diagnosis import Confidence, Diagnosis, Finding
from augury.diagnose.detectors.registry import DETECTORS
from augury.diagnose.detectors.steps.pauses import are_loads
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.verdict import judge
from augury.diagnose.waterfall import gain_alone_ns, make_waterfall
from augury.passes.protocol import Pass
from augury.passes.removals.level_ranks import LEVEL_RANKS, SlowRanks
from augury.passes.removals.no_gaps import NO_GAPS
from augury.passes.removals.no_input_wait import NO_INPUT_WAIT
from augury.predict.opened_run import OpenedRun
from augury.predict.prediction import warnings_of

GENERAL = {
    "exposed-communication": (
        "buckets-too-small", "bucket-too-large", "first-bucket", "parameter-order", "slow-link",
        "slow-network",
    ),
    "core-contention": ("straggler-compute",),
    "launch-bound": ("input", "straggler-input", "straggler-host"),
}  # fmt: skip
"""Kinds that also show causes of other, more specific kinds."""
OF_ALL_RANKS: dict[str, Pass[Any]] = {"input": NO_INPUT_WAIT, "host-gap": NO_GAPS}
"""Kinds that also show single slow ranks, and their fixes."""
EXPLAINED = 0.5
"""A general finding is left out if a specific one has at least this share of its gain, and one of
all ranks if it loses at least this share of its gain once the slow ranks are as fast as others."""

WEIGHTS: dict[Confidence, float] = {"high": 1.0, "medium": 0.6, "low": 0.3}
"""Share of a gain that counts for the order of findings."""


def diagnose(opened: OpenedRun) -> Diagnosis:
    """Examines a run with all detectors."""
    run = ExaminedRun(opened)
    found: list[Finding] = []
    not_examined: dict[str, str] = {}
    with opened.progress("examining the run"):
        for detector in DETECTORS:
            reason = detector.reason_against(run)
            if reason:
                not_examined |= {
                    kind: reason for kind in detector.kinds if kind not in not_examined
                }
            else:
                found += detector.examine(run)
        kept = [one for one in found if not _is_of_slow_ranks(run, one, found)]
        findings = _ranked(kept, {"pause": ("input",)} if are_loads(run) else {})
        parts = make_waterfall(run, findings)
        bound, verdict = judge(
            parts,
            findings,
            step_ns=run.step_ns,
            gain_alone_ns=lambda names: gain_alone_ns(run, names, findings),
        )
    graph = run.graph
    ledger = graph.ledger.merged(run.timeline.ledger).merged(warnings_of(run.recorded))
    return Diagnosis(
        bound=bound,
        verdict=verdict,
        measured_step_ns=run.baseline.measured_step_ns,
        replayed_step_ns=run.step_ns,
        interval_ns=run.baseline.interval_ns,
        noise_pct=round(100 * run.noise, 4),
        waterfall=parts,
        findings=findings,
        not_examined=not_examined,
        ledger=list(ledger.merged(run.ledger)),
    )


def _is_of_slow_ranks(run: ExaminedRun, finding: Finding, found: list[Finding]) -> bool:
    """Whether most of a gain is that of single slow ranks, which other findings name."""
    fix = OF_ALL_RANKS.get(finding.kind)
    stragglers = [one.where.ranks for one in found if one.kind.startswith("straggler-")]
    slow = tuple(sorted({rank for ranks in stragglers for rank in ranks}))
    if fix is None or not slow or finding.gain_pct is None:
        return False
    level = run.predict((LEVEL_RANKS, SlowRanks(slow)))
    if level is None:
        return False
    left = run.predict((LEVEL_RANKS, SlowRanks(slow)), (fix, None))
    left_pct = level.gain_pct if left is None else left.gain_pct
    return left_pct - level.gain_pct <= (1 - EXPLAINED) * finding.gain_pct


def _ranked(found: list[Finding], also_general: dict[str, tuple[str, ...]]) -> list[Finding]:
    """Largest gains first, those of less sure findings counted in part; findings without a
    predicted gain come last. ``also_general`` extends GENERAL for this run."""
    general = GENERAL | also_general
    gains = {one.kind: one.gain_pct or 0.0 for one in found}
    kept = [
        one
        for i, one in enumerate(found)
        # Two detectors may find uneven batches; the first one names the rank.
        if one.kind not in (earlier.kind for earlier in found[:i])
        and not any(
            gains.get(kind, 0.0) > 0 and gains[kind] >= EXPLAINED * (one.gain_pct or 0.0)
            for kind in general.get(one.kind, ())
        )
    ]
    return sorted(kept, key=lambda one: -_weighted_gain(one))


def _weighted_gain(one: Finding) -> float:
    return -1.0 if one.gain_pct is None else one.gain_pct * WEIGHTS[one.confidence]
