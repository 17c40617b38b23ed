import json
from pathlib import Path

import pytest

from augury.core.graph.graph_file import load_graph
from tests.cli.conftest import Runner

SCHEMES = [
    [],
    ["--scheme", "allreduce", "--algorithm", "ring", "--bucket", "10MB"],
    ["--algorithm", "two-level", "--ranks-per-host", "2"],
    ["--algorithm", "tree", "--bandwidth", "1GB/s", "--latency", "5us"],
    ["--scheme", "ps", "--servers", "3", "--partition", "1MB", "--no-barrier"],
    ["--scheme", "pipeline", "--stages", "4", "--micro-batches", "8", "--schedule", "gpipe"],
    ["--model", "transformer", "--jitter", "0.1", "--seed", "7", "--steps", "2"],
    ["--straggler", "3:1.5", "--straggler", "1:2"],
]


@pytest.mark.parametrize("options", SCHEMES, ids=" ".join)
def test_synthetic_graphs_can_be_replayed(run: Runner, options: list[str]) -> None:
    outcome = run("synth", "-o", "x.augury", "--ranks", "4", "--layers", "5", *options)
    assert outcome.code == 0, outcome.err
    assert "next: augury replay x.augury" in outcome.out
    assert load_graph("x.augury").num_ranks == 4
    assert run("replay", "x.augury").code == 0


def test_json(run: Runner) -> None:
    document = json.loads(run("synth", "-o", "x.augury", "--scheme", "ps", "--json").out)
    assert document["schema_version"] == 1
    assert (document["num_ranks"], document["num_servers"]) == (8, 2)
    assert document["num_ops"] == load_graph("x.augury").num_ops


def test_cluster_from_a_file(run: Runner, tmp_path: Path) -> None:
    link = "latency_ns = 1000\nbandwidth_bytes_per_s = 1000000000\n"
    (tmp_path / "c.toml").write_text(
        f"num_hosts = 3\nranks_per_host = 2\n[intra]\n{link}[inter]\n{link}"
    )
    assert run("synth", "-o", "x.augury", "--cluster", "c.toml").code == 0
    assert load_graph("x.augury").num_ranks == 6
    assert run("synth", "-o", "y.augury", "--cluster", "c.toml", "--ranks", "4").code == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--straggler", "3"],
        ["--straggler", "9:2"],
        ["--bandwidth", "fast"],
        ["--bucket", "-1"],
        ["--ranks", "0"],
        ["--ranks", "4", "--ranks-per-host", "3"],
        ["--model", "recurrent"],
        ["--scheme", "pipeline", "--stages", "3"],
    ],
    ids=" ".join,
)
def test_impossible_options_are_usage_errors(run: Runner, options: list[str]) -> None:
    outcome = run("synth", "-o", "x.augury", *options)
    assert outcome.code == 2
    assert outcome.err.startswith("augury: error: ")
    assert not Path("x.augury").exists()


def test_refuses_to_overwrite(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "x.augury").write_text("mine")
    assert run("synth", "-o", "x.augury").code == 2
    assert run("synth", "-o", "x.augury", "--force").code == 0
