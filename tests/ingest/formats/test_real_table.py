"""The table of a production job replays as it ran."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.core.trace.trace import Trace
from augury.ingest.foreign_traces import read_foreign
from augury.replay.run import replay
from augury.replay.utilization import step_durations_ns

TRACES = os.environ.get("AUGURY_TRACES")
pytestmark = pytest.mark.skipif(TRACES is None, reason="AUGURY_TRACES is unset: no real traces")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_foreign([Path(TRACES or "") / "production_8gpu"])


def errors_pct(trace: Trace, graph: Graph) -> np.ndarray:
    own = trace.steps.rank == 0
    measured = (trace.steps.end_ns - trace.steps.start_ns)[own]
    return 100 * (step_durations_ns(replay(graph).rank_steps) - measured) / measured


def test_every_step_and_rank_is_reproduced(trace: Trace):
    graph = build_recorded(trace)
    errors = errors_pct(trace, graph)
    print(np.round(errors, 4))
    assert np.abs(errors).max() < 0.01
    measured = np.median(trace.steps.end_ns - trace.steps.start_ns)
    assert np.array(replay(graph).rank_step_ns) == pytest.approx(measured, rel=1e-4)


def test_gaps_are_a_small_part_of_the_step(trace: Trace):
    """The dependencies explain the step, not the gaps that are kept."""
    graph = build_recorded(trace)
    columns = dict(graph.ops.columns())
    is_gap = np.isin(graph.ops.kind, [OpKind.UNEXPLAINED, OpKind.DELAY])
    columns["work_ns"] = np.where(is_gap, 0, columns["work_ns"])
    columns["resource"] = np.where(is_gap, -1, columns["resource"])
    errors = errors_pct(trace, graph.evolve(ops=type(graph.ops)(**columns)))
    assert errors.min() > -3
    assert errors.max() <= 0.01
