"""Inputs that are pipes or devices are refused without waiting for their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import environment
from tests.ingest.written import Run

TRY_ALL = """
import contextlib, io, json, sys
from augury.cli.main import main

for words in json.load(open(sys.argv[1])):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(words)
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


def outcomes(tmp_path: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Outcomes of the commands in one process that must terminate."""
    asked = tmp_path / "commands.json"
    asked.write_text(json.dumps(commands))
    done = subprocess.run(
        [sys.executable, "-c", TRY_ALL, str(asked)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_every_verb_refuses_pipes_and_devices(tmp_path: Path, kind: str) -> None:
    odd = tmp_path / "odd.json"
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero")
    cluster = tmp_path / "odd.toml"
    cluster.symlink_to(odd)
    run = str(Run(tmp_path / "run").write())
    batch = ["--batch-per-device", "32"]
    resnet = ["oracle", "--model", "resnet50", "--cluster", "abci", *batch]
    commands = [
        ["replay", str(odd)],
        ["report", str(odd), "-o", "timeline.json"],
        ["whatif", str(odd), "--bandwidth", "2x"],
        ["schedule", str(odd)],
        ["import", str(odd), "-o", "imported"],
        ["diff", run, run, "--plan", str(odd)],
        ["run", "--plan", str(odd), "--", "true"],
        ["oracle", "--model", str(odd), "--cluster", "abci", *batch],
        ["oracle", "--model", "resnet50", "--cluster", str(cluster), *batch],
        [*resnet, "--collectives", str(odd)],
        [*resnet, "--constants", str(odd)],
        ["validate", "oracle", "--measured", str(odd)],
        ["synth", "--cluster", str(cluster), "-o", "made.augury"],
    ]
    for words, (code, said) in zip(commands, outcomes(tmp_path, commands), strict=True):
        assert code == 3, (words, said)
        assert f"is a {kind}, not a file" in said, (words, said)


def test_a_pipe_in_place_of_a_record_is_named(tmp_path: Path) -> None:
    folder = Run(tmp_path / "run").write()
    (folder / "rank-00001.json").unlink()
    os.mkfifo(folder / "rank-00001.json")
    (folder / "rank-00000.0.trace.json.gz").unlink()
    (folder / "rank-00000.0.trace.json.gz").symlink_to("/dev/zero")
    ((code, said),) = outcomes(tmp_path, [["replay", str(folder)]])
    assert code == 0, said
    (folder / "rank-00000.json").unlink()
    (folder / "rank-00000.json").symlink_to("/dev/zero")
    ((code, said),) = outcomes(tmp_path, [["replay", str(folder)]])
    assert code == 3
    assert "is a device, not a file" in said
