"""``augury run --wire`` on real jobs: all their processes are recorded, and train the same."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from augury.capture.settings import Settings
from augury.capture.wire.preload import LIBRARY_VARIABLE, wire_environment, wire_library
from augury.core.errors import UsageError
from tests.capture.jobs import record, start, start_ranks, torchrun, write_training
from tests.capture.wired import PAIR, Written, read_all

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
pytestmark = pytest.mark.usefixtures("wire_recorder")


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("loss")]


def addresses(written: Written, own: str, other: str) -> dict[tuple[bytes, ...], np.void]:
    return {
        (
            row[own].tobytes(),
            bytes(row[f"{own}_port"]),
            row[other].tobytes(),
            bytes(row[f"{other}_port"]),
        ): row
        for row in written.connections
    }


def assert_bytes_arrived(one: Written, other: Written) -> int:
    """Of every connection between the two; how many there are."""
    near, far = addresses(one, "local", "peer"), addresses(other, "peer", "local")
    both = near.keys() & far.keys()
    for key in both:
        assert near[key]["sent"] == far[key]["received"]
        assert near[key]["received"] == far[key]["sent"]
    return len(both)


@needs_torch
def test_two_ranks_and_their_launcher(tmp_path: Path):
    script = write_training(tmp_path)
    plain = start_ranks([sys.executable, str(script), "20"], num_ranks=2)
    out = tmp_path / "run"
    done = record(out, torchrun(script, "20"), "--steps", "5:9", "--wire", "--json")
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == [loss for rank in plain for loss in losses(rank.stdout)]
    assert list(out.glob("*.bin")) == []
    files = read_all(out)
    assert sorted(int(one.header["rank"]) for one in files) == [-1, 0, 1]
    ranks = {int(one.header["rank"]): one for one in files}
    # Torchrun's store ends it in any order; what gloo sends is waited for.
    assert assert_bytes_arrived(ranks[0], ranks[1]) >= 2
    for rank in (0, 1):
        assert ranks[rank].path.name.startswith(f"rank-{rank:05d}.wire-")
        told = json.loads((out / f"rank-{rank:05d}.json").read_text())
        assert told["trouble"] is None
        assert told["pid"] == ranks[rank].header["pid"]
        assert_windows_only(ranks[rank], told)
    told = json.loads(done.stdout.splitlines()[-1])["result"]
    assert told["ledger"] == []
    assert told["wire"]["num_processes"] == 3
    assert told["wire"]["events_written_over"] == 0
    assert told["wire"]["num_events"] == sum(len(one.events) for one in files)
    assert told["wire"]["calls_not_kept"] > 0


def assert_windows_only(written: Written, told: dict) -> None:
    """Between two windows, and after the last, nothing is kept."""
    ends, resumed = told["step_end_ns"], dict(told["resumed"])
    starts = written.events["start_ns"].astype(np.int64)
    light, detail = told["windows"]

    def kept(first_ns: int, last_ns: int) -> int:
        return int(((starts > first_ns) & (starts < last_ns)).sum())

    assert kept(0, ends[0])
    for window in (light, detail):
        assert kept(ends[window["first"] - 1], ends[window["last"] - 1])
    assert kept(ends[2], ends[3]) == 0
    assert kept(resumed[light["last"]], ends[detail["first"] - 1]) == 0
    assert kept(resumed[detail["last"]], ends[-1]) == 0


@pytest.mark.more
@needs_torch
def test_processes_that_are_ranks_already_begin_again(tmp_path: Path):
    """As under ``torchrun ... -m augury run --wire``; one of them is not to be profiled."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "augury", "run", "--wire", "--out", str(out), "--steps", "2:4"]
    script = write_training(tmp_path)
    done = start_ranks([*words, "--ranks", "0", str(script), "12"], num_ranks=2)
    for rank in done:
        assert rank.returncode == 0, rank.stderr
        assert len(losses(rank.stdout)) == 1
    assert list(out.glob("*.bin")) == []
    first, second = sorted(read_all(out), key=lambda one: int(one.header["rank"]))
    # A rank packs its file while its last connections are still open.
    assert {first.header["rank"].item(), second.header["rank"].item()} == {0, 1}
    near, far = addresses(first, "local", "peer"), addresses(second, "peer", "local")
    assert len(near.keys() & far.keys()) >= 2
    assert "TCP traffic of 2 processes" in done[0].stderr
    assert "error" not in done[0].stderr


def test_a_job_of_any_kind(tmp_path: Path):
    """No framework at all; what was there before goes only if that is asked for."""
    script = tmp_path / "job.py"
    talk = "near, far = pair()\nfor _ in range(400): near.send(b'x'); take(far, 1)\n"
    script.write_text(PAIR + talk)
    out = tmp_path / "run"
    out.mkdir()
    for name in ("process.wire-1-a.bin", ".process.wire-1-b", "rank-00003.wire-1-c.wire.gz"):
        (out / name).touch()
    (out / "mine.wire").touch()
    job = [sys.executable, str(script)]
    assert record(out, job, "--wire").returncode == 2
    done = record(out, job, "--wire", "--wire-events", "256", "--force")
    assert done.returncode == 0, done.stderr
    (written,) = (one for one in read_all(out))
    assert len(written.events) == 256
    assert sorted(path.name for path in out.iterdir()) == sorted(["mine.wire", written.path.name])
    assert "TCP traffic of 1 process, 2 connections: 256 events kept" in done.stderr
    assert "later calls took the place of earlier ones" in done.stderr
    assert "only the wire was recorded" in done.stderr


def test_a_rank_that_left_nothing_is_named(tmp_path: Path):
    told = {"rank": 1, "world_size": 2, "host": "h", "step_end_ns": [1, 2]}
    script = (
        f"import json; open(r'{tmp_path}/run/rank-00001.json', 'w').write('''{json.dumps(told)}''')"
    )
    (tmp_path / "job.py").write_text(script)
    done = record(tmp_path / "run", [sys.executable, str(tmp_path / "job.py")], "--wire")
    assert "a rank left no record of the wire (rank 1)" in done.stderr


def test_a_missing_library_is_said_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done = record(tmp_path / "run", ["true"], "--wire", **{LIBRARY_VARIABLE: "/no/such.so"})
    assert done.returncode == 2
    assert "the wire recorder is not there: /no/such.so" in done.stderr
    assert not (tmp_path / "run").exists()
    odd = tmp_path / "a b.so"
    odd.touch()
    monkeypatch.setenv(LIBRARY_VARIABLE, str(odd))
    with pytest.raises(UsageError, match="LD_PRELOAD cannot name"):
        wire_library()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="needs Linux with glibc"):
        wire_library()


def test_what_is_preloaded_already_stays(wire_recorder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LD_PRELOAD", f"first.so second.so:{wire_recorder}")
    told = wire_environment(Settings(out="/run", wire=True, wire_events=300))
    assert told["LD_PRELOAD"] == f"{wire_recorder}:first.so second.so"
    assert (told["AUGURY_WIRE"], told["AUGURY_WIRE_EVENTS"]) == ("/run", "300")
    assert wire_environment(Settings(out="/run")) == {}
    with pytest.raises(UsageError, match="too long"):
        wire_environment(Settings(out="/" + "x" * 600, wire=True))


@pytest.mark.parametrize(("library", "status"), [("", "ok"), ("/no/such.so", "warn")])
def test_the_doctor_tries_it(wire_recorder: Path, library: str, status: str):
    named = {LIBRARY_VARIABLE: library or str(wire_recorder)}
    done = start([sys.executable, "-m", "augury", "doctor", "--json"], **named)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["wire recorder"]["status"] == status
    assert bool(checks["wire recorder"]["remedy"]) == (status == "warn")
