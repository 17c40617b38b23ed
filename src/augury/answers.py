"""Answers of the Python interface: results with their representations and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from augury.report.answer import RunAnswer

if TYPE_CHECKING:
    from augury.core.errors import GateError
    from augury.core.plan.plan import Plan
    from augury.core.progress import Progress
    from augury.core.results.comparison import Comparison, StepSeries
    from augury.core.results.diagnosis import Diagnosis
    from augury.core.results.imported_run import ImportResult
    from augury.core.results.optimization import OptimizeResult, PlanReplayResult
    from augury.core.results.oracle import OracleResult, ValidationResult
    from augury.core.results.replay import ReplayResult, WhatIfResult
    from augury.core.results.schedule import ScheduleResult
    from augury.core.results.wire import WireResult
    from augury.core.timeline import Timeline
    from augury.optimize.optimize_run import Optimized
    from augury.oracle.fitting.validation import Validation
    from augury.oracle.predict_strategies import StrategyPrediction
    from augury.predict.schedule_assess import Assessment
    from augury.report.perfetto import Written

PathLike = str | os.PathLike[str]


class TimelineAnswer(RunAnswer):
    """An answer with a replayed timeline."""

    def __init__(
        self, result: ReplayResult, name: str, timeline: Timeline, progress: Progress
    ) -> None:
        self.result = result
        self.name = name
        self.timeline = timeline
        self._progress = progress

    def write(
        self, path: PathLike, *, force: bool = False, max_events: int | None = None
    ) -> Written | None:
        """Writes the timeline (.json, .json.gz) or a table (.parquet)."""
        return write_timeline(
            self.timeline, path, self.name, self._progress, force=force, max_events=max_events
        )


class ReplayAnswer(TimelineAnswer):
    """The predicted step of a run."""

    result: ReplayResult

    def render(self, file: TextIO, *, top: int = 10) -> None:
        """``top`` limits the lines of each list."""
        from augury.report.terminal import render

        render(self.result, file, name=self.name, top=top)


class PlanReplayAnswer(ReplayAnswer):
    """The predicted step of a run under a plan."""

    result: PlanReplayResult

    def render(self, file: TextIO, *, top: int = 10) -> None:
        from augury.report.optimize import render_planned

        render_planned(self.result, file, name=self.name, top=top)


class WhatIfAnswer(TimelineAnswer):
    """The predicted step of a changed run."""

    result: WhatIfResult

    def render(self, file: TextIO) -> None:
        from augury.report.whatif import render_change

        render_change(self.result, file, name=self.name)


class DiagnoseAnswer(RunAnswer):
    """What makes a run slow, and what to do about it."""

    result: Diagnosis

    def __init__(self, result: Diagnosis, name: str) -> None:
        self.result = result
        self.name = name

    def render(self, file: TextIO) -> None:
        from augury.report.diagnosis import render_diagnosis

        render_diagnosis(self.result, file, name=self.name)


class ScheduleAnswer(RunAnswer):
    """Communication policies on a run, with the best one as a plan."""

    result: ScheduleResult

    def __init__(self, assessment: Assessment, name: str, *, is_single: bool) -> None:
        self.assessment = assessment
        self.result = assessment.result()
        self.name = name
        self._is_single = is_single

    def render(self, file: TextIO) -> None:
        from augury.report.schedule import render_schedule

        render_schedule(self.result, file, name=self.name)

    def make_plan(self) -> Plan:
        """The best order as a plan, whether it pays off or not (``can_pay``)."""
        return self.assessment.plan()

    def save_plan(self, path: PathLike, *, force: bool = False) -> Path | None:
        """Writes the plan; None, and no file, where no plan pays off."""
        from msgspec.structs import replace

        written = self.assessment.write_plan(Path(path), force=force)
        if written is not None:
            self.result = replace(self.result, plan=str(written))
        return written

    def save_plot(self, path: PathLike, *, force: bool = False) -> None:
        """Draws released and arrived bytes as SVG; for a single policy, its pieces."""
        from augury.report.schedule_plot import pieces_svg, stepwise_svg

        result = self.result
        drawn = pieces_svg(result, result.best) if self._is_single else stepwise_svg(result)
        _write_text(drawn, path, force=force)

    def save_page(self, path: PathLike, *, force: bool = False) -> None:
        """Writes a page of HTML: policies with their intervals, released and arrived bytes, and
        the pieces of the best order."""
        from augury.report.page.schedule_page import write_schedule_page

        write_schedule_page(self.result, Path(path), name=self.name, force=force)

    def save_problem(self, path: PathLike, *, force: bool = False) -> None:
        """Writes the scheduling problem, which ``augury.open`` accepts."""
        from augury.schedule.problem_file import Stated, save_problem

        case = self.assessment.case
        stated = Stated(problem=case.problem, num_ranks=case.num_ranks)
        save_problem(stated, Path(path), force=force)


class OptimizeAnswer(RunAnswer):
    """The best combination of changes to a run, as a plan."""

    result: OptimizeResult

    def __init__(self, found: Optimized, name: str) -> None:
        self.result = found.result
        self.name = name
        self._plan = found.plan

    def render(self, file: TextIO) -> None:
        from augury.report.optimize import render_optimization

        render_optimization(self.result, file, name=self.name)

    def make_plan(self) -> Plan | None:
        """The plan; None where none pays off (``can_pay``)."""
        return self._plan if self.result.can_pay else None

    def save_plan(self, path: PathLike, *, force: bool = False) -> Path | None:
        """Writes the plan and returns its path. Where no plan pays off, nothing is written, an
        existing file stays, and the result is None."""
        from msgspec.structs import replace

        from augury.core.plan.plan_file import save_plan

        plan = self.make_plan()
        if plan is None:
            return None
        save_plan(plan, Path(path), force=force)
        self.result = replace(self.result, plan=str(path))
        return Path(path)


class DiffAnswer(RunAnswer):
    """The comparison of two runs."""

    result: Comparison

    def __init__(
        self,
        result: Comparison,
        before: str,
        after: str,
        steps: Sequence[tuple[StepSeries, StepSeries]],
    ) -> None:
        self.result = result
        self.names = (before, after)
        self.steps = steps

    def render(self, file: TextIO) -> None:
        from augury.report.diff import render_diff

        before, after = self.names
        render_diff(self.result, file, before=before, after=after)

    def save_page(self, path: PathLike, *, force: bool = False) -> None:
        """Writes a page of HTML: the verdict, both runs step by step, and where time changed."""
        from augury.report.page.diff_page import write_diff_page

        write_diff_page(self.result, self.steps, Path(path), names=self.names, force=force)

    def failed_gate(
        self, *, least_gain_pct: float | None = None, largest_loss_pct: float | None = None
    ) -> GateError | None:
        """The gate that the comparison fails, as an error that contains the comparison; None if it
        passes both. A gain fails as measured, a loss only beyond doubt (``is_slower_by``)."""
        from augury.core.errors import GateError

        found, failure = self.result, None
        low, high = found.gain_interval_pct
        if least_gain_pct is not None and found.gain_pct < least_gain_pct:
            failure = GateError(
                f"the gain is {found.gain_pct:+.1f} %, less than {least_gain_pct:+.1f} %",
                remedy="compare the replays of both runs: augury replay",
            )
        elif largest_loss_pct is not None and found.is_slower_by(largest_loss_pct):
            failure = GateError(
                f"the second run is slower by {-high:.1f} to {-low:.1f} % (90 % interval), which is"
                f" more than {largest_loss_pct:g} %",
                remedy="see where the time changed: augury diff lists phases, layers, operations",
            )
        if failure is not None:
            failure.result = {"result": found}
        return failure

    def to_json(self) -> str:
        from augury.report.as_json import encode_document

        return encode_document(result=self.result)


class OracleAnswer(RunAnswer):
    """Time and memory of parallel strategies; ``prediction`` also has the graph of a single one."""

    result: OracleResult

    def __init__(self, prediction: StrategyPrediction) -> None:
        self.prediction = prediction
        self.result = prediction.result

    def render(self, file: TextIO) -> None:
        from augury.report.oracle import render_oracle

        render_oracle(self.result, file)

    def save_graph(self, path: PathLike, *, force: bool = False) -> None:
        """Writes the graph of the only configuration."""
        from augury.core.graph.graph_file import save_graph

        save_graph(self.prediction.graph(), Path(path), force=force)

    def save_plot(self, path: PathLike, *, force: bool = False) -> None:
        """Plots time, efficiency and memory by strategy as SVG."""
        from augury.report.oracle_plot import oracle_svg

        _write_text(oracle_svg(self.result), path, force=force)

    def save_page(self, path: PathLike, *, force: bool = False) -> None:
        """Writes a page of HTML: strategies by number of devices, as tables and plots."""
        from augury.report.page.oracle_page import write_oracle_page

        write_oracle_page(self.result, Path(path), force=force)


class ValidationAnswer(RunAnswer):
    """The oracle compared with measurements."""

    result: ValidationResult

    def __init__(self, validation: Validation) -> None:
        self.validation = validation
        self.result = validation.result

    def render(self, file: TextIO) -> None:
        from augury.report.oracle_validation import render_validation

        render_validation(self.result, file)

    def failed_gate(self, least_accuracy_pct: float | None) -> GateError | None:
        """The error of a mean accuracy below the limit, which contains the validation; None if it
        is not below."""
        from augury.core.errors import GateError

        found = self.result.mean_accuracy_pct
        if least_accuracy_pct is None or found >= least_accuracy_pct:
            return None
        failure = GateError(
            f"the mean accuracy is {found:.2f} %, below {least_accuracy_pct:g} %",
            remedy="fit the constants to measurements of this cluster",
        )
        failure.result = self.result
        return failure

    def save_constants(self, path: PathLike, *, force: bool = False) -> None:
        """Writes the fitted corrections, for ``augury oracle --constants``."""
        from augury.oracle.fitting.corrections import save_constants

        save_constants(self.validation.constants, Path(path), force=force)


class WireAnswer(RunAnswer):
    """TCP traffic of a run: links, collectives, gaps in the recording."""

    result: WireResult

    def __init__(self, result: WireResult, name: str) -> None:
        self.result = result
        self.name = name

    def render(self, file: TextIO, *, top: int = 20) -> None:
        from augury.report.wire_terminal import render_wire

        render_wire(self.result, file, name=self.name, top=top)


class ImportAnswer(RunAnswer):
    """A run made of imported traces; ``path`` is its folder."""

    result: ImportResult

    def __init__(self, result: ImportResult, path: Path) -> None:
        self.result = result
        self.path = path

    def render(self, file: TextIO) -> None:
        from augury.report.imported_run import imported_lines

        file.writelines(f"{line}\n" for line in imported_lines(self.result, self.path))

    def to_json(self) -> str:
        from augury.report.as_json import encode_document

        return encode_document(run=str(self.path), result=self.result)


def _write_text(text: str, path: PathLike, *, force: bool) -> None:
    from augury.core.files import ensure_writable, new_file

    ensure_writable(Path(path), force=force)
    with new_file(Path(path), force=force) as file:
        file.write(text.encode("utf-8"))


def write_timeline(
    timeline: Timeline,
    path: PathLike,
    title: str,
    progress: Progress,
    *,
    force: bool,
    max_events: int | None,
) -> Written | None:
    """Writes a timeline (.json, .json.gz) or a table (.parquet)."""
    from augury.report.exports import write_export
    from augury.report.formats import DEFAULT_MAX_EVENTS

    with progress(f"writing {os.fspath(path)}"):
        return write_export(
            timeline,
            Path(path),
            force=force,
            max_events=DEFAULT_MAX_EVENTS if max_events is None else max_events,
            title=title,
        )
