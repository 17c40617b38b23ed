"""The public interface: one call for each verb, and the Run that most of them start from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from augury.answers import (
    DiagnoseAnswer,
    DiffAnswer,
    ImportAnswer,
    OptimizeAnswer,
    OracleAnswer,
    PlanReplayAnswer,
    ReplayAnswer,
    ScheduleAnswer,
    ValidationAnswer,
    WhatIfAnswer,
    WireAnswer,
    write_timeline,
)
from augury.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from torch import nn

    from augury.api_options import (
        OptimizeOptions,
        OracleOptions,
        RunOptions,
        SynthOptions,
        ValidationOptions,
    )
    from augury.core.cluster.cluster import Cluster
    from augury.core.graph.graph import Graph
    from augury.core.ledger import Anomaly
    from augury.core.model import Model
    from augury.core.plan.plan import Plan
    from augury.core.progress import Progress
    from augury.core.results.diagnosis import Diagnosis
    from augury.executor import EngineName
    from augury.job import FinishedJob
    from augury.predict.opened_run import OpenedRun
    from augury.report.exports import WrittenFile
    from augury.report.page.run_page import WrittenPage

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
    from augury.core.progress import silent
    from augury.predict.opened_run import open_graph, open_source

    shown = progress or silent
    if isinstance(source, Graph):
        return Run(open_graph(source, progress=shown))
    opened = open_source(Path(source), max_bytes=max_bytes, progress=shown)
    if not opened.path.exists():
        raise InputError(f"cannot read {opened.path}: no such file", remedy="check the path")
    return Run(opened)


def oracle(
    model: PathLike | Model | nn.Module,
    cluster: PathLike | Cluster,
    **options: Unpack[OracleOptions],
) -> OracleAnswer:
    """Predicts time and memory of parallel strategies, as ``augury oracle`` does. Options are those
    of ``augury.oracle.predict_strategies.predict_strategies``."""
    from augury.oracle.predict_strategies import predict_strategies

    return OracleAnswer(predict_strategies(model, cluster, **options))


def validate_oracle(measured: PathLike, **options: Unpack[ValidationOptions]) -> ValidationAnswer:
    """Compares the oracle with a table of measurements, as ``augury validate oracle`` does. Options
    are those of ``augury.oracle.fitting.validation.validate_oracle``."""
    from augury.oracle.fitting.validation import validate_oracle as validate

    return ValidationAnswer(validate(Path(measured), **options))


def import_traces(
    traces: Sequence[PathLike],
    out: PathLike,
    *,
    clocks: str = "auto",
    max_bytes: int | str | None = None,
    force: bool = False,
    engine: EngineName = "processes",
    address: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> ImportAnswer:
    """Reads traces of all ranks and writes them as one run, as ``augury import`` does. ``engine``,
    ``address`` and ``jobs`` state where traces are read, as in ``augury.executor``."""
    from augury.core.progress import silent
    from augury.executor import Executor
    from augury.ingest.import_run import import_run

    result = import_run(
        [Path(path) for path in traces],
        Path(out),
        clocks=clocks,
        max_bytes=max_bytes,
        force=force,
        executor=Executor(engine=engine, address=address, jobs=jobs),
        progress=progress or silent,
    )
    return ImportAnswer(result, Path(out))


def synth(
    out: PathLike | None = None,
    *,
    cluster: PathLike | None = None,
    ranks: int | None = None,
    ranks_per_host: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
    force: bool = False,
    **options: Unpack[SynthOptions],
) -> Graph:
    """Returns a synthetic training run, and writes it if ``out`` is given, as ``augury synth``
    does. Other options are those of ``make_synthetic_job``."""
    from augury.build.synthetic.job_options import choose_cluster, make_synthetic_job
    from augury.build.synthetic.training_run import synthesize
    from augury.core.graph.graph_file import save_graph

    chosen = choose_cluster(
        None if cluster is None else Path(cluster),
        ranks=ranks,
        ranks_per_host=ranks_per_host,
        bandwidth=bandwidth,
        latency=latency,
    )
    graph = synthesize(make_synthetic_job(cluster=chosen, **options))
    if out is not None:
        save_graph(graph, Path(out), force=force)
    return graph


def run(
    command: Sequence[str],
    *,
    out: PathLike = "augury-run",
    plan: PathLike | None = None,
    repeat_baseline: int | None = None,
    **options: Unpack[RunOptions],
) -> list[FinishedJob]:
    """Starts a job and records it, as ``augury run -- COMMAND`` does. Returns the finished job;
    with ``repeat_baseline``, all finished jobs in their order. Other options are those of
    ``augury.job.make_job``."""
    from augury.job import record_jobs

    planned = None if plan is None else Path(plan)
    return record_jobs(command, out=Path(out), plan=planned, number=repeat_baseline, **options)


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
    def job_command(self) -> list[str]:
        """The command that ``augury run`` started; empty if unknown."""
        return self._source.job_command

    @property
    def warnings(self) -> list[Anomaly]:
        """Anomalies found while the run was read and its graph was built."""
        return list(self.graph.ledger)

    def replay(
        self,
        *,
        plan: Plan | PathLike | None = None,
        fine: bool = False,
        engine: Engine = "auto",
        fold: bool = True,
    ) -> ReplayAnswer:
        """Predicts the step by replay; with ``plan``, under that plan. ``fine`` replays all-reduces
        as sends and receives on links, which needs a run recorded with ``--wire``."""
        if plan is not None:
            if fine:
                cause = "plans are predicted with whole collectives"
                raise UsageError(cause, remedy="leave fine out")
            return self._replay_plan(plan, engine=engine, fold=fold)
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

    def _replay_plan(
        self, plan: Plan | PathLike, *, engine: Engine, fold: bool
    ) -> PlanReplayAnswer:
        from augury.predict.plan_summary import replay_plan

        result, timeline = replay_plan(self._source, _loaded(plan), engine=engine, fold=fold)
        return PlanReplayAnswer(result, self.path.name, timeline, self._source.progress)

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

    def diagnose(self) -> DiagnoseAnswer:
        """Says what makes the run slow: a verdict, a waterfall, and findings with their gains."""
        return DiagnoseAnswer(self._diagnosis, self.path.name)

    @cached_property
    def _diagnosis(self) -> Diagnosis:
        from augury.diagnose.diagnose_run import diagnose

        return diagnose(self._source)

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

    def optimize(self, **options: Unpack[OptimizeOptions]) -> OptimizeAnswer:
        """Searches the best combination of changes, as ``augury optimize`` does. Options are those
        of ``augury.optimize.optimize_run.optimize``."""
        from augury.optimize.optimize_run import optimize

        return OptimizeAnswer(optimize(self._source, **options), self.path.name)

    def diff(self, other: Run | PathLike, plan: Plan | PathLike | None = None) -> DiffAnswer:
        """Compares this run with a later one of the same job and, with the plan that the later run
        followed, with the plan's prediction."""
        from augury.diagnose.compare_folders import compare_folders

        after = other if isinstance(other, Run) else open(other, progress=self._source.progress)
        comparison, steps = compare_folders(
            self._source, after._source, None if plan is None else _loaded(plan)
        )
        return DiffAnswer(comparison, self.path.name, after.path.name, steps)

    def wire(self) -> WireAnswer:
        """Links, collectives and gaps of a run recorded with ``--wire``, as ``augury wire``."""
        from augury.predict.wire_summary import summarize_recorded_wire

        result = summarize_recorded_wire(self.path, progress=self._source.progress)
        return WireAnswer(result, self.path.name)

    def report(
        self,
        path: PathLike,
        *,
        force: bool = False,
        max_events: int | None = None,
        engine: Engine = "auto",
        fold: bool = True,
        quick: bool = False,
    ) -> WrittenFile:
        """Writes a page about the run (.html), the replayed timeline (.json, .json.gz for
        ui.perfetto.dev) or a table (.parquet); returns the counts of a page or a timeline.
        ``quick`` leaves out the page's diagnosis, what-ifs and policies."""
        from augury.predict.replays import replay_graph
        from augury.report.exports import check_report, is_page

        check_report(Path(path), force=force)
        if is_page(Path(path)):
            return self._write_page(Path(path), force=force, engine=engine, fold=fold, quick=quick)
        progress = self._source.progress
        timeline = replay_graph(self.graph, engine=engine, fold=fold, progress=progress)
        return write_timeline(
            timeline, path, self.path.name, progress, force=force, max_events=max_events
        )

    def _write_page(
        self, path: Path, *, force: bool, engine: Engine, fold: bool, quick: bool
    ) -> WrittenPage:
        from augury.predict.run_page import gather_run_page
        from augury.report.page.run_page import write_run_page

        content = gather_run_page(
            self._source,
            diagnosis=None if quick else self._diagnosis,
            engine=engine,
            fold=fold,
            quick=quick,
        )
        with self._source.progress(f"writing {path}"):
            return write_run_page(content, path, force=force)

    def __repr__(self) -> str:
        return f"augury.open({os.fspath(self.path)!r})"

    def _repr_html_(self) -> str:
        from augury.report.notebook import as_html

        return as_html(repr(self))


def _loaded(plan: Plan | PathLike) -> Plan:
    from augury.core.plan.plan_file import load_plan

    return load_plan(Path(plan)) if isinstance(plan, str | os.PathLike) else plan
