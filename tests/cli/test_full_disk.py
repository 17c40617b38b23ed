"""A full disk: a verb reports that space is needed and leaves no partial file."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.jobs import can_unshare
from tests.cli.conftest import environment

SYNTH = [sys.executable, "-m", "augury", "synth", "--layers", "200", "--ranks", "16", "-o"]
SMALL_DISK = 'mount -t tmpfs -o size=8k none "$0" && { "$@"; code=$?; ls -A "$0"; exit $code; }'


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


@pytest.mark.parametrize("kind", ["disk", "limit"])
def test_a_full_disk_is_reported_with_a_remedy(tmp_path: Path, kind: str) -> None:
    command = [*SYNTH, str(tmp_path / "made.augury")]
    if kind == "disk":
        if not can_unshare():
            pytest.skip("mount namespaces need privileges")
        command = ["unshare", "-m", "sh", "-c", SMALL_DISK, str(tmp_path), *command]
    done = subprocess.run(
        command,
        env=environment(),
        preexec_fn=small_files if kind == "limit" else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr
    assert "remedy: free some space there" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
