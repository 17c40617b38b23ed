"""Preloads the library that records TCP traffic (``native/wire.c``), and switches it on and off."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from augury.capture.settings import Settings
from augury.core.errors import UsageError

LIBRARY = "libaugury_wire.so"
LIBRARY_VARIABLE = "AUGURY_WIRE_LIBRARY"
"""Variable that names another library than that of the package."""
FOLDER_VARIABLE = "AUGURY_WIRE"
EVENTS_VARIABLE = "AUGURY_WIRE_EVENTS"
MAX_FOLDER_BYTES = 511
"""Longest folder name that fits into the library's buffer."""


def wire_library() -> Path:
    """Returns the path of the library. Raises a UsageError that says why there is none."""
    if sys.platform != "linux" or not _is_glibc():
        raise UsageError(
            "--wire needs Linux with glibc", remedy="record without --wire, or on another host"
        )
    named = os.environ.get(LIBRARY_VARIABLE)
    places = [Path(named).absolute()] if named else [folder / LIBRARY for folder in _folders()]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(
            f"the library of the wire recorder does not exist: {places[0]}",
            remedy=f"check {LIBRARY_VARIABLE}"
            if named
            else "install Augury again on a host with a C compiler",
        )
    if any(separator in str(found) for separator in " :"):
        raise UsageError(
            f"LD_PRELOAD cannot name {str(found)!r}: spaces and colons separate its names",
            remedy=f"copy it to another folder and set {LIBRARY_VARIABLE} to the copy",
        )
    return found


def wire_environment(settings: Settings) -> dict[str, str]:
    """Returns the variables that have all processes of a job recorded; empty without ``wire``."""
    if not settings.wire:
        return {}
    if len(os.fsencode(settings.out)) > MAX_FOLDER_BYTES:
        raise UsageError(f"{settings.out} is too long for --wire", remedy="give another --out")
    library = str(wire_library())
    others = [name for name in os.environ.get("LD_PRELOAD", "").split(":") if name != library]
    return {
        "LD_PRELOAD": ":".join(filter(None, [library, *others])),
        FOLDER_VARIABLE: settings.out,
        EVENTS_VARIABLE: str(settings.wire_events),
    }


def is_wired() -> bool:
    """Whether the library is loaded in this process."""
    try:
        return hasattr(ctypes.CDLL(None), "augury_wire_keep")
    except OSError:
        return False


def keep_wire(is_kept: bool) -> None:
    """Has calls recorded from now on, or only counted. Does nothing without the library."""
    keep = getattr(ctypes.CDLL(None), "augury_wire_keep", None)
    if keep is not None:
        keep(ctypes.c_int(is_kept))


def become_wired(settings: Settings) -> None:
    """Restarts the program of this process with the library preloaded. Returns if that is not
    necessary, or if an earlier restart did not load it."""
    environment = wire_environment(settings)
    if not environment or is_wired():
        return
    if os.environ.get(FOLDER_VARIABLE) == settings.out or not sys.executable:
        print("augury: the wire recorder cannot be loaded into this process", file=sys.stderr)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, sys.orig_argv, os.environ | environment)  # noqa: S606


def _is_glibc() -> bool:
    try:
        return "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (AttributeError, ValueError, OSError):
        return False


def _folders() -> list[Path]:
    """Returns the folder of the package and that of its compiled parts, which differ where the
    package is used from its sources."""
    folders = [Path(__file__).parents[2]]
    native = importlib.util.find_spec("augury._native")
    if native is not None and native.origin is not None:
        folders.append(Path(native.origin).parent)
    return folders
