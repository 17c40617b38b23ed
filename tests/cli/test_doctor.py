import json
from pathlib import Path

import pytest

from augury import doctor
from tests.cli.conftest import Runner


def test_all_checks_pass_on_this_machine(run: Runner) -> None:
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


def test_a_missing_dependency_fails_with_a_remedy(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DEPENDENCIES", ("no-such-package",))
    outcome = run("doctor")
    assert outcome.code == 1
    assert "pip install no-such-package" in outcome.out


def test_an_untested_version_of_torch_is_a_warning(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "torch-2.4.1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.4.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    outcome = run("doctor")
    assert outcome.code == 0
    assert "2.4.1 is not tested; 2.13 is" in outcome.out


def test_the_folder_of_traces_is_checked(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def found() -> str:
        checks = json.loads(run("doctor", "--json").out)["checks"]
        return next(str(check["status"]) for check in checks if check["name"] == "traces")

    monkeypatch.setenv("AUGURY_TRACES", str(tmp_path))
    assert found() == "ok"
    monkeypatch.setenv("AUGURY_TRACES", str(tmp_path / "gone"))
    assert found() == "warn"
