"""A valid but inconsistent Trace is either built or refused with a reason."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, Phase, StepState
from augury.core.errors import InputError
from augury.core.graph.graph_spec import check
from augury.core.trace.trace import Calibration, Trace
from augury.core.trace.trace_spec import problems
from augury.replay.run import replay
from tests.build.recorded_runs import ddp_run
from tests.campaigns import campaign

SOUND = ddp_run(num_steps=3, detailed=[2], broadcast=True, unseen=50_000).trace()
TIMES = st.one_of(st.integers(-(10**8), 10**8), st.sampled_from([-(4 * 10**18), 4 * 10**18 - 1]))
SIZES = st.sampled_from([0, 1, 1 << 20, (1 << 61) - 1])
SPANS = st.one_of(st.integers(0, 10**8), st.sampled_from([0, 4 * 10**18 - 1]))
CHOICES: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("events", "kind"): st.sampled_from([int(kind) for kind in OpKind]),
    ("events", "start_ns"): TIMES,
    ("events", "dur_ns"): SPANS,
    ("events", "arrival_ns"): TIMES,
    ("events", "step"): st.integers(-1, 14),
    ("events", "phase"): st.sampled_from([int(phase) for phase in Phase]),
    ("events", "name"): st.integers(-1, 5),
    ("events", "size_bytes"): SIZES,
    ("events", "group"): st.integers(-1, 0),
    ("events", "sequence"): st.integers(-1, 9),
    ("events", "parent"): st.integers(-1, 3),
    ("steps", "step"): st.integers(0, 2**31 - 1),
    ("steps", "start_ns"): TIMES,
    ("steps", "end_ns"): TIMES,
    ("steps", "state"): st.sampled_from([int(state) for state in StepState]),
    ("steps", "delay_ns"): st.one_of(st.just(-1), SPANS),
    ("steps", "helper_cpu_ns"): st.one_of(st.just(-1), SPANS),
    ("gradients", "order"): st.integers(0, 5),
    ("gradients", "bucket"): st.integers(-1, 3),
    ("gradients", "size_bytes"): SIZES,
    ("gradients", "group"): st.integers(-1, 0),
}
ORDER = {
    "events": ("rank", "stream", "start_ns"),
    "steps": ("rank", "step"),
    "gradients": ("rank", "order"),
}


def bent(trace: Trace, table: str, column: str, row: int, value: int) -> Trace:
    rows = getattr(trace, table)
    columns = {name: values.copy() for name, values in rows.columns()}
    columns[column][row % len(rows)] = value
    order = np.lexsort([columns[name] for name in reversed(ORDER[table])])
    return trace.evolve(**{table: type(rows)(**{n: v[order] for n, v in columns.items()})})


@campaign(150)
@given(st.data())
def test_inconsistent_traces_are_built_or_refused(data: st.DataObject) -> None:
    trace = SOUND
    for _ in range(data.draw(st.integers(1, 4))):
        table, column = data.draw(st.sampled_from(sorted(CHOICES)))
        value = data.draw(CHOICES[table, column])
        trace = bent(trace, table, column, data.draw(st.integers(0, 200)), value)
    if data.draw(st.booleans()):
        trace = trace.evolve(ranks=trace.ranks[:1])
    if data.draw(st.booleans()):
        durations = data.draw(st.lists(st.sampled_from([0, 1, 10**6, 2**62]), max_size=2))
        trace = trace.evolve(
            calibration=[
                Calibration(
                    collective="all_reduce",
                    group=0,
                    size_bytes=1 << 22,
                    concurrent=1,
                    beside_compute=beside,
                    durations_ns=durations,
                )
                for beside in (False, True)
            ]
        )
    if list(problems(trace)):
        return
    with contextlib.suppress(InputError):
        graph = build_recorded(trace)
        assert check(graph) == []
        assert replay(graph).step_ns >= 0
