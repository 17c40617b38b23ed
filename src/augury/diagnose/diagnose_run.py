"""Diagnoses a run: verdict, waterfall, and findings ranked by gain."""

from __future__ import annotations

from augury.core.results.diagnosis import Confidence, Diagnosis, Finding
from augury.diagnose.detectors.registry import DETECTORS
from augury.diagnose.examined_run import ExaminedRun
from augury.diagnose.verdict import judge
from augury.diagnose.waterfall import gain_alone_ns, make_waterfall
from augury.predict.opened_run import OpenedRun
from augury.predict.prediction import warnings_of

GENERAL = {
    "exposed-communication": (
        "buckets-too-small", "bucket-too-large", "first-bucket", "parameter-order", "slow-link",
        "slow-network",
    ),
    "core-contention": ("straggler-compute",),
    "input": ("straggler-input", "straggler-host", "straggler-compute"),
    "host-gap": ("straggler-host", "straggler-input", "straggler-compute"),
}  # fmt: skip
"""Kinds that also show causes of other, more specific kinds."""
EXPLAINED = 0.5
"""A general finding is left out if a specific one has at least this share of its gain."""

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
        parts = make_waterfall(run)
        findings = _ranked(found)
        bound, verdict = judge(
            parts,
            findings,
            step_ns=run.step_ns,
            gain_alone_ns=lambda names: gain_alone_ns(run, names),
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


def _ranked(found: list[Finding]) -> list[Finding]:
    """Largest gains first, those of less sure findings counted in part; findings without a
    predicted gain come last."""
    gains = {one.kind: one.gain_pct or 0.0 for one in found}
    kept = [
        one
        for one in found
        if not any(
            gains.get(kind, 0.0) > 0 and gains[kind] >= EXPLAINED * (one.gain_pct or 0.0)
            for kind in GENERAL.get(one.kind, ())
        )
    ]
    return sorted(kept, key=lambda one: -_weighted_gain(one))


def _weighted_gain(one: Finding) -> float:
    return -1.0 if one.gain_pct is None else one.gain_pct * WEIGHTS[one.confidence]
