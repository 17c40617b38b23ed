"""The registry of readers: each has good files of its formats, and reads folders of such files.

``test_registry.py`` compares it with the modules of the package that read files: a reader that is
not in it fails there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from augury.core.trace.trace import Trace
from tests.mutated_files import good_files
from tests.mutated_files.good_files import GoodFiles

MAX_BYTES = 64 << 20
"""Limit that is passed to readers that have one."""


@dataclass(frozen=True)
class Reader:
    name: str
    covers: tuple[str, ...]
    """Modules of ``augury`` that decode these files."""
    good: Callable[[], list[GoodFiles]]
    read: Callable[[Path], object]
    weight: int = 2
    """Share of the mutated files, relative to those of other readers."""


def _valid(trace: Trace) -> Trace:
    from augury.core.trace.trace_spec import problems

    found = list(problems(trace))
    assert not found, f"an invalid trace: {found}"
    return trace


def _import(folder: Path) -> object:
    from augury.build.recorded.recorded_graph import build_recorded
    from augury.ingest.foreign_traces import read_foreign

    return build_recorded(_valid(read_foreign([folder], max_bytes=MAX_BYTES)))


def _import_and_open(folder: Path) -> object:
    import augury

    out = folder.parent / "imported"
    augury.import_traces([folder], out, max_bytes=MAX_BYTES, force=True, engine="serial")
    return augury.open(out, max_bytes=MAX_BYTES).graph


def _read_recorded(folder: Path) -> object:
    from augury.build.recorded.recorded_graph import build_recorded
    from augury.ingest.recorded import read_run

    return build_recorded(_valid(read_run(folder, max_bytes=MAX_BYTES)))


def _open(folder: Path) -> object:
    import augury

    try:
        return augury.open(folder, max_bytes=MAX_BYTES).graph
    finally:
        for name in ("run.json", *(path.name for path in folder.glob("*.columns"))):
            (folder / name).unlink(missing_ok=True)


def _summarize(folder: Path) -> object:
    from augury.capture.launcher.run_summary import summarize_run

    return summarize_run(folder, wire=True)


def _read_wire(folder: Path) -> object:
    from augury.ingest.wire.read_wire import read_wire

    return read_wire(folder)


def _read_cache(folder: Path) -> object:
    from augury.ingest.open_run import open_run

    return _valid(open_run(folder, max_bytes=MAX_BYTES))


def _load_graph(folder: Path) -> object:
    import augury

    return augury.open(folder / "run.augury", max_bytes=MAX_BYTES).graph


def _load_plan(folder: Path) -> object:
    from augury.core.plan.plan_file import load_plan

    return load_plan(folder / "plan.json")


def _load_problem(folder: Path) -> object:
    from augury.schedule.problem_file import load_problem

    return load_problem(folder / "problem.json")


def _load_cluster(folder: Path) -> object:
    from augury.core.cluster.cluster_file import load_cluster

    return load_cluster(folder / "cluster.toml")


def _load_model(folder: Path) -> object:
    from augury.oracle.model_reader.model_file import load_model_file

    return load_model_file(folder / "model.json")


def _load_constants(folder: Path) -> object:
    from augury.oracle.fitting.corrections import load_constants

    return load_constants(folder / "constants.json")


def _read_measured(folder: Path) -> object:
    from augury.oracle.fitting.measured_table import read_table

    return read_table(folder / "measured.csv")


def _read_timings(folder: Path) -> object:
    from augury.core.cluster.cluster_file import find_cluster
    from augury.costs.cluster_fit import read_timings, with_timings

    return with_timings(find_cluster("abci"), read_timings(folder / "timings.csv"))


READERS: tuple[Reader, ...] = (
    Reader(
        "kineto",
        (
            "ingest.formats.kineto",
            "ingest.formats.kineto_events",
            "ingest.formats.memory_events",
            "ingest.formats.gzip_reader",
            "ingest.formats.recognition",
            "ingest.rank.rank_file",
        ),
        good_files.kineto,
        _import,
        weight=10,
    ),
    Reader(
        "pipeline table",
        ("ingest.formats.pipeline_table", "ingest.formats.table.table_rows"),
        good_files.pipeline_table,
        _import,
    ),
    Reader(
        "Horovod timeline",
        ("ingest.formats.horovod_timeline", "ingest.formats.horovod_events"),
        good_files.horovod,
        _import,
    ),
    Reader(
        "execution trace",
        ("ingest.formats.execution_trace", "ingest.formats.linked_execution_trace"),
        good_files.execution_traces,
        _import,
    ),
    Reader(
        "container of traces",
        (
            "ingest.formats.merged_traces",
            "ingest.formats.zip_members",
            "ingest.formats.shown_path",
        ),
        good_files.containers,
        _import,
    ),
    Reader(
        "imported run",
        ("ingest.formats.kineto", "ingest.formats.pipeline_table", "core.trace.trace_file"),
        lambda: [*good_files.kineto(), *good_files.pipeline_table()],
        _import_and_open,
        weight=1,
    ),
    Reader(
        "recorded run",
        ("ingest.formats.rank_record", "ingest.formats.kineto"),
        good_files.recorded,
        _read_recorded,
        weight=6,
    ),
    Reader("opened run", ("ingest.formats.rank_record",), good_files.recorded, _open, weight=1),
    Reader(
        "cached trace",
        ("core.trace.trace_file", "core.trace.table_file"),
        good_files.cached_trace,
        _read_cache,
    ),
    Reader(
        "run summary",
        ("capture.launcher.run_summary", "capture.launcher.wire_summary", "capture.wire.pack"),
        good_files.summarized,
        _summarize,
    ),
    Reader("wire", ("ingest.wire.wire_file",), good_files.wire, _read_wire),
    Reader("graph", ("core.graph.graph_file",), good_files.graph, _load_graph, weight=4),
    Reader("plan", ("core.plan.plan_file",), good_files.plan, _load_plan, weight=4),
    Reader("problem", ("schedule.problem_file",), good_files.problem, _load_problem),
    Reader("cluster", ("core.cluster.cluster_file",), good_files.cluster, _load_cluster),
    Reader("model", ("oracle.model_reader.model_file",), good_files.model, _load_model),
    Reader("constants", ("oracle.fitting.corrections",), good_files.constants, _load_constants),
    Reader("measurements", ("oracle.fitting.measured_table",), good_files.measured, _read_measured),
    Reader("timings", ("costs.cluster_fit",), good_files.timings, _read_timings),
)
