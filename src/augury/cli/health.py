"""What ``augury doctor`` looks at: one function per question. It must run where much is missing,
so it needs nothing but the standard library to begin with."""

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

from augury.core.errors import AuguryError
from augury.core.tested_versions import is_tested, tested_versions
from augury.core.units import format_bytes

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
"""Extra of the package -> module that it brings."""


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    status: Status
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def examine() -> list[Check]:
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
        status=Status.OK if is_new else Status.FAIL,
        found=f"{system} on {platform.system()} {platform.release()} {platform.machine()}",
        remedy="" if is_new else "install Python 3.11 or newer",
    )


def _augury() -> Check:
    from augury import __version__

    return Check(name="augury", status=Status.OK, found=__version__)


def _dependencies() -> Iterator[Check]:
    for name in DEPENDENCIES:
        try:
            yield Check(name=name, status=Status.OK, found=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(
                name=name,
                status=Status.FAIL,
                found="not installed",
                remedy=f"pip install {name}",
            )


def _kernel() -> Check:
    """Not only that it loads: it has to say what the reference says."""
    if importlib.util.find_spec("augury._native") is None:
        return Check(
            name="native kernel",
            status=Status.WARN,
            found="not built; the Python reference replays, slower",
            remedy="install again where a C++ compiler is found",
        )
    try:
        import numpy as np

        from augury.replay.run import replay

        graph = _small_graph()
        native, reference = (replay(graph, engine=engine) for engine in ("native", "reference"))
    except (AuguryError, ImportError) as error:
        return Check(
            name="native kernel",
            status=Status.FAIL,
            found=f"does not run: {error}",
            remedy="install Augury again",
        )
    agrees = np.array_equal(native.start_ns, reference.start_ns) and np.array_equal(
        native.end_ns, reference.end_ns
    )
    return Check(
        name="native kernel",
        status=Status.OK if agrees else Status.FAIL,
        found=f"{'agrees' if agrees else 'disagrees'} with the reference"
        f" on {graph.num_ops} operations",
        remedy="" if agrees else "replay with --engine reference and report this",
    )


def _wire() -> Check:
    """Not only that it is there: a process has to start with it."""
    from augury.capture.wire.preload import wire_library

    try:
        library = wire_library()
    except AuguryError as error:
        return Check(
            name="wire recorder",
            status=Status.WARN,
            found=f"{error}; only --wire needs it",
            remedy=error.remedy,
        )
    asked = "import ctypes; ctypes.CDLL(None).augury_wire_keep"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", "-c", asked],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        check=False,
    )
    is_ok = done.returncode == 0
    return Check(
        name="wire recorder",
        status=Status.OK if is_ok else Status.WARN,
        found="processes start with it" if is_ok else f"no process starts with {library}",
        remedy="" if is_ok else "install Augury again; see whether LD_PRELOAD is allowed here",
    )


def _small_graph() -> Graph:
    """Has some of everything that the engines treat differently."""
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
        name="machine", status=Status.OK, found=f"{cores} cores, {format_bytes(memory)} memory"
    )


def _frameworks() -> Check:
    found = [extra for extra, module in FRAMEWORKS.items() if importlib.util.find_spec(module)]
    return Check(
        name="frameworks",
        status=Status.OK,
        found=", ".join(found) or "none; only recording and steering training needs one",
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
        status=Status.OK if is_ok else Status.WARN,
        found=version if is_ok else f"{version} is not tested, {tested} is",
        remedy="" if is_ok else f"use torch {tested}, or see whether what you record is complete",
    )


def _traces() -> Check:
    folder = os.environ.get("AUGURY_TRACES")
    if folder is None:
        return Check(name="traces", status=Status.OK, found="AUGURY_TRACES is not set")
    is_there = Path(folder).is_dir()
    return Check(
        name="traces",
        status=Status.OK if is_there else Status.WARN,
        found=folder if is_there else f"{folder} is not a directory",
        remedy="" if is_there else "let AUGURY_TRACES name a folder of traces, or unset it",
    )


def _network_namespaces() -> Check:
    """The test bed shapes links between namespaces of its own."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        missing.append("root")
    return Check(
        name="network test bed",
        status=Status.WARN if missing else Status.OK,
        found=f"needs {', '.join(missing)}" if missing else "root, ip and tc are there",
        remedy="only for tests on shaped links: install iproute2, run as root" if missing else "",
    )
