"""Rows of the oracle suite from a job's record: synthetic times with known sums."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.testbed.strategies.cnns import CNNS
from benchmarks.testbed.strategies.links import messages
from benchmarks.validate.oracle_cores import on_shared_cores
from benchmarks.validate.oracle_layers import model_of
from benchmarks.validate.oracle_record import Record
from benchmarks.validate.oracle_rows import outcome_of, rows_of, serial_step_s
from benchmarks.validate.oracle_suite import SETTINGS, checks
from benchmarks.validate.progress import Progress
from benchmarks.validate.revision import Revision

from augury.core.graph.builder import GraphBuilder
from augury.replay.run import replay

CNN = CNNS["tiny"]
BETA = 1e-8
SMALL_S = 1e-3
FORWARD_S, BACKWARD_S, UPDATE_S = 0.010, 0.020, 0.006
STRATEGIES = (
    "data", "spatial", "filter", "channel", "data_filter", "data_spatial", "pipeline", "zero3",
)  # fmt: skip
REPEATED = 5


def ring_s(kind: str, num: int, size_bytes: int) -> float:
    if kind in ("swap", "send"):
        return SMALL_S + size_bytes * BETA
    times = 2 if kind == "all_reduce" else 1
    return times * (num - 1) / num * size_bytes * BETA


def job(num_ranks: int = 4, cores: int = 4, step_ns: Callable[[str], int] = len) -> dict:
    num_layers = len(CNN.build())
    sizes = {"world": num_ranks, "pair": 2, "across": 2}

    def alone(strategy: str) -> dict:
        num = 1 if strategy == "zero3" else num_layers
        return {
            "forward_s": [[FORWARD_S] * num] * REPEATED,
            "backward_s": [[BACKWARD_S] * num] * REPEATED,
            "update_s": [UPDATE_S] * REPEATED,
        }

    return {
        "cnn": CNN.name,
        "num_ranks": num_ranks,
        "cores": cores,
        "first_layers": [0, 1, 2, 3],
        "differences": dict.fromkeys(STRATEGIES, 1e-15),
        "links": [
            asdict(one)
            | {"times_s": [ring_s(one.kind, sizes[one.group], one.size_bytes)] * REPEATED}
            for one in messages(CNN, num_ranks)
        ],
        "layers": [{name: alone(name) for name in STRATEGIES}] * num_ranks,
        "steps_ns": {name: [[step_ns(name)] * 2] * 6 for name in STRATEGIES},
    }


def progress_in(folder: Path) -> Progress:
    return Progress(folder=folder, revision=Revision(commit="abc"))


def predicted(tmp_path: Path, **words: int) -> dict[str, float]:
    (tmp_path / "job.json").write_text(json.dumps(job(**words)))
    return {name: ns / 1e9 for name, ns in outcome_of("case", tmp_path).predicted_ns.items()}


def test_a_step_is_its_layers_and_its_communications(tmp_path: Path) -> None:
    found = predicted(tmp_path)
    model = model_of(CNN.name)
    gradients = ring_s("all_reduce", 4, 4 * model.num_parameters)
    compute = len(model.layers) * (FORWARD_S + BACKWARD_S) + UPDATE_S
    weighted = [layer for layer in model.layers if layer.num_parameters]
    outputs = 4 * CNN.batch * sum(int(np.prod(layer.output_shape)) for layer in weighted[:-1])
    layerwise = 1.5 * ring_s("all_reduce", 4, outputs)
    assert found["data"] == pytest.approx(compute + gradients)
    assert found["filter"] == found["channel"] == pytest.approx(compute + layerwise)
    in_pairs = 1.5 * ring_s("all_reduce", 2, outputs // 2)
    between = ring_s("all_reduce", 2, 2 * model.num_parameters)
    assert found["data_filter"] == pytest.approx(compute + in_pairs + between)
    once = FORWARD_S + BACKWARD_S + UPDATE_S
    assert found["zero3"] == pytest.approx(once + 1.5 * gradients)


@pytest.mark.parametrize("cores", [4, 2])
def test_serial_rows_use_one_process_and_one_network(cores: int) -> None:
    """Split layers and other communications of the strategies are not used."""
    document = job(cores=cores)
    for rank in document["layers"]:
        for name in set(STRATEGIES) - {"pipeline"}:
            rank[name] = {"forward_s": [], "backward_s": [], "update_s": []}
    for link in document["links"]:
        if (link["kind"], link["group"]) != ("all_reduce", "world"):
            link["times_s"] = []
    record = Record(document)
    model = model_of(CNN.name)
    samples = CNN.batch // CNN.micro_batches
    sharing = 4 // cores
    layers_s = sharing * len(model.layers) * (FORWARD_S + BACKWARD_S) * CNN.batch / 4 / samples
    gradients_s = ring_s("all_reduce", 4, 4 * model.num_parameters)
    update_s = sharing * UPDATE_S
    assert serial_step_s(record, "data") == pytest.approx(layers_s + update_s + gradients_s)
    scattered_s = 1.5 * gradients_s
    assert serial_step_s(record, "zero3") == pytest.approx(layers_s + update_s / 4 + scattered_s)
    for name in STRATEGIES:
        assert serial_step_s(record, name) > 0


def test_halos_take_their_measured_time(tmp_path: Path) -> None:
    found = predicted(tmp_path)
    lines = [4 * 16, 8 * 16, 8 * 8]  # channels and extents of the inputs of convolutions
    each = [ring_s("swap", 2, 4 * CNN.batch * line // 2) for line in lines]
    once = 2 * sum(each) - each[0]  # images have no gradients
    assert found["spatial"] == pytest.approx(found["data"] + 2 * once)
    inside, between = (ring_s("all_reduce", 2, 4 * model_of(CNN.name).num_parameters),) * 2
    alone = found["data"] - ring_s("all_reduce", 4, 4 * model_of(CNN.name).num_parameters)
    assert found["data_spatial"] == pytest.approx(alone + once + inside + between)


def test_stages_on_shared_cores_take_longer_but_not_twice_as_long(tmp_path: Path) -> None:
    apart, shared = (predicted(tmp_path, cores=cores)["pipeline"] for cores in (4, 2))
    assert 1.1 * apart < shared < 2 * apart


def test_ranks_on_one_core_share_it() -> None:
    b = GraphBuilder()
    for _ in range(4):
        rank = b.rank()
        b.op("forward", rank=rank, resource=b.resource("compute", rank=rank), work_ns=100)
    graph = b.build()
    assert [replay(on_shared_cores(graph, cores)).step_ns for cores in (4, 2, 1)] == [100, 200, 400]


def test_all_ranks_wait_for_the_slowest_core(tmp_path: Path) -> None:
    document = job(cores=2)
    slow = document["layers"][1] | {
        "data": document["layers"][1]["data"] | {"update_s": [0.106] * 5}
    }
    document["layers"] = [document["layers"][0], slow, document["layers"][2], slow]
    (tmp_path / "job.json").write_text(json.dumps(document))
    found = outcome_of("case", tmp_path).predicted_ns["data"] / 1e9
    assert found - predicted(tmp_path)["data"] == pytest.approx(0.1)


@pytest.mark.parametrize(("right", "holds"), [(True, True), (False, False)])
def test_gates_require_accuracy_and_the_fastest_strategy(
    tmp_path: Path, right: bool, holds: bool
) -> None:
    folder = tmp_path / SETTINGS[2].name
    folder.mkdir()
    (folder / "setting.json").write_text("{}")
    (folder / "job.json").write_text(json.dumps(job()))
    known = outcome_of("case", folder).predicted_ns
    slowest = max(known, key=known.__getitem__)

    def took(name: str) -> int:
        return known[name] if right or name != slowest else known[name] // 20

    (folder / "job.json").write_text(json.dumps(job(step_ns=took)))
    found = {one.case.rpartition("/")[2]: one for one in checks([], None, progress_in(tmp_path))}
    assert found["data-accuracy-missing"].holds
    assert found["mean-accuracy-missing"].holds is holds
    assert found["behind-fastest"].holds is holds
    assert found["difference"].holds
    rows = rows_of(outcome_of("case", folder))
    assert [row.kind for row in rows] == ["oracle"] * len(STRATEGIES) + ["serial"] * len(STRATEGIES)
    assert len({row.case for row in rows}) == len(rows)
