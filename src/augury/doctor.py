"""Checks of this machine and this installation, one function each.

Only the standard library is imported at the top, so that checks run where dependencies are missing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from augury.core.callable_package import make_callable
from augury.core.errors import AuguryError
from augury.core.tested_versions import is_tested, tested_versions
from augury.core.units import format_bytes, format_count

if TYPE_CHECKING:
    from augury.core.graph.graph import Graph

MIN_PYTHON = (3, 11)
DEPENDENCIES = ("numpy", "msgspec", "isal", "polars", "rich", "typer")
FRAMEWORKS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "mxnet": "mxnet",
    "ray": "ray",
    "dask": "distributed",
}
"""Extra of the package -> module that it installs."""


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    status: CheckStatus
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def check_all() -> list[Check]:
    """Returns the results of all checks, in the order in which they are shown."""
    return [
        _python(),
        _augury(),
        *_dependencies(),
        _kernel(),
        _wire(),
        _machine(),
        _frameworks(),
        *_torch(),
        _traces(),
        _network_namespaces(),
    ]


def _python() -> Check:
    is_new = sys.version_info >= MIN_PYTHON
    system = f"{platform.python_implementation()} {platform.python_version()}"
    return Check(
        name="python",
        status=CheckStatus.OK if is_new else CheckStatus.FAIL,
        found=f"{system} on {platform.system()} {platform.release()} {platform.machine()}",
        remedy="" if is_new else "install Python 3.11 or newer",
    )


def _augury() -> Check:
    from augury import __version__

    return Check(name="augury", status=CheckStatus.OK, found=__version__)


def _dependencies() -> Iterator[Check]:
    for name in DEPENDENCIES:
        try:
            yield Check(name=name, status=CheckStatus.OK, found=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                name=name,
                status=CheckStatus.FAIL,
                found="not installed",
                remedy=f"pip install {name}",
            )


def _kernel() -> Check:
    """Replays a small graph with both engines and compares them."""
    if importlib.util.find_spec("augury._native") is None:
        return Check(
            name="native kernel",
            status=CheckStatus.WARN,
            found="not built; the slower Python reference is used",
            remedy="install a C++ compiler, then install Augury again",
        )
    try:
        import numpy as np

        from augury.replay.run import replay

        graph = _small_graph()
        native, reference = (replay(graph, engine=engine) for engine in ("native", "reference"))
    except (AuguryError, ImportError) as error:
        return Check(
            name="native kernel",
            status=CheckStatus.FAIL,
            found=f"cannot run: {error}",
            remedy="install Augury again",
        )
    agrees = np.array_equal(native.start_ns, reference.start_ns) and np.array_equal(
        native.end_ns, reference.end_ns
    )
    return Check(
        name="native kernel",
        status=CheckStatus.OK if agrees else CheckStatus.FAIL,
        found=f"{'agrees' if agrees else 'disagrees'} with the reference"
        f" on {graph.num_ops} operations",
        remedy="" if agrees else "use --engine reference, and report this as a defect",
    )


def _wire() -> Check:
    """Starts a process with the preloaded library."""
    from augury.capture.wire.preload import wire_library

    try:
        library = wire_library()
    except AuguryError as error:
        return Check(
            name="wire recorder",
            status=CheckStatus.WARN,
            found=f"{error}; needed only for --wire",
            remedy=error.remedy,
        )
    program = "import ctypes; ctypes.CDLL(None).augury_wire_keep"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", program],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        check=False,
    )
    is_ok = done.returncode == 0
    return Check(
        name="wire recorder",
        status=CheckStatus.OK if is_ok else CheckStatus.WARN,
        found="processes start with it" if is_ok else f"processes do not start with {library}",
        remedy="" if is_ok else "install Augury again; check that LD_PRELOAD is allowed here",
    )


def _small_graph() -> Graph:
    """Returns a graph with each feature that the engines treat differently."""
    from augury.core.enums import OpKind, ResourceKind
    from augury.core.graph.builder import GraphBuilder

    builder = GraphBuilder()
    link = builder.shared_resource("link")
    gangs = [builder.gang() for _ in range(3)]
    for rank in [builder.rank() for _ in range(4)]:
        compute = builder.resource("compute", rank=rank)
        stream = builder.resource("comm", rank=rank, kind=ResourceKind.COMMUNICATION)
        builder.interfere(victim=compute, aggressor=stream, rate=0.9)
        before: list[int] = []
        for layer, gang in enumerate(gangs):
            work_ns = 1_000 + 77 * rank + 13 * layer
            backward = builder.op(
                "backward", rank=rank, resource=compute, work_ns=work_ns, after=before
            )
            builder.op(
                "all-reduce",
                kind=OpKind.ALL_REDUCE,
                rank=rank,
                resource=stream,
                work_ns=1_500,
                gang=gang,
                after=[backward],
            )
            builder.op("send", rank=rank, resource=link, work_ns=400, after=[backward])
            before = [backward]
    return builder.build()


def _machine() -> Check:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Check(
        name="machine",
        status=CheckStatus.OK,
        found=f"{format_count(cores or 1, 'core')}, {format_bytes(memory)} of memory",
    )


def _frameworks() -> Check:
    found = [extra for extra, module in FRAMEWORKS.items() if importlib.util.find_spec(module)]
    return Check(
        name="frameworks",
        status=CheckStatus.OK,
        found=", ".join(found) or "none; needed only to record training and to follow plans",
    )


def _torch() -> Iterator[Check]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return
    is_ok = is_tested("torch", version)
    tested = tested_versions("torch")
    yield Check(
        name="torch",
        status=CheckStatus.OK if is_ok else CheckStatus.WARN,
        found=version if is_ok else f"{version} is not tested; {tested} is",
        remedy="" if is_ok else f"use torch {tested}, or check that recorded runs are complete",
    )


def _traces() -> Check:
    folder = os.environ.get("AUGURY_TRACES")
    if folder is None:
        return Check(name="traces", status=CheckStatus.OK, found="AUGURY_TRACES is not set")
    is_there = Path(folder).is_dir()
    return Check(
        name="traces",
        status=CheckStatus.OK if is_there else CheckStatus.WARN,
        found=folder if is_there else f"{folder} is not a directory",
        remedy="" if is_there else "set AUGURY_TRACES to a folder of traces, or unset it",
    )


def _network_namespaces() -> Check:
    """Checks what the test bed needs to shape links between network namespaces."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        missing.append("root")
    return Check(
        name="network test bed",
        status=CheckStatus.WARN if missing else CheckStatus.OK,
        found=f"needs {', '.join(missing)}" if missing else "root, ip and tc are available",
        remedy="needed only for tests on shaped links: install iproute2, run as root"
        if missing
        else "",
    )


make_callable(__name__, "augury.doctor:check_all")
