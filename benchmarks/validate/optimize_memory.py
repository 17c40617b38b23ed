"""Peak memory of programs and of plans: predicted from one recorded run, and measured by torch's
profiler in runs of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_file import save_plan
from augury.core.plan.sections import AccumulateSection, PrecisionSection, RecomputeSection
from augury.predict.opened_run import open_source
from augury.predict.plan_prediction import open_planned
from benchmarks.validate.checks import Check
from benchmarks.validate.job import ROOT, JobError, end, environment
from benchmarks.validate.optimize_job import BUDGET
from benchmarks.validate.optimize_rows import SUITE
from benchmarks.validate.optimize_settings import MemoryCase, Variation, words_of
from benchmarks.validate.predicted import Predicted, ask
from benchmarks.validate.rows import Row

KIND = "memory"
RECORDED_STEPS, MEASURED_STEPS = 28, 16
COUNTED_STEPS = 4
"""Steps at the end of a measured run, in which a plan is followed."""
TIMEOUT_S = 240
LIMIT = 0.7
"""Memory that a plan may need, relative to the measured peak of the default."""
LIMITED = "limited"
PREDICTED, PLAN = "predicted.json", "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The peak of the rank that holds most."""

    size_bytes: int
    refusal: str | None
    """Reason why the program did not follow the plan it was given."""


def measure(case: MemoryCase, folder: Path) -> None:
    """Records the program as it is; measures the peak of every variation, and of the plan for less
    memory. Afterwards ``folder`` has predicted and measured peaks of each."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = folder / "run"
    augury = ["-m", "augury", "run", "--out", str(run), "--", sys.executable]
    own = words_of(case.program, case.setting.model, RECORDED_STEPS, case.setting.options)
    _start([*augury, *_torchrun(), *own], folder / "log-run.txt")
    for one in case.variations:
        place = folder / one.name
        place.mkdir()
        plan = _plan_of(one, run)
        if plan is not None:
            save_plan(plan, place / PLAN)
        # Accumulation is advice to the program, whose options follow it.
        is_followed = plan is not None and plan.accumulate is None
        _measure_one(case, one, place, is_followed=is_followed)
        under = () if plan is None else ("--plan", str(place / PLAN))
        told = _answered(ask("replay", run, *under))
        (place / PREDICTED).write_text(json.dumps(told))
    if case.limit_by:
        _limit(case, folder)
    (folder / "setting.json").write_text(json.dumps(asdict(case.setting), indent=1))


def rows_of(case: MemoryCase, folder: Path) -> Iterator[Row]:
    for one in (*case.variations, *([Variation(name=LIMITED)] if case.limit_by else [])):
        predicted = _predicted(folder / one.name)
        found = _measured(folder / one.name)
        yield Row(
            suite=SUITE,
            case=f"{case.name}/{one.name}",
            kind=KIND,
            measured_ns=None,
            predicted_ns=None,
            interval_ns=None,
            noise_pct=None,
            measured_bytes=None if found is None else found.size_bytes,
            predicted_bytes=predicted["peak_bytes"],
            trouble=predicted["trouble"] or (None if found is None else found.refusal),
        )


def limit_checks(case: MemoryCase, folder: Path) -> Iterator[Check]:
    """Checks that the plan for less memory stays under its limit where it is applied."""
    if not case.limit_by:
        return
    limited = _predicted(folder / LIMITED)
    found = _measured(folder / LIMITED)
    over_pct = None
    if found is not None and found.refusal is None:
        over_pct = round(100 * max(0.0, found.size_bytes / limited["limit_bytes"] - 1), 2)
    yield Check(
        suite=SUITE,
        case=f"{case.name}/over-limit",
        kind=KIND,
        value=over_pct,
        unit="%",
        at_most=0.0,
        trouble=limited["trouble"] or (None if found is None else found.refusal),
    )


def _limit(case: MemoryCase, folder: Path) -> None:
    """Finds a plan that needs less memory than the default, and measures it."""
    place = folder / LIMITED
    place.mkdir()
    default = _measured(folder / case.variations[0].name)
    if default is None:
        raise JobError(f"{case.name}: the peak of the default was not measured")
    limit_bytes = round(LIMIT * default.size_bytes)
    words = ("--memory-limit", str(limit_bytes), "--only", case.limit_by)
    found = ask("optimize", folder / "run", *words, "--budget", BUDGET, "-o", str(place / PLAN))
    told: dict[str, Any] = {"peak_bytes": None, "trouble": found.trouble or "no plan was found"}
    if (place / PLAN).exists():
        _measure_one(case, Variation(name=LIMITED), place, is_followed=True)
        told = _answered(ask("replay", folder / "run", "--plan", str(place / PLAN)))
    (place / PREDICTED).write_text(json.dumps(told | {"limit_bytes": limit_bytes}))


def _plan_of(one: Variation, run: Path) -> Plan | None:
    """Returns the plan that makes a variation of the recorded run; None for the run as it is."""
    sections: dict[PlanSection, Any] = {}
    if one.modules:
        sections[PlanSection.RECOMPUTE] = RecomputeSection(modules=one.modules)
    if one.is_half:
        sections[PlanSection.PRECISION] = PrecisionSection()
    if one.micro_batches > 1:
        section = AccumulateSection(num_micro_batches=one.micro_batches)
        sections[PlanSection.ACCUMULATE] = section
    if not sections:
        return None
    planned = open_planned(open_source(run))
    return Plan(
        num_ranks=planned.num_ranks,
        parameters_digest=planned.parameters_digest,
        run_digest=planned.run_digest,
        applied=tuple(sections),
        **{name.value: section for name, section in sections.items()},
    )


def _measure_one(case: MemoryCase, one: Variation, place: Path, *, is_followed: bool) -> None:
    """Runs the program under torch's profiler, which writes the peaks of its ranks."""
    options = case.setting.options if one.options is None else one.options
    words = words_of(case.program, case.setting.model, MEASURED_STEPS, options)
    under = ["--plan", str(place / PLAN)] if is_followed else []
    program = [word for word in words if word != "-m"]
    measured = ["-m", "benchmarks.testbed.allocations", str(place), *under, *program]
    _start([*_torchrun(), *measured], place / "log.txt")


def _torchrun() -> list[str]:
    return [
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        "--local-addr=127.0.0.1",
    ]


def _start(words: list[str], log: Path) -> None:
    told = environment(None, 0) | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w") as file:
        running = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = running.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise JobError(f"{log} took longer than {TIMEOUT_S} s") from error
        finally:
            end(running)
    if code:
        raise JobError(f"{log} ended with {code}: {log.read_text(errors='replace')[-800:]}")


def _answered(found: Predicted) -> dict[str, Any]:
    ranks = (found.answer or {}).get("ranks", [])
    peaks = [one["peak_memory_bytes"] for one in ranks if one.get("peak_memory_bytes")]
    trouble = found.trouble or (None if peaks else "no peak is predicted")
    return {"peak_bytes": max(peaks, default=None), "trouble": trouble}


def _predicted(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / PREDICTED).read_text())
    return found


def _measured(place: Path) -> Peak | None:
    found = [json.loads(path.read_text()) for path in sorted(place.glob("peak-*.json"))]
    if not found:
        return None
    return Peak(
        size_bytes=max(max(one["step_peaks_bytes"][-COUNTED_STEPS:]) for one in found),
        refusal=_refusal(found[0]["plan"]),
    )


def _refusal(status: dict[str, Any] | None) -> str | None:
    if status is None:
        return None
    refused = [one["reason"] for one in status["sections"] if not one["is_applied"]]
    if not status["is_followed"] or refused:
        return str(status["reason"] or "; ".join(map(str, refused)) or "the plan was not followed")
    first = status["from_step"]
    is_early = first is not None and first <= MEASURED_STEPS - COUNTED_STEPS
    return None if is_early else "the plan was followed too late to be measured"
