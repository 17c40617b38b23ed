"""The folder to which the demo writes its files."""

from __future__ import annotations

from pathlib import Path

from augury.core.errors import AuguryError, UsageError


def prepare_folder(out: Path, *, force: bool) -> None:
    """Creates the folder, and refuses one with files unless ``force`` is set."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder", remedy="choose another folder with --out")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UsageError(
            f"{out} is not empty",
            remedy="choose another folder with --out, or add --force to replace files",
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuguryError(
            f"cannot create {out}: {error.strerror}", remedy="choose another folder with --out"
        ) from error
