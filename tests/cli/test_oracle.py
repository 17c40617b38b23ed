"""``augury oracle`` and ``augury validate`` on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import augury
from augury.cli.main import main
from augury.core.results import oracle
from augury.oracle.model_reader.model_file import save_model_file
from tests.oracle.published import FIGURE
from tests.oracle.small import MODEL

ROOT = Path(__file__).parents[2]
ROW_FIELDS = {
    "strategy", "devices", "axes", "global_batch", "step_s", "compute_s", "comm_s",
    "exposed_comm_s", "memory_bytes", "feasible", "limit", "bottleneck", "interval_s",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    save_model_file(MODEL, path)
    return str(path)


def _oracle(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(["oracle", "--cluster", "abci", *args])
    said = capsys.readouterr()
    return code, said.out or said.err


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> dict:
    code, said = _oracle(capsys, *args, "--json")
    assert code == 0
    return json.loads(said)


def test_a_sweep_prints_a_table(model: str, capsys: pytest.CaptureFixture[str]):
    code, said = _oracle(
        capsys, "--model", model, "--devices", "4:64", "--global-batch", "512", "--samples", "51200"
    )
    assert code == 0
    for part in (
        "small",
        "Time per step",
        "Fastest",
        "Infeasible",
        "recommended: ",
        "next: augury",
    ):
        assert part in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_json_has_the_documented_rows(model: str, capsys: pytest.CaptureFixture[str]):
    found = _json(capsys, "--model", model, "--devices", "4,8", "--batch-per-device", "64")
    assert found["schema_version"] == 1
    assert len(found["rows"]) == 20
    for row in found["rows"]:
        assert row.keys() >= ROW_FIELDS
        assert row["global_batch"] == 64 * row["devices"]
        assert row["feasible"] == (row["why"] is None)
        low, high = row["interval_s"]
        assert low < row["step_s"] < high
        assert row["memory_bytes"] == pytest.approx(sum(row["memory_by_kind"].values()), abs=10)
        assert row["step_s"] == pytest.approx(row["compute_s"] + row["exposed_comm_s"])
    hybrid = next(row for row in found["rows"] if row["strategy"] == "data_filter")
    assert hybrid["axes"] == {"data": 1, "filter": 4}
    assert [part["level"] for part in hybrid["parts"]] == ["node", "node", "node"]
    best = found["recommended"]
    assert best["strategy"] in {row["strategy"] for row in found["rows"] if row["feasible"]}
    assert len(found["fastest"]) == 2


@pytest.mark.parametrize("more", [(), ("--recompute",), ("--fidelity", "replay")])
def test_no_efficiency_exceeds_100_pct(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    """Constants with a compute ratio below 1 make all compute faster, also that of one device."""
    words = ("--model", "resnet50", "--devices", "1:16", "--batch-per-device", "64", *more)
    found = [row for row in _json(capsys, *words)["rows"] if row["feasible"]]
    assert len(found) > 10
    for row in found:
        assert 0 < row["efficiency_pct"] <= 100 + 1e-9, (row["strategy"], row["devices"])


def test_infeasible_rows_state_the_reason(model: str, capsys: pytest.CaptureFixture[str]):
    found = _json(capsys, "--model", model, "--devices", "4:64", "--global-batch", "24")
    refused = {(row["strategy"], row["devices"]): row["why"] for row in found["rows"]}
    assert refused["data", 16] == "the batch does not divide by the devices"
    assert "at most 24 devices" in refused["data", 32]
    assert "at most 8 devices" in refused["filter", 16]


def test_each_option_changes_its_quantity(model: str, capsys: pytest.CaptureFixture[str]):
    base = ("--model", model, "--devices", "8", "--global-batch", "4096")

    def first(*more: str) -> dict:
        return _json(capsys, *base, "--strategy", "data", *more)["rows"][0]

    plain = first()
    assert first("--overlap", "1")["exposed_comm_s"] < plain["exposed_comm_s"]
    assert first("--recompute")["compute_s"] > plain["compute_s"]
    assert first("--precision", "fp16")["compute_s"] < plain["compute_s"]
    adam, none = (first("--optimizer", name)["memory_by_kind"] for name in ("adam", "sgd"))
    assert adam["optimizer"] > plain["memory_by_kind"]["optimizer"] > none["optimizer"] == 0
    assert first("--constants", "bare")["step_s"] != plain["step_s"]
    groups = _json(capsys, *base, "--strategy", "df", "--group", "2")["rows"][0]["axes"]
    assert groups == {"data": 4, "filter": 2}
    stages = _json(
        capsys, *base, "--strategy", "pipeline", "--devices", "2", "--micro-batches", "8"
    )
    assert stages["rows"][0]["axes"] == {"pipeline": 2, "micro_batches": 8}


def test_steps_can_be_replayed(model: str, capsys: pytest.CaptureFixture[str]):
    args = ("--model", model, "--devices", "4,8", "--global-batch", "64", "--schedule", "gpipe")
    closed, replayed = (
        _json(capsys, *args, "--fidelity", fidelity) for fidelity in ("closed", "replay")
    )
    assert replayed["notes"] == []
    for before, after in zip(closed["rows"], replayed["rows"], strict=True):
        assert before.keys() == after.keys()
        assert before["fidelity"] == "closed"
        assert after["fidelity"] == ("replay" if after["feasible"] else "closed")
        if after["strategy"] != "pipeline":
            assert after["step_s"] == pytest.approx(before["step_s"], rel=1e-3)
        else:
            assert after["step_s"] <= before["step_s"]
        assert after["step_s"] == pytest.approx(after["compute_s"] + after["exposed_comm_s"])
    code, said = _oracle(capsys, *args, "--fidelity", "replay")
    assert code == 0
    assert "replayed, by strategy" in said


def test_configurations_too_large_to_replay_are_noted(
    model: str, capsys: pytest.CaptureFixture[str]
):
    args = (
        "--model", model, "--devices", "2", "--global-batch", "262144", "--strategy", "pipeline",
        "--micro-batches", "262144", "--memory", "1TB",
    )  # fmt: skip
    found = _json(capsys, *args, "--fidelity", "replay")
    assert found["rows"][0]["fidelity"] == "closed"
    assert "pipeline on 2 devices is not replayed: a graph of" in found["notes"][0]
    assert "note: pipeline on 2 devices" in _oracle(capsys, *args, "--fidelity", "replay")[1]


@pytest.mark.parametrize("strategy", ["data", "zero3", "data_filter", "spatial", "pipeline"])
def test_a_graph_is_written_for_replay(
    strategy: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    graph = tmp_path / "one.augury"
    args = ("--model", model, "--devices", "4", "--global-batch", "64", "--fidelity", "replay")
    code, said = _oracle(capsys, *args, "--strategy", strategy, "-o", str(graph))
    assert code == 0
    assert f"wrote {graph}" in said
    assert f"next: augury replay {graph}" in said
    step_s = _json(capsys, *args, "--strategy", strategy)["rows"][0]["step_s"]
    assert main(["replay", str(graph), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["predicted_step_ns"] == pytest.approx(step_s * 1e9)
    assert replayed["num_ranks"] == 4
    assert _oracle(capsys, *args, "--strategy", strategy, "-o", str(graph))[0] == 2
    assert _oracle(capsys, *args, "--strategy", strategy, "-o", str(graph), "--force")[0] == 0


def test_a_graph_needs_exactly_one_configuration(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    graph = tmp_path / "one.augury"
    for more in (("--devices", "4:8", "--strategy", "data"), ("--devices", "4")):
        code, said = _oracle(
            capsys, "--model", model, "--global-batch", "64", "-o", str(graph), *more
        )
        assert code == 2
        assert "a graph is of one configuration" in said
    code, said = _oracle(
        capsys, "--model", model, "--global-batch", "6", "--devices", "4", "--strategy", "data",
        "-o", str(graph),
    )  # fmt: skip
    assert code == 4
    assert "does not divide" in said
    assert not graph.exists()


def test_levels_are_as_fast_as_collectives_were_timed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    timed = tmp_path / "timed.csv"
    timed.write_text("collective,devices,size_bytes,time_s\nall_reduce,4,1000,1\n")
    args = ("--model", model, "--devices", "4", "--global-batch", "64", "--strategy", "data")
    slow = _json(capsys, *args, "--collectives", str(timed))["rows"][0]
    assert slow["comm_s"] > 1000 * _json(capsys, *args)["rows"][0]["comm_s"]
    assert _oracle(capsys, *args, "--collectives", str(tmp_path))[0] == 3


def test_a_plot_is_written(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plot = tmp_path / "sweep.svg"
    args = ("--model", model, "--devices", "4:64", "--global-batch", "64", "--plot", str(plot))
    code, said = _oracle(capsys, *args)
    assert code == 0
    assert f"wrote {plot}" in said
    root = ElementTree.fromstring(plot.read_text())
    drawn = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(drawn) >= 12
    text = "".join(root.itertext())
    for part in ("time per step", "scaling efficiency", "memory per device", "data_spatial"):
        assert part in text
    assert _oracle(capsys, *args)[0] == 2
    assert _oracle(capsys, *args, "--force")[0] == 0


def test_a_page_is_written(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "oracle.html"
    args = ("--model", model, "--devices", "4:64", "--global-batch", "64", "--page", str(page))
    code, said = _oracle(capsys, *args)
    assert code == 0
    assert f"wrote {page}" in said
    text = page.read_text("utf-8")
    assert all(f">{words}<" in text for words in ("Time per step", "Memory", "data_spatial"))
    assert _oracle(capsys, *args)[0] == 2
    assert _oracle(capsys, *args, "--force")[0] == 0


def test_names_in_a_plot_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, plot = tmp_path / "model.json", tmp_path / "sweep.svg"
    save_model_file(replace(MODEL, name="<script>x</script>"), path)
    code, _ = _oracle(
        capsys, "--model", str(path), "--devices", "4", "--global-batch", "64", "--plot", str(plot)
    )
    assert code == 0
    assert "<script" not in plot.read_text()


def test_nothing_feasible_is_exit_4(model: str, capsys: pytest.CaptureFixture[str]):
    code, said = _oracle(
        capsys, "--model", model, "--devices", "8", "--global-batch", "64", "--memory", "1kB"
    )
    assert code == 4
    assert "No strategy is feasible." in said
    assert "of 1 kB per device" in said


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ("--strategy", "data", "--global-batch", "63"),
            "the batch does not divide by the devices",
        ),
        (("--strategy", "data_filter", "--global-batch", "63"), "does not divide by the groups"),
        (("--strategy", "filter", "--devices", "64"), "at most 8 devices: the fewest filters"),
        (("--strategy", "channel", "--devices", "64"), "at most 8 devices: the fewest chann"),
        (("--strategy", "spatial", "--devices", "1024"), "at most 256 devices: the extents"),
        (("--strategy", "pipeline", "--devices", "64"), "at most 4 devices: one layer per"),
        (("--strategy", "pipeline", "--devices", "4", "--micro-batches", "5"), "micro-batches"),
        (("--strategy", "data", "--devices", "8192", "--global-batch", "8192"), "abci has 4,352"),
    ],
)
def test_a_single_infeasible_configuration_is_still_a_row(
    model: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str
):
    args = ("--model", model, "--devices", "8", "--global-batch", "64", "--cluster", "abci", *args)
    code = main(["oracle", *args, "--json"])
    said = capsys.readouterr()
    assert code == 4
    document = json.loads(said.out)
    assert document["error"]["exit_code"] == 4
    (row,) = document["rows"]
    assert not row["feasible"]
    assert says in row["why"]
    assert says in said.err
    assert "remedy" in said.err


def test_a_model_that_cannot_be_traced_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    (tmp_path / "branching_model.py").write_text(
        "from torch import nn\n"
        "class Branching(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n"
        "        y = self.inner(x)\n"
        "        return -y if y.sum() > 0 else y\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, said = _oracle(
        capsys, "--model", "branching_model:Branching", "--input-shape", "8", "--global-batch", "64"
    )
    assert code == 3
    assert "cannot be run without data" in said
    assert "remedy: forward must not depend on values" in said


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--devices", "4"), 2, "the batch is not stated"),
        (("--global-batch", "4", "--batch-per-device", "4"), 2, "twice"),
        (("--global-batch", "4", "--devices", "x"), 2, "not numbers of devices"),
        (("--global-batch", "4", "--strategy", "magic"), 2, "no strategy"),
        (("--global-batch", "4", "--cluster", "none.toml"), 3, "cannot read"),
        (("--global-batch", "4", "--precision", "tf32"), 3, "V100 has no figure for tf32"),
        (("--global-batch", "4", "--constants", "none.json"), 3, "cannot read"),
        (("--global-batch", "4", "--model", "none.json"), 3, "cannot read"),
        (("--global-batch", "4", "--model", "nothing"), 3, "there is no model"),
    ],
)
def test_invalid_options_are_reported(
    model: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, says: str
):
    found, said = _oracle(capsys, "--model", model, *args)
    assert found == code
    assert says in said


def _measured(tmp_path: Path, model: str, rows: str) -> str:
    path = tmp_path / "measured.csv"
    head = "model,strategy,devices,global_batch,measured_step_s,measured_compute_s\n"
    path.write_text(head + rows.replace("M", model))
    return str(path)


ROWS = """M,data,4,256,0.004,0.003
M,data,8,512,0.005,0.003
M,data,16,1024,0.006,0.003
M,data,32,2048,0.007,0.003
M,filter,4,64,0.005,0.002
M,filter,8,64,0.009,0.002
"""


def test_validation_reports_accuracy_and_ranking(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    table = _measured(tmp_path, model, ROWS)
    constants = tmp_path / "constants.json"
    assert main(["validate", "oracle", "--measured", table, "--fit", table,
                 "-o", str(constants), "--json"]) == 0  # fmt: skip
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["num_rows"] == 6
    assert not fitted["is_held_out"]
    assert fitted["accuracy_by_strategy_pct"].keys() == {"data", "filter"}
    assert fitted["mean_regret_pct"] is not None
    answer = augury.validate_oracle(table, fit=Path(table))
    assert json.loads(answer.to_json()) == fitted
    answer.save_constants(tmp_path / "same.json")
    assert (tmp_path / "same.json").read_bytes() == constants.read_bytes()
    assert main(["validate", "oracle", "--measured", table, "--json"]) == 0
    bare = json.loads(capsys.readouterr().out)
    assert bare["is_held_out"]
    assert bare["fitted_on"] == ""
    assert bare["mean_accuracy_pct"] < fitted["mean_accuracy_pct"]
    again = ["validate", "oracle", "--measured", table, "--constants", str(constants), "--json"]
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["constants"] == fitted["constants"]
    base = ["oracle", "--model", model, "--cluster", "abci", "--global-batch", "64"]
    assert main([*base, "--constants", str(constants)]) == 0
    assert "6 measurements" in capsys.readouterr().out


def test_every_other_scale_is_held_out(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    table = _measured(tmp_path, model, ROWS)
    args = ["validate", "oracle", "--measured", table, "--fit", table, "--every-other", "first"]
    assert main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_held_out"]
    assert [(row["strategy"], row["devices"]) for row in found["rows"]] == [
        ("data", 8), ("data", 32), ("filter", 8),
    ]  # fmt: skip
    assert main(args) == 0
    said = capsys.readouterr().out
    assert "Accuracy" in said
    assert "Order of strategies" in said


def test_a_gate_that_fails_is_exit_5(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    table = _measured(tmp_path, model, ROWS)
    assert main(["validate", "oracle", "--measured", table, "--at-least", "99.9"]) == 5
    assert "below 99.9 %" in capsys.readouterr().err
    assert main(["validate", "oracle", "--measured", table, "--at-least", "99.9", "--json"]) == 5
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["exit_code"] == 5
    assert document["num_rows"] == 6


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--every-other", "first"), 2, "give --fit"),
        (("--model", "nothing"), 3, "has no rows of nothing"),
        (("--measured", "none.csv"), 3, "cannot read"),
    ],
)
def test_invalid_validations_are_reported(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], args, code: int, says: str
):
    table = _measured(tmp_path, model, ROWS)
    assert main(["validate", "oracle", "--measured", table, *args]) == code
    assert says in capsys.readouterr().err


def test_the_published_figure_is_read(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("torch")
    args = ["validate", "oracle", "--measured", str(FIGURE), "--constants", "published"]
    assert main([*args, "--model", "VGG16"]) == 0
    said = capsys.readouterr().out
    assert "Bare equations" in said
    assert re.search(r"mean accuracy 9\d\.\d %", said)


def test_a_model_of_the_user_is_validated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(),\n"
        "                         nn.Linear(8 * 16 * 16, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = _json(
        capsys, "--model", "own_net:make", "--input-shape", "3x16x16", "--devices", "4",
        "--global-batch", "64",
    )  # fmt: skip
    assert found["num_parameters"] == 3 * 8 * 9 + 8 + 8 * 16 * 16 * 10 + 10


def test_every_field_is_documented():
    documented = (ROOT / "docs" / "cli.md").read_text("utf-8")
    structs = [
        value
        for value in vars(oracle).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    ]
    assert oracle.OracleRow in structs
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in documented, f"{struct.__name__}.{field.name}"
