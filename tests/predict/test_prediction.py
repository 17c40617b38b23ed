"""The Prediction of a step, and cases that can be sent to other processes."""

from __future__ import annotations

import pickle

import pytest

from augury.core.results.prediction import Prediction
from augury.core.timeline import Timeline
from augury.predict.assess_policies import assess_policies
from augury.predict.prediction import predict_step, representation_of, warnings_of
from augury.predict.replays import replay_graph
from augury.predict.schedule_assess import choose_policies
from augury.predict.schedule_case import graph_case
from tests.passes.recorded import recorded


def test_errors_and_gains_are_signed() -> None:
    found = Prediction(predicted_step_ns=80, baseline_step_ns=100, measured_step_ns=64)
    assert found.gain_pct == pytest.approx(20)
    assert found.error_pct == 25
    alone = Prediction(predicted_step_ns=80)
    assert alone.gain_pct is alone.error_pct is None


def test_a_synthetic_run_has_no_interval(straggling: Timeline) -> None:
    assert representation_of(straggling) is None
    assert len(warnings_of(None)) == 0
    found = predict_step(straggling, None)
    assert found.interval_ns is found.measured_step_ns is None
    assert found.peak_memory_bytes == max(peak.size_bytes for peak in straggling.peak_memory)


def test_the_interval_of_a_recorded_run_grows_with_the_error_of_the_model() -> None:
    graph, _ = recorded(num_steps=5)
    timeline = replay_graph(graph)
    represented = representation_of(timeline)
    assert represented is not None
    exact = predict_step(timeline, represented).interval_ns
    changed = predict_step(timeline, represented, baseline_ns=1, model_error=0.05)
    assert exact is not None
    assert changed.interval_ns is not None
    assert (
        changed.interval_ns[0] < exact[0] <= timeline.step_ns <= exact[1] < changed.interval_ns[1]
    )
    assert changed.measured_step_ns is None  # the recorded steps are those before the change


def test_cases_and_assessed_orders_can_be_pickled() -> None:
    graph, _ = recorded(num_steps=5)
    case = graph_case(graph, [], {}, [])
    policies = choose_policies("ddp,p3")
    again = assess_policies(pickle.loads(pickle.dumps(case)), policies)
    assert [one.result for one in again] == [one.result for one in assess_policies(case, policies)]
    assert [one.result for one in pickle.loads(pickle.dumps(again))] == [o.result for o in again]
