"""Identifies the code that measured or predicted: a commit, and whether files differed from it."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("src", "native", "benchmarks", "pyproject.toml", "constraints.txt", "CMakeLists.txt")
"""Files outside of these do not affect measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    commit: str | None
    """Commit hash; None outside of a git clone."""
    is_dirty: bool = False
    digest: str = ""
    """Digest of the code: commits that only change documents share it."""

    def is_same_code(self, other: Revision) -> bool:
        if self.commit is None or other.commit is None:
            return False
        return self.digest == other.digest if self.digest else self.commit == other.commit


@cache
def current_revision(root: Path = ROOT) -> Revision:
    try:
        commit = _git(root, "rev-parse", "HEAD").decode().strip()
        committed = _git(root, "ls-tree", "HEAD", "--", *CODE)
        changed = _git(root, "diff", "HEAD", "--binary", "--", *CODE)
        untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return Revision(commit=None)
    digest = hashlib.sha256(committed + changed)
    for name in filter(None, untracked.decode().split("\0")):
        digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    is_dirty = bool(changed or untracked)
    return Revision(commit=commit, is_dirty=is_dirty, digest=digest.hexdigest()[:16])


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout
