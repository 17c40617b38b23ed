"""Exit codes, error messages, and behaviour in a shell."""

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from augury import api
from augury.cli.numpy_threads import import_numpy
from augury.core.graph.graph import Edges
from augury.core.graph.graph_file import MAGIC, load_graph, save_graph
from tests.cli.conftest import Outcome, Runner, environment


def one_message(outcome: Outcome) -> bool:
    first, *rest = outcome.err.splitlines()
    return (
        first.startswith("augury: error: ")
        and all(line.startswith("  remedy: ") for line in rest)
        and len(rest) <= 1
    )


def test_version_and_help(run: Runner) -> None:
    assert run("--version").out.startswith("augury ")
    outcome = run("--help")
    assert outcome.code == 0
    for verb in ("replay", "report", "synth", "demo", "doctor"):
        assert f"\n  {verb} " in outcome.out
        assert run(verb, "--help").code == 0


@pytest.mark.parametrize(
    "args",
    [["no-such-verb"], ["replay"], ["replay", "x", "--nope"], ["replay", "x", "--engine", "warp"]],
    ids=" ".join,
)
def test_usage_errors(run: Runner, args: list[str]) -> None:
    outcome = run(*args)
    assert outcome.code == 2
    assert one_message(outcome)
    assert "--help" in outcome.err


def test_no_verb_is_a_usage_error_that_helps(run: Runner) -> None:
    outcome = run()
    assert outcome.code == 2
    assert "Commands:" in outcome.out


def damage(data: bytes, how: str) -> bytes:
    header_bytes = struct.unpack_from("<I", data, len(MAGIC) + 4)[0]
    return {
        "empty": b"",
        "one byte": data[:1],
        "truncated header": data[: header_bytes // 2],
        "truncated": data[:-3],
        "longer": data + b"x",
        "wrong magic": b"PK\x03\x04" + data[4:],
        "wrong version": MAGIC + struct.pack("<I", 99) + data[len(MAGIC) + 4 :],
        "huge header": MAGIC + struct.pack("<II", 1, 2**32 - 1) + data[len(MAGIC) + 8 :],
        "flipped": data[:-1] + bytes([data[-1] ^ 1]),
        "text": b'{"traceEvents": []}',
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "one byte",
        "truncated header",
        "truncated",
        "longer",
        "wrong magic",
        "wrong version",
        "huge header",
        "flipped",
        "text",
    ],
)
def test_damaged_files(run: Runner, graph_path: Path, how: str) -> None:
    graph_path.write_bytes(damage(graph_path.read_bytes(), how))
    outcome = run("replay", graph_path, "--json")
    assert outcome.code == 3
    assert one_message(outcome)
    error = json.loads(outcome.out)
    assert error["schema_version"] == 1
    assert error["error"]["exit_code"] == 3
    assert error["error"]["remedy"]


def test_a_cycle_is_bad_input(run: Runner, graph_path: Path) -> None:
    graph = load_graph(graph_path)
    cyclic = graph.evolve(edges=Edges(first=[0, 1, 2, 2, 2], dst=[1, 0]))
    save_graph(cyclic, graph_path, force=True)
    outcome = run("replay", graph_path)
    assert outcome.code == 3
    assert one_message(outcome)
    assert "cycle" in outcome.err


@pytest.mark.parametrize("path", ["missing.augury", "."])
def test_unreadable_paths(run: Runner, path: str) -> None:
    outcome = run("replay", path)
    assert outcome.code == 3
    assert one_message(outcome)


def test_messages_escape_control_characters(run: Runner) -> None:
    outcome = run("replay", "\x1b[31mevil\x1b[0m\u202e\n.augury")
    assert outcome.code == 3
    assert one_message(outcome)
    assert "\x1b" not in outcome.err
    assert "\\x1b[31mevil" in outcome.err


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(api, "open", fail)


def test_unexpected_errors_are_one_line(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUGURY_TRACEBACK", raising=False)
    failing(monkeypatch, ZeroDivisionError("oh"))
    outcome = run("replay", "x")
    assert outcome.code == 1
    assert one_message(outcome)
    assert "AUGURY_TRACEBACK=1" in outcome.err
    monkeypatch.setenv("AUGURY_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run("replay", "x")


def test_out_of_memory(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, MemoryError())
    outcome = run("replay", "x")
    assert outcome.code == 1
    assert "memory" in outcome.err


def test_interrupt(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    outcome = run("replay", "x")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_module_and_stdout_of_a_real_process(run_process: Any, graph_path: Path) -> None:
    done = run_process("replay", str(graph_path))
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    done = run_process("replay", "missing")
    assert (done.returncode, done.stdout) == (3, "")


def test_a_closed_pipe_is_exit_141(graph_path: Path) -> None:
    command = [sys.executable, "-m", "augury", "replay", str(graph_path), "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_tolerated(graph_path: Path, closed: str) -> None:
    script = f'exec "$0" -m augury replay "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, str(graph_path)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_message(graph_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "augury", "replay", str(graph_path)],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("augury: error: the operating system reports: No space left")
    assert len(done.stderr.splitlines()) == 2


def test_an_ascii_encoding_is_supported(run_process: Any, graph_path: Path) -> None:
    done = run_process(
        "replay", str(graph_path), env={**environment(), "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_help_imports_nothing_heavy(run_process: Any) -> None:
    done = run_process("--help", env={**environment(), "PYTHONPROFILEIMPORTTIME": "1"})
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "augury.cli.app" in imported
    assert not imported & {"numpy", "rich", "polars", "msgspec", "scipy"}


def test_linear_algebra_threads_are_not_started_nor_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    import_numpy()
    assert "OPENBLAS_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("words", [[], ["replay"], ["run"]])
def test_h_is_help(run: Runner, words: list[str]) -> None:
    short = run(*words, "-h")
    assert short.code == 0
    assert short.out.startswith("Usage: augury")
    assert run(*words, "--help").out == short.out


def test_shells_complete_verbs_and_options() -> None:
    def completed(words: str, at: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "augury"],
            env={
                **os.environ,
                "_AUGURY_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(at),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert completed("augury re", 1) == ["replay", "report"]
    assert completed("augury replay --ti", 2) == ["--timeline"]
