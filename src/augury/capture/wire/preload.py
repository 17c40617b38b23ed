"""The wire recorder, seen from Python: where its library lies, how processes come to have it, and
when it keeps what it sees. The library itself is ``native/wire.c``."""

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
"""Names another one than that of the package."""
FOLDER_VARIABLE = "AUGURY_WIRE"
EVENTS_VARIABLE = "AUGURY_WIRE_EVENTS"
MAX_FOLDER_BYTES = 511
"""Longer ones find no place in the library."""


def wire_library() -> Path:
    """A UsageError says why there is none."""
    if sys.platform != "linux" or not _is_glibc():
        raise UsageError(
            "--wire needs Linux with glibc", remedy="record without --wire, or on such a host"
        )
    named = os.environ.get(LIBRARY_VARIABLE)
    places = [Path(named).absolute()] if named else [folder / LIBRARY for folder in _folders()]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(
            f"the wire recorder is not there: {places[0]}",
            remedy=f"check {LIBRARY_VARIABLE}"
            if named
            else "install Augury again where a C compiler is found",
        )
    if any(separator in str(found) for separator in " :"):
        raise UsageError(
            f"LD_PRELOAD cannot name {str(found)!r}: a space or a colon divides names there",
            remedy=f"copy it elsewhere and let {LIBRARY_VARIABLE} name the copy",
        )
    return found


def wire_environment(settings: Settings) -> dict[str, str]:
    """What has the processes of a job recorded, down to the last one; empty if that was not
    asked for."""
    if not settings.wire:
        return {}
    if len(os.fsencode(settings.out)) > MAX_FOLDER_BYTES:
        raise UsageError(f"{settings.out} is too long a name for --wire", remedy="give another")
    library = str(wire_library())
    others = [name for name in os.environ.get("LD_PRELOAD", "").split(":") if name != library]
    return {
        "LD_PRELOAD": ":".join(filter(None, [library, *others])),
        FOLDER_VARIABLE: settings.out,
        EVENTS_VARIABLE: str(settings.wire_events),
    }


def is_wired() -> bool:
    """Whether this process has the library."""
    try:
        return hasattr(ctypes.CDLL(None), "augury_wire_keep")
    except OSError:
        return False


def keep_wire(is_kept: bool) -> None:
    """Calls are noted from now on, or only counted; nothing happens where there is no recorder."""
    keep = getattr(ctypes.CDLL(None), "augury_wire_keep", None)
    if keep is not None:
        keep(ctypes.c_int(is_kept))


def become_wired(settings: Settings) -> None:
    """Starts the program of this very process again, with the library in it. Returns if there is
    nothing to do, or if it was of no use."""
    environment = wire_environment(settings)
    if not environment or is_wired():
        return
    if os.environ.get(FOLDER_VARIABLE) == settings.out or not sys.executable:
        print("augury: the wire recorder does not come with this process", file=sys.stderr)
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
    """The package's; and that of what was compiled with it, which lies apart from it where the
    package is used from its sources."""
    folders = [Path(__file__).parents[2]]
    native = importlib.util.find_spec("augury._native")
    if native is not None and native.origin is not None:
        folders.append(Path(native.origin).parent)
    return folders
