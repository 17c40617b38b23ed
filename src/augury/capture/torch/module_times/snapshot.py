"""Stores the modules to be timed in a file, which another process loads after the job.

The first line is JSON: how to start that process. The rest is pickled, and the launcher of the job
does not load it. Only the user may read or write the file.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from augury.capture.timing_process import TimingProcess
from augury.capture.torch.module_times.candidates import ModuleGroup, find_groups
from augury.capture.torch.module_times.described import CannotDescribeError, Described, describe
from augury.capture.torch.module_times.forward_calls import NotedCalls
from augury.core.trace.module_timing import ModuleTiming

MAX_TROUBLE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group of equal modules, with one of them and the arguments of its call."""

    paths: tuple[str, ...]
    module: Described
    arguments: Described
    autocast: dict[str, Any]
    elapsed_ns: int
    num_operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Groups of modules, and the settings of torch that their times depend on."""

    groups: list[StoredGroup]
    num_threads: int
    cores: list[int]
    """Numbers of the cores that the process may run on."""
    matmul_precision: str
    default_dtype: Any
    is_deterministic: bool
    cudnn_benchmark: bool


def save_snapshot(path: Path, noted: Mapping[str, NotedCalls]) -> None:
    """Writes a complete file or none."""
    groups: list[StoredGroup] = []
    refused: list[ModuleTiming] = [
        ModuleTiming(modules=[name], trouble=calls.refusal)
        for name, calls in noted.items()
        if calls.refusal is not None
    ]
    for group in find_groups(noted):
        try:
            groups.append(_stored(group))
        except Exception as error:
            refused.append(ModuleTiming(modules=[*group.paths], trouble=trouble_of(error)))
    process = TimingProcess(
        host=socket.gethostname(),
        executable=sys.executable,
        path=[entry for entry in sys.path if isinstance(entry, str)],
        folder=os.getcwd(),
        modules=[path for group in groups for path in group.paths],
        refused=refused,
    )
    header = msgspec.json.encode(process)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(header + b"\n")
            pickle.dump(_snapshot(groups), file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_snapshot(path: Path) -> Snapshot:
    with path.open("rb") as file:
        file.readline()
        snapshot = pickle.load(file)  # noqa: S301 the user's own process wrote it for this one
    assert isinstance(snapshot, Snapshot)
    return snapshot


def trouble_of(error: BaseException) -> str:
    """Returns the first line of an error, for the record."""
    lines = str(error).strip().splitlines()
    if isinstance(error, CannotDescribeError):
        return lines[0][:MAX_TROUBLE_CHARS]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text[:MAX_TROUBLE_CHARS]


def _stored(group: ModuleGroup) -> StoredGroup:
    assert group.calls.arguments is not None
    return StoredGroup(
        paths=group.paths,
        module=describe(group.module, with_values=True),
        arguments=group.calls.arguments.with_copies(),
        autocast=group.calls.autocast,
        elapsed_ns=group.elapsed_ns,
        num_operations=group.num_operations,
    )


def _snapshot(groups: list[StoredGroup]) -> Snapshot:
    import torch

    return Snapshot(
        groups=groups,
        num_threads=torch.get_num_threads(),
        cores=sorted(os.sched_getaffinity(0)),
        matmul_precision=torch.get_float32_matmul_precision(),
        default_dtype=torch.get_default_dtype(),
        is_deterministic=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=torch.backends.cudnn.benchmark,
    )
