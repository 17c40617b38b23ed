"""The number of cores that control groups leave to this process, such as `docker run --cpus`."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def cpu_limit(root: Path = _ROOT, own_groups: Path = _OWN_GROUPS) -> float | None:
    """Returns the smallest limit of the process's group and of those around it, in cores; None if
    there is no limit, or no control groups."""
    limits = []
    try:
        lines = own_groups.read_text().splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "/")
        if controllers == "":
            folder, read = root, _limit_of_v2
        elif "cpu" in controllers.split(","):
            folder, read = root / controllers, _limit_of_v1
        else:
            continue
        own = folder / path.lstrip("/")
        # Inside of a container, the path may be that of the host: then only the root is there.
        for place in (own, *own.parents):
            limits.append(read(place))
            if place == folder:
                break
    known = [limit for limit in limits if limit is not None]
    return min(known, default=None)


def _limit_of_v2(folder: Path) -> float | None:
    return _cores(_read(folder / "cpu.max").split())


def _limit_of_v1(folder: Path) -> float | None:
    period = _read(folder / "cpu.cfs_period_us")
    return _cores([_read(folder / "cpu.cfs_quota_us"), period])


def _cores(quota_and_period: list[str]) -> float | None:
    try:
        quota, period = map(int, quota_and_period)
    except ValueError:  # no limit, or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
