import json
from pathlib import Path

import pytest

from augury.cli import health
from tests.cli.conftest import Runner


def test_this_machine_is_well(run: Runner) -> None:
    outcome = run("doctor")
    assert outcome.code == 0
    assert "native kernel" in outcome.out


def test_json(run: Runner) -> None:
    document = json.loads(run("doctor", "--json").out)
    assert document["ok"] is True
    assert {"python", "augury", "numpy", "native kernel", "machine"} <= {
        check["name"] for check in document["checks"]
    }
    assert {check["status"] for check in document["checks"]} <= {"ok", "warn", "fail"}


def test_what_is_missing_fails_with_a_remedy(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DEPENDENCIES", ("no-such-package",))
    outcome = run("doctor")
    assert outcome.code == 1
    assert "pip install no-such-package" in outcome.out


def test_traces(run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found() -> str:
        checks = json.loads(run("doctor", "--json").out)["checks"]
        return next(str(check["status"]) for check in checks if check["name"] == "traces")

    monkeypatch.setenv("AUGURY_TRACES", str(tmp_path))
    assert found() == "ok"
    monkeypatch.setenv("AUGURY_TRACES", str(tmp_path / "gone"))
    assert found() == "warn"
