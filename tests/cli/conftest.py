"""Fixtures that run the command line in this process or as a subprocess."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import augury
from augury.cli.main import main
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph_file import save_graph


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """Environment of a subprocess that finds the package where this process found it."""
    here = str(Path(augury.__file__).parents[1])
    paths = filter(None, (here, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Runner:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str | os.PathLike[str]) -> Outcome:
        self._capsys.readouterr()
        code = main([os.fspath(arg) for arg in args])
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Runs a verb in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Runner(capsys)


@pytest.fixture
def run_process(tmp_path: Path) -> Any:
    def run(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "augury", *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **{"env": environment(), **options},
        )

    return run


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    """Two ranks, one of them slow, with a measured step."""
    builder = GraphBuilder()
    gang = builder.gang()
    for rank, work_ns in ((builder.rank(), 1_000_000), (builder.rank(), 2_000_000)):
        compute = builder.resource("compute", rank=rank)
        stream = builder.resource("comm", rank=rank)
        backward = builder.op("backward", rank=rank, resource=compute, work_ns=work_ns)
        builder.op(
            "reduce", rank=rank, resource=stream, work_ns=500_000, gang=gang, after=[backward]
        )
        builder.measured_step(rank=rank, step=0, dur_ns=2_600_000, explained_ns=2_400_000)
        builder.buffer(1_000, rank=rank, taken_by=backward)
    path = tmp_path / "run.augury"
    save_graph(builder.build(), path)
    return path
