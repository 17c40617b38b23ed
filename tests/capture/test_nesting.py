"""Recording started inside the job: by an outer launcher, or by the script itself."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.capture.jobs import start, torchrun, write_training

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SHOW = """
path = sys.path[0] == os.path.dirname(__file__)
# In one write: two processes share the stream.
os.write(1, f"argv {sys.argv[1:]} main {__name__} path {path}\\n".encode())
import pickle
class Own: pass
assert isinstance(pickle.loads(pickle.dumps(Own())), Own)
"""


def nested(out: Path, *words: str, num_ranks: int = 2, **environment: str):
    """``torchrun ... -m augury run --out OUT WORDS...``"""
    launcher = torchrun(Path("-m"), num_ranks=num_ranks)
    return start([*launcher, "augury", "run", "--out", str(out), *words], **environment)


def alone(out: Path, *words: str):
    """Does the same without torchrun, which is slow and only sets the environment."""
    augury = [sys.executable, "-m", "augury", "run", "--out", str(out), *words]
    return start(augury, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")


def read(out: Path, rank: int) -> dict:
    return json.loads((out / f"rank-{rank:05d}.json").read_text())


def test_torchrun_outside(tmp_path: Path):
    """Only rank 1 is profiled; arguments after the script belong to the script."""
    script, out = write_training(tmp_path, at_end=SHOW), tmp_path / "run"
    done = nested(out, "--steps", "3:6", "--ranks", "1", str(script), "12", "--steps", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("argv ['12', '--steps', 'x'] main __main__ path True") == 2
    assert done.stderr.count("2 ranks recorded") == 1
    assert f"next: augury diagnose {out}" in done.stderr
    assert (
        "a rank was excluded from profiling (--ranks): only its step times are known (rank 0)"
        in done.stderr
    )
    records = [read(out, rank) for rank in (0, 1)]
    assert [len(record["step_end_ns"]) for record in records] == [12, 12]
    assert [bool(record["windows"]) for record in records] == [False, True]
    assert [h["moment"] for h in records[1]["handshake"]] == ["start", "end"]
    assert (out / "rank-00001.0.trace.json.gz").exists()
    assert not [path for path in out.iterdir() if path.name.startswith((".", "rank-00000.0"))]


def test_a_module_and_its_exit_code(tmp_path: Path):
    script, out = write_training(tmp_path, at_end="sys.exit(7)"), tmp_path / "run"
    script.rename(tmp_path / "own_training.py")
    command = [sys.executable, "-m", "augury", "run", "--out", str(out), "--steps", "1:3"]
    command = [*command, "--json", "--", "-m", "own_training", "4"]
    done = start(command, cwd=tmp_path, RANK="0", WORLD_SIZE="1")
    assert done.returncode == 7, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["exit_code"] == 7
    assert said["result"]["ranks"][0]["num_steps"] == 4
    record = json.loads((out / "rank-00000.json").read_text())
    assert record["job_command"] == []  # the command that started the ranks is unknown


def test_a_folder_in_use_is_kept_unless_forced(tmp_path: Path):
    """An error that the script does not catch is printed as the script's own."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "rank-00003.json").write_text("old")
    (out / "mine.txt").write_text("kept")
    script = write_training(tmp_path, at_end="raise KeyError('its own')")
    done = alone(out, "--steps", "1:3", str(script), "4")
    assert done.returncode == 2
    assert "exists and is not empty" in done.stderr
    assert (out / "rank-00003.json").exists()
    done = alone(out, "--force", "--steps", "1:3", "--", str(script), "4")
    assert done.returncode == 1
    assert "KeyError: 'its own'" in done.stderr
    assert "runpy" not in done.stderr
    assert "defect" not in done.stderr
    assert "1 rank recorded" in done.stderr
    assert len(read(out, 0)["step_end_ns"]) == 4
    assert (out / "mine.txt").exists()


def test_a_script_records_itself(tmp_path: Path):
    script, out = write_training(tmp_path), tmp_path / "run"
    asked = f"import augury; augury.record(out={str(out)!r}, steps='3:5')\n"
    script.write_text(asked + script.read_text())
    done = start(torchrun(script, "9"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("augury: 2 ranks recorded") == 1
    assert f"next: augury diagnose {out}" in done.stderr
    for rank in (0, 1):
        assert len(read(out, rank)["step_end_ns"]) == 9
        assert (out / f"rank-{rank:05d}.0.trace.json.gz").exists()


def test_recording_too_late_or_twice_is_refused(tmp_path: Path):
    ask = f"""
    if step == 2:
        import augury
        try:
            augury.record(out={str(tmp_path / "run")!r})
        except Exception as error:
            print("said:", error, error.remedy)
"""
    done = start([sys.executable, str(write_training(tmp_path, each_step=ask)), "3"])
    assert done.returncode == 0, done.stderr
    assert "said: augury.record was called after training began" in done.stdout
    assert not (tmp_path / "run").exists()
    # A process that never imports torch is left alone, but a second call is refused.
    twice = "import augury; augury.record('a'); augury.record('a')"
    done = start([sys.executable, "-c", twice], cwd=tmp_path)
    assert "augury.record was called twice" in done.stderr
