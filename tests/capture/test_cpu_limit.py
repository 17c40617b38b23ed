"""Limits of control groups, read from folders like those of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.capture.cpu_limit import cpu_limit


def limit(root: Path, groups: str, files: dict[str, str]) -> float | None:
    (root / "groups").write_text(groups)
    for name, content in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return cpu_limit(root / "fs", root / "groups")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/job/own\n", {"job/own/cpu.max": "max 100000", "job/cpu.max": "150000 100000"}, 1.5),
        ("0::/job\n", {"job/cpu.max": "max 100000\n"}, None),
        ("0::/elsewhere\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/job\n", {"job/cpu.max": "what"}, None),
        ("0::/job\n", {"job/cpu.max": "-1 0"}, None),
        (
            "4:cpu,cpuacct:/job\n",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "400000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            4.0,
        ),
        ("4:memory:/job\nnonsense\n", {"cpu.cfs_quota_us": "1"}, None),
        ("", {}, None),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float | None
):
    assert limit(tmp_path, groups, files) == expected


def test_without_control_groups_there_is_no_limit(tmp_path: Path):
    assert cpu_limit(tmp_path, tmp_path / "none") is None
