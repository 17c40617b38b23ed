"""Where two runs differ: phases, kinds, layers and operations, judged against noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from augury.core.enums import OpKind
from augury.core.results.comparison import Comparison, PartChange
from augury.core.trace.trace import Trace
from augury.diagnose.compare_runs import compare_runs
from augury.diagnose.repeated_runs import compare_repeats
from augury.diagnose.run_parts import run_parts
from augury.ingest.open_run import open_run
from tests.ingest.written import MS, STEP_NS, Run


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return open_run(Run(tmp_path_factory.mktemp("before")).write())


def scaled(trace: Trace, factor: float, is_scaled: np.ndarray) -> Trace:
    """The events that are marked take ``factor`` as long."""
    dur_ns = trace.events.dur_ns
    changed = np.where(is_scaled, np.round(dur_ns * factor), dur_ns).astype(np.int64)
    return replace(trace, events=replace(trace.events, dur_ns=changed))


def is_named(trace: Trace, name: str) -> np.ndarray:
    return np.array([trace.strings[int(own)] == name for own in trace.events.name])


def certain(changes: list[PartChange]) -> dict[str, float | None]:
    return {one.name: one.change_pct for one in changes if one.is_certain}


def test_a_run_does_not_differ_from_itself(before: Trace) -> None:
    found = compare_runs(before, before)
    for changes in lists_of(found):
        assert changes
        assert certain(changes) == {}
        assert {one.change_ns for one in changes} == {0}


def lists_of(found: Comparison) -> list[list[PartChange]]:
    return [
        found.phase_changes,
        found.kind_changes,
        found.layer_changes,
        found.operation_changes,
    ]


def test_phases_and_gaps_are_the_whole_step(before: Trace) -> None:
    phases = run_parts(before).phases
    # All but the first steps of windows are whole.
    assert sum(part.level.value_ns for part in phases.values()) == pytest.approx(STEP_NS, rel=0.05)
    assert {"forward", "backward", "update", "between backward and update"} <= phases.keys()
    assert phases["forward"].level.value_ns == pytest.approx(20 * MS, rel=0.01)


def test_the_operation_that_became_slower_is_named_first(before: Trace) -> None:
    slower = scaled(before, 1.5, is_named(before, "aten::linear"))
    found = compare_runs(before, slower)
    first = found.operation_changes[0]
    assert first.name == "aten::linear"
    assert first.is_certain
    assert first.change_pct == pytest.approx(50, abs=0.1)
    assert (first.before_ns, first.after_ns) == pytest.approx((16 * MS, 24 * MS), rel=0.001)
    slowed = [name for name, pct in certain(found.operation_changes).items() if pct and pct > 0]
    assert slowed == ["aten::linear"]


def test_the_layer_that_became_slower_is_named(before: Trace) -> None:
    events = before.events
    layer = np.array([own >= 0 and before.strings[int(own)] == "last" for own in events.layer]) & (
        events.kind == OpKind.BACKWARD
    )
    found = compare_runs(before, scaled(before, 2.0, layer))
    assert found.layer_changes[0].name == "last"
    assert found.layer_changes[0].is_certain
    assert "first" not in certain(found.layer_changes)
    assert certain(found.kind_changes).keys() == {"backward"}


def test_a_small_change_is_listed_and_not_certain(before: Trace) -> None:
    slower = scaled(before, 1.02, is_named(before, "aten::linear"))
    first = compare_runs(before, slower).operation_changes[0]
    assert first.name == "aten::linear"
    assert not first.is_certain
    assert first.noise_ns > abs(first.change_ns)


def test_an_operation_that_is_new_has_no_percentage(before: Trace) -> None:
    gone = scaled(before, 0.0, is_named(before, "aten::linear"))
    new = {one.name: one for one in compare_runs(gone, before).operation_changes}["aten::linear"]
    assert (new.before_ns, new.change_pct, new.is_certain) == (0, None, True)
    old = {one.name: one for one in compare_runs(before, gone).operation_changes}["aten::linear"]
    assert (old.after_ns, old.change_pct, old.is_certain) == (0, -100.0, True)


def test_pairs_that_disagree_are_certain_of_no_part(before: Trace) -> None:
    is_linear = is_named(before, "aten::linear")
    slower, faster = scaled(before, 1.5, is_linear), scaled(before, 0.6, is_linear)
    both = compare_repeats([(before, slower), (before, slower)]).operation_changes
    assert both[0].name == "aten::linear"
    assert both[0].is_certain
    mixed = compare_repeats([(before, slower), (before, faster)]).operation_changes
    assert certain(mixed) == {}


def test_runs_without_detailed_windows_have_no_layers(tmp_path: Path, before: Trace) -> None:
    def only_light(record: dict) -> None:
        record["windows"] = record["windows"][:2]

    after = open_run(Run(tmp_path / "light", change=only_light).write())
    found = compare_runs(before, after)
    assert (found.layer_changes, found.operation_changes) == ([], [])
    assert found.phase_changes
