"""Records of real training jobs of several kinds."""

from __future__ import annotations

import gzip
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.capture import training_kinds
from tests.capture.jobs import record, start, torchrun, write_training
from tests.recordings import Recording, once, record_kind

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


class Recorded:
    def __init__(self, recording: Recording) -> None:
        out = recording.run
        self.output = recording.output
        self.ranks = [json.loads((out / f"rank-0000{rank}.json").read_text()) for rank in (0, 1)]
        self._out = out
        assert [told["trouble"] for told in self.ranks] == [None, None]

    def names(self, window: int, rank: int = 0) -> list[str]:
        trace = self.ranks[rank]["windows"][window]["trace"]
        with gzip.open(self._out / trace) as file:
            return [event.get("name", "") for event in json.load(file)["traceEvents"]]

    def sizes(self, kind: str) -> dict[str, int]:
        memory = self.ranks[0]["memory"]
        return {held["layer"]: held["size_bytes"] for held in memory if held["kind"] == kind}

    def calls(self, rank: int, *kinds: str) -> list[tuple]:
        return [tuple(call[2:7]) for call in self.ranks[rank]["calls"] if call[2] in kinds]


@pytest.fixture(scope="module")
def ddp(recorded_ddp: Recording) -> Recorded:
    return Recorded(recorded_ddp)


@pytest.fixture(scope="module")
def sharded(recorded_sharded: Recording) -> Recorded:
    return Recorded(recorded_sharded)


def test_windows_are_light_then_one_is_detailed(ddp: Recorded):
    for told in ddp.ranks:
        windows = [(w["first"], w["last"], w["mode"]) for w in told["windows"]]
        assert windows == [(4, 6, "light"), (8, 10, "light"), (11, 14, "detail")]
    for window, num_steps in enumerate((2, 2, 3)):
        names = ddp.names(window)
        assert sum(name.startswith("Optimizer.step") for name in names) == num_steps
        assert names.count("gloo:all_reduce") >= 2
    assert "aten::addmm" not in ddp.names(0)
    assert "aten::addmm" in ddp.names(2)


def test_pauses_and_cpu_time_are_noted(ddp: Recorded):
    for told in ddp.ranks:
        assert [step for step, _ in told["resumed"]] == [4, 6, 8, 10, 11, 14]
        ends = told["step_end_ns"]
        for step, resumed_ns in told["resumed"]:
            assert ends[step - 1] <= resumed_ns <= ends[step]
        assert [reading[0] for reading in told["step_cpu"]] == [4, 5, 6, 8, 9, 10]
        for before, after in zip(told["step_cpu"], told["step_cpu"][1:], strict=False):
            assert before[1] < after[1]
            assert before[2] <= after[2]
            assert before[3] < after[3]


def test_ddp_buckets_add_up_to_the_parameters(ddp: Recorded):
    assert ddp.ranks[0]["ddp"] == ddp.ranks[1]["ddp"]
    by_name = {one["parameters"][0]["name"]: one for one in ddp.ranks[0]["ddp"]}
    assert sorted(by_name) == ["Model.first.weight", "Sequential.0.weight"]
    for one in by_name.values():
        inside = sorted(i for bucket in one["buckets"] for i in bucket["parameters"])
        assert inside == list(range(len(one["parameters"])))
        for bucket in one["buckets"]:
            sizes = [one["parameters"][i]["size_bytes"] for i in bucket["parameters"]]
            assert bucket["size_bytes"] == sum(sizes)
    model, head = by_name["Model.first.weight"], by_name["Sequential.0.weight"]
    # One is never rebuilt, because some parameters are unused; the other is, in ready order.
    assert (len(model["buckets"]), model["find_unused_parameters"]) == (3, True)
    assert model["bucket_cap_bytes"] == int(0.3 * (1 << 20))
    assert model["ready_order"] == [7, 6, 3, 2, 1, 0]
    assert (len(head["buckets"]), head["gradient_as_bucket_view"]) == (1, True)
    assert head["buckets"][0]["parameters"] == [3, 2, 1, 0]


def test_groups_and_calls_match_across_ranks(ddp: Recorded):
    groups = [(g["name"], g["ranks"], g["backend"]) for g in ddp.ranks[0]["groups"]]
    assert groups == [("0", [0, 1], "gloo"), ("1", [0, 1], "gloo")]
    sums = [("all_reduce", "1", number, 400, -1) for number in range(7)]
    assert ddp.calls(0, "all_reduce") == ddp.calls(1, "all_reduce") == sums
    assert ddp.calls(0, "send", "recv") == [("send", "0", n, 40, 1) for n in range(7)]
    assert ddp.calls(1, "send", "recv") == [("recv", "0", n, 40, 0) for n in range(7)]


def test_modules_have_ranges_in_the_detailed_window(ddp: Recorded):
    modules = ddp.ranks[0]["modules"]
    assert modules["Model"] == "Model"
    assert modules["Model.second"] == "Linear"
    assert ddp.names(2).count("augury.module: Model.second") == 6  # two micro-batches per step
    assert not any(name.startswith("augury.module") for name in ddp.names(0))


def test_memory_by_kind_and_layer(ddp: Recorded):
    assert ddp.sizes("parameter")["Model.first.weight"] == 300 * 400 * 4
    assert "Model.unused.weight" not in ddp.sizes("gradient")
    assert ddp.sizes("gradient")["Model.first.weight"] == 300 * 400 * 4
    assert ddp.sizes("optimizer")["Model.first.weight"] == 2 * 300 * 400 * 4 + 4  # and a count
    activations = ddp.sizes("activation")
    assert activations["Model.first"] == 4 * 300 * 4  # its input
    assert activations["Model.second"] == 4 * 400 * 4
    assert activations["Model"] == 4 * 300 * 4  # the output of relu, counted once


def test_the_network_is_measured_when_asked(ddp: Recorded):
    counted = [
        [
            (c["size_bytes"], c["concurrent"], c["beside_compute"], len(c["durations_ns"]))
            for c in told["calibration"]
        ]
        for told in ddp.ranks
    ]
    assert counted[0] == counted[1]
    assert {size for size, *_ in counted[0]} >= {4 << 10, 1 << 20}
    for told in ddp.ranks:
        for one in told["calibration"]:
            assert min(one["durations_ns"]) > 0
            assert (one["compute_rate"] is not None) == one["beside_compute"]


def test_sharded_parameters_are_gathered_and_scattered(sharded: Recorded):
    for rank in (0, 1):
        found = sharded.calls(rank, "all_gather", "reduce_scatter")
        # The last layer is gathered again for backward; five steps were recorded.
        assert [call[0] for call in found[:5]] == ["all_gather"] * 3 + ["reduce_scatter"] * 2
        assert len(found) == 5 * 5
        first_bytes, last_bytes = (64 + 1) * 128 * 4, (128 + 1) * 64 * 4
        assert [call[3] for call in found[:2]] == [first_bytes, last_bytes]
        assert [call[2] for call in found] == list(range(25))
    assert sharded.sizes("parameter")["Sequential.2.weight"] == 128 * 64 * 4 // 2
    assert sharded.ranks[0]["modules"]["Sequential.2"] == "Linear"


def test_pipeline_stages_send_and_receive(sharded: Recorded):
    there = [("send", "0", n, 128, 1) for n in range(10)]
    back = [("recv", "0", n, 128, 1) for n in range(10)]
    assert sharded.calls(0, "send") == there
    assert sharded.calls(0, "recv") == back
    assert [call[2] for call in sharded.calls(1, "recv")] == list(range(10))
    assert "augury.module: Sequential#2.0" in sharded.names(1)


@pytest.mark.more
def test_a_compiled_model_is_compiled_no_more_often(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    plain = start(torchrun(training_kinds.write_kind(tmp_path, training_kinds.COMPILED)))
    kind, options = training_kinds.COMPILED, ("--steps", "2:4")
    recorded = Recorded(
        once(tmp_path_factory, "compiled", lambda folder: record_kind(folder, kind, *options))
    )
    assert sorted(recorded.output.splitlines()) == sorted(plain.stdout.splitlines())
    (ddp,) = recorded.ranks[0]["ddp"]
    assert [p["name"] for p in ddp["parameters"]][:2] == ["0.weight", "0.bias"]
    assert recorded.names(1).count("augury.module: Sequential") == 3


def test_a_range_over_many_steps_ends_the_recording_and_not_the_training(tmp_path: Path):
    script = write_training(
        tmp_path,
        each_step="""
    if step == 3:
        epoch = torch.profiler.record_function("epoch")
        epoch.__enter__()
    if step == 8:
        epoch.__exit__(None, None, None)
""",
    )
    done = record(tmp_path / "run", [sys.executable, str(script), "12"], "--steps", "2:6")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "run" / "rank-00000.json").read_text())
    assert "'epoch' was open" in told["trouble"]
    assert [bool(window["trace"]) for window in told["windows"]] == [True, False]


def test_a_record_states_threads_and_cores(tmp_path: Path):
    script = write_training(tmp_path, each_step="\n    torch.set_num_threads(3)\n")
    done = record(tmp_path / "run", [sys.executable, str(script), "8"], "--steps", "2:6")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "run" / "rank-00000.json").read_text())
    assert told["num_threads"] == 3
    assert told["core_numbers"] == sorted(os.sched_getaffinity(0))
    assert told["cores"] == len(told["core_numbers"])
