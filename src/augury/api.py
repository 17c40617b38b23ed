"""The public objects: an opened Run, and the answers that its methods return."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from augury.core.errors import InputError
from augury.report.answer import RunAnswer

if TYPE_CHECKING:
    from torch import nn

    from augury.core.cluster.cluster import Cluster
    from augury.core.graph.graph import Graph
    from augury.core.ledger import Anomaly
    from augury.core.model import Model
    from augury.core.plan.plan import Plan
    from augury.core.results.comparison import Comparison
    from augury.core.results.oracle import OracleResult
    from augury.core.results.replay import ReplayResult, WhatIfResult
    from augury.core.results.schedule import ScheduleResult
    from augury.core.timeline import Timeline
    from augury.oracle.predict_strategies import StrategyPrediction
    from augury.predict.opened_run import OpenedRun
    from augury.predict.progress import Progress
    from augury.predict.schedule_assess import Assessment
    from augury.report.perfetto import Written

PathLike = str | os.PathLike[str]
Engine = Literal["auto", "native", "reference"]


def open(
    source: PathLike | Graph,
    *,
    max_bytes: int | str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Opens a recorded run's folder, a graph (.augury, or a Graph in memory) or a scheduling
    problem (.json).

    Files are read when a method first needs them, and only once. ``max_bytes`` limits their
    unpacked size (``"2GiB"`` or a number). ``progress`` returns a context for a named piece of
    work, such as one that shows a spinner.
    """
    from augury.core.graph.graph import Graph
    from augury.predict.opened_run import open_graph, open_source
    from augury.predict.progress import silent

    shown = progress or silent
    if isinstance(source, Graph):
        return Run(open_graph(source, progress=shown))
    opened = open_source(Path(source), max_bytes=max_bytes, progress=shown)
    if not opened.path.exists():
        raise InputError(f"cannot read {opened.path}: no such file", remedy="check the path")
    return Run(opened)


def oracle(
    model: PathLike | Model | nn.Module, cluster: PathLike | Cluster, **options: Any
) -> OracleAnswer:
    """Predicts time and memory of parallel strategies, as ``augury oracle`` does. Options are those
    of ``augury.oracle.predict_strategies.predict_strategies``."""
    from augury.oracle.predict_strategies import predict_strategies

    return OracleAnswer(predict_strategies(model, cluster, **options))


class Run:
    """A recorded run, a graph or a scheduling problem. ``augury.open`` makes it."""

    def __init__(self, source: OpenedRun) -> None:
        self._source = source

    @property
    def path(self) -> Path:
        """The opened folder or file; ``<graph>`` for a Graph in memory."""
        return self._source.path

    @property
    def graph(self) -> Graph:
        return self._source.graph

    @property
    def ranks(self) -> list[int]:
        """Numbers of the workers' ranks."""
        return list(range(self.graph.num_ranks))

    @property
    def measured_step_ns(self) -> int | None:
        """Median of the steps outside of recording windows; None where nothing was measured."""
        from augury.core.measured_step import measured_step_ns

        return measured_step_ns(self.graph)

    @property
    def warnings(self) -> list[Anomaly]:
        """Anomalies found while the run was read and its graph was built."""
        return list(self.graph.ledger)

    def replay(
        self, *, fine: bool = False, engine: Engine = "auto", fold: bool = True
    ) -> ReplayAnswer:
        """Predicts the step by replay. ``fine`` replays all-reduces as sends and receives on links,
        which needs a run recorded with ``--wire``."""
        from augury.predict.prediction import predict_step, representation_of, warnings_of
        from augury.predict.replays import replay_graph
        from augury.predict.summarize import summarize

        progress = self._source.progress
        graph = self._source.fine.expanded if fine else self.graph
        timeline = replay_graph(graph, engine=engine, fold=fold, progress=progress)
        recorded = representation_of(timeline)
        prediction = predict_step(timeline, recorded)
        result = summarize(timeline, prediction, ledger=warnings_of(recorded))
        return ReplayAnswer(result, self.path.name, timeline, progress)

    def whatif(
        self,
        *,
        bandwidth: str | None = None,
        latency: str | None = None,
        ranks: int | None = None,
        bucket_mb: str | float | None = None,
        compute_scale: Sequence[str] | str | float | None = None,
        no_straggler: bool = False,
        perfect_overlap: bool = False,
        fine: bool = False,
        link_bandwidth: Sequence[str] | str | None = None,
        algorithm: str | None = None,
        ring_order: Sequence[int] | str | None = None,
        half_duplex: bool = False,
        engine: Engine = "auto",
    ) -> WhatIfAnswer:
        """Predicts the step after changes; they combine. Values are those of the options of
        ``augury whatif``."""
        from augury.predict.whatif import parse_changes, predict_change

        wanted = parse_changes(
            bandwidth=bandwidth,
            latency=latency,
            ranks=ranks,
            bucket_mb=bucket_mb,
            compute_scale=compute_scale,
            no_straggler=no_straggler,
            perfect_overlap=perfect_overlap,
            fine=fine,
            link_bandwidth=link_bandwidth,
            algorithm=algorithm,
            ring_order=ring_order,
            half_duplex=half_duplex,
        )
        found = predict_change(self._source, wanted, engine=engine)
        return WhatIfAnswer(found.result, self.path.name, found.after, self._source.progress)

    def schedule(
        self,
        *,
        policy: str | Sequence[str] = "all",
        bandwidth: str | None = None,
        latency: str | None = None,
        low_risk: bool = False,
    ) -> ScheduleAnswer:
        """Assesses communication policies. ``low_risk`` considers only what stock DDP can do with a
        list of bucket sizes."""
        from augury.predict.schedule_assess import assess, choose_policies
        from augury.predict.schedule_case import OtherNetwork, open_case

        policies = choose_policies(policy, low_risk=low_risk)
        case = open_case(self._source, OtherNetwork(bandwidth=bandwidth, latency=latency))
        assessment = assess(case, policies, progress=self._source.progress)
        if low_risk:
            assessment = assessment.of_stock_ddp()
        return ScheduleAnswer(assessment, self.path.name, is_single=len(policies) == 1)

    def diff(self, other: Run | PathLike, plan: Plan | PathLike | None = None) -> DiffAnswer:
        """Compares this run with a later one of the same job and, with the plan that the later run
        followed, with the plan's prediction."""
        from augury.core.plan.plan_file import load_plan
        from augury.diagnose.compare_folders import compare_folders

        if isinstance(plan, str | os.PathLike):
            plan = load_plan(Path(plan))
        after = other if isinstance(other, Run) else open(other, progress=self._source.progress)
        comparison = compare_folders(self._source, after._source, plan)
        return DiffAnswer(comparison, self.path.name, after.path.name)

    def report(
        self,
        path: PathLike,
        *,
        force: bool = False,
        max_events: int | None = None,
        engine: Engine = "auto",
        fold: bool = True,
    ) -> Written | None:
        """Writes the replayed timeline (.json, .json.gz for ui.perfetto.dev) or a table
        (.parquet); returns the number of events of a timeline."""
        from augury.predict.replays import replay_graph
        from augury.report.exports import check_export

        check_export(Path(path), force=force)
        progress = self._source.progress
        timeline = replay_graph(self.graph, engine=engine, fold=fold, progress=progress)
        return _write(timeline, path, self.path.name, progress, force=force, max_events=max_events)

    def __repr__(self) -> str:
        return f"augury.open({os.fspath(self.path)!r})"

    def _repr_html_(self) -> str:
        from augury.report.notebook import as_html

        return as_html(repr(self))


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
        return _write(
            self.timeline, path, self.name, self._progress, force=force, max_events=max_events
        )


class ReplayAnswer(TimelineAnswer):
    """The predicted step of a run."""

    result: ReplayResult

    def render(self, file: TextIO, *, top: int = 10) -> None:
        """``top`` limits the lines of each list."""
        from augury.report.terminal import render

        render(self.result, file, name=self.name, top=top)


class WhatIfAnswer(TimelineAnswer):
    """The predicted step of a changed run."""

    result: WhatIfResult

    def render(self, file: TextIO) -> None:
        from augury.report.whatif import render_change

        render_change(self.result, file, name=self.name)


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

    def save_problem(self, path: PathLike, *, force: bool = False) -> None:
        """Writes the scheduling problem, which ``augury.open`` accepts."""
        from augury.schedule.problem_file import Stated, save_problem

        case = self.assessment.case
        stated = Stated(problem=case.problem, num_ranks=case.num_ranks)
        save_problem(stated, Path(path), force=force)


class DiffAnswer(RunAnswer):
    """The comparison of two runs."""

    result: Comparison

    def __init__(self, result: Comparison, before: str, after: str) -> None:
        self.result = result
        self.names = (before, after)

    def render(self, file: TextIO) -> None:
        from augury.report.diff import render_diff

        before, after = self.names
        render_diff(self.result, file, before=before, after=after)

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


def _write_text(text: str, path: PathLike, *, force: bool) -> None:
    from augury.core.files import ensure_writable, new_file

    ensure_writable(Path(path), force=force)
    with new_file(Path(path), force=force) as file:
        file.write(text.encode("utf-8"))


def _write(
    timeline: Timeline,
    path: PathLike,
    title: str,
    progress: Progress,
    *,
    force: bool,
    max_events: int | None,
) -> Written | None:
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
