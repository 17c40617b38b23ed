"""Gathers the content of the page about a run: replay, breakdown, what-ifs, policies, traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from augury.core.errors import AuguryError, InputError
from augury.core.measured_step import MeasuredRun, measured_run
from augury.core.run_page import RunPage
from augury.predict.breakdown import break_down
from augury.predict.opened_run import OpenedRun
from augury.predict.prediction import predict_step, representation_of, warnings_of
from augury.predict.replays import Engine, replay_graph
from augury.predict.summarize import summarize
from augury.predict.what_if_table import what_if_table

if TYPE_CHECKING:
    from augury.core.results.diagnosis import Diagnosis
    from augury.core.results.schedule import ScheduleResult
    from augury.core.results.wire import WireResult
    from augury.core.trace.trace import Trace


def gather_run_page(
    run: OpenedRun,
    *,
    diagnosis: Diagnosis | None = None,
    engine: Engine = "auto",
    fold: bool = True,
    quick: bool = False,
) -> RunPage:
    """``quick`` leaves out what-ifs and policies, which need further replays."""
    timeline = replay_graph(run.graph, engine=engine, fold=fold, progress=run.progress)
    recorded = representation_of(timeline)
    replay = summarize(timeline, predict_step(timeline, recorded), ledger=warnings_of(recorded))
    trace = run.trace if run.is_recorded else None
    with run.progress("breaking down"):
        breakdown = break_down(timeline, trace)
    return RunPage(
        name=run.path.name,
        timeline=timeline,
        replay=replay,
        breakdown=breakdown,
        trace=trace,
        measured=_measured(trace),
        diagnosis=diagnosis,
        what_ifs=() if quick else what_if_table(run, engine=engine),
        schedule=None if quick else _schedule(run),
        wire=_wire(run) if run.is_recorded else None,
    )


def _measured(trace: Trace | None) -> MeasuredRun | None:
    try:
        return None if trace is None else measured_run(trace)
    except InputError:
        return None


def _schedule(run: OpenedRun) -> ScheduleResult | None:
    """None where the run has no gradients to order."""
    from augury.predict.schedule_assess import assess, choose_policies
    from augury.predict.schedule_case import OtherNetwork, open_case

    try:
        case = open_case(run, OtherNetwork(bandwidth=None, latency=None))
        return assess(case, choose_policies("all", low_risk=False), progress=run.progress).result()
    except AuguryError:
        return None


def _wire(run: OpenedRun) -> WireResult | None:
    """None where no TCP traffic was recorded."""
    from augury.ingest.wire.read_wire import read_wire
    from augury.predict.wire_summary import summarize_wire

    try:
        with run.progress("reading TCP traffic"):
            return summarize_wire(read_wire(run.path, run.trace), run.trace)
    except AuguryError:
        return None
