"""The process that times stored modules: variants as recorded, in bfloat16, with other threads and
compiled. It writes one timing per line.

First all groups run in the variants that need no compiler, then groups are compiled, those first
that gain most time per operation that is compiled.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import msgspec

from augury.capture.torch.module_times.snapshot import (
    Snapshot,
    StoredGroup,
    load_snapshot,
    trouble_of,
)
from augury.capture.torch.module_times.timed_module import Samples, TimedModule, Variant
from augury.core.trace.module_timing import (
    AS_RECORDED,
    BFLOAT16,
    COMPILED,
    COMPILED_BFLOAT16,
    FLOAT16,
    THREADS,
    ModuleTiming,
)

PLAIN_SHARE = 0.5
"""Largest share of the time for variants that need no compiler."""
FIRST_COMPILE_SHARE = 0.5
"""Share of a group's time for compiling that another one takes, per operation: equal kernels are
compiled once, and the compiler starts once."""
COMPILED_SAMPLE_SHARE = 0.15
"""Largest share of the time that is left for the samples of one compiled group."""


def main(snapshot: str, seconds: float, temporary: str) -> None:
    """Writes timings to stdout, at most for ``seconds``; modules write nothing. The parent removes
    the folder ``temporary``."""
    deadline = time.monotonic() + seconds
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(os.dup(1), "wb") as file:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        stored = load_snapshot(Path(snapshot))
        _set_up(stored)
        _keep_compilers_in(temporary)
        _Measurement(stored, file, deadline).run()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _set_up(stored: Snapshot) -> None:
    import torch

    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed & set(stored.cores) or allowed)
    torch.set_num_threads(stored.num_threads)
    torch.set_float32_matmul_precision(stored.matmul_precision)
    torch.set_default_dtype(stored.default_dtype)
    torch.use_deterministic_algorithms(stored.is_deterministic, warn_only=True)
    torch.backends.cudnn.benchmark = stored.cudnn_benchmark


def _keep_compilers_in(folder: str) -> None:
    """Programs that this process starts put their temporary files there. Compiled code stays in
    torch's own cache, where the job finds it."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    cache_dir()  # stores the place of the cache, which depends on TMPDIR, in the environment
    os.environ["TMPDIR"] = folder


class _Measurement:
    def __init__(self, stored: Snapshot, file: BinaryIO, deadline: float) -> None:
        self._stored = stored
        self._file = file
        self._deadline = deadline
        self._base: dict[tuple[str, ...], Samples] = {}
        """Samples as recorded, of the groups that were timed."""

    def run(self) -> None:
        groups = self._stored.groups
        plain_until = time.monotonic() + PLAIN_SHARE * self._left_s
        for number, group in enumerate(groups):
            left_s = plain_until - time.monotonic()
            if left_s <= 0:
                break
            self._time_plain(group, left_s / min(2, len(groups) - number))
        timed = [one for one in groups if one.paths in self._base and one.num_operations > 1]
        timed.sort(key=lambda group: -group.elapsed_ns / group.num_operations)
        if timed:
            self._time_compiled(timed)

    @property
    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    def _time_plain(self, group: StoredGroup, seconds: float) -> None:
        try:
            timed = TimedModule(group)
            found = timed.measure(self._plain_variants(group, timed), seconds)
        except Exception as error:
            found = {AS_RECORDED: Samples(error=error)}
        if found[AS_RECORDED].forward_ns:
            self._base[group.paths] = found[AS_RECORDED]
        for name, samples in found.items():
            self._report(group, name, samples)

    def _plain_variants(self, group: StoredGroup, timed: TimedModule) -> list[Variant]:
        num_threads = self._stored.num_threads
        base = Variant(
            name=AS_RECORDED, call=timed.module, autocast=group.autocast, num_threads=num_threads
        )
        variants = [base]
        for name, autocast in _lower_precisions(group, timed):
            variants.append(replace(base, name=name, autocast=autocast))
        if timed.device == "cpu":
            variants += [
                replace(base, name=f"{THREADS}{number}", num_threads=number)
                for number in _thread_counts(len(os.sched_getaffinity(0)))
                if number != num_threads
            ]
        return variants

    def _time_compiled(self, groups: list[StoredGroup]) -> None:
        try:
            _check_compiler()
        except Exception as error:
            modules = [path for group in groups for path in group.paths]
            self._write(ModuleTiming(modules=modules, variant=COMPILED, trouble=trouble_of(error)))
            return
        operation_s = 0.0
        for name in (COMPILED, COMPILED_BFLOAT16):
            for group in list(groups):
                if operation_s * group.num_operations > self._left_s:
                    continue
                begun = time.monotonic()
                try:
                    samples = self._compiled(group, name)
                except Exception as error:
                    samples = Samples(error=error)
                if samples is None:
                    continue
                self._report(group, name, samples)
                if samples.error is not None:
                    groups.remove(group)
                passed_s = time.monotonic() - begun
                operation_s = FIRST_COMPILE_SHARE * passed_s / group.num_operations

    def _compiled(self, group: StoredGroup, name: str) -> Samples | None:
        """Returns samples at the speed of the machine when the module was timed as recorded; None
        where this variant does not differ."""
        import torch

        timed = TimedModule(group)
        autocast = group.autocast
        if name == COMPILED_BFLOAT16:
            lower = dict(_lower_precisions(group, timed))
            if BFLOAT16 not in lower:
                return None
            autocast = lower[BFLOAT16]
        torch.compiler.reset()
        base = Variant(
            name=AS_RECORDED,
            call=timed.module,
            autocast=group.autocast,
            num_threads=self._stored.num_threads,
        )
        compiled = replace(
            base,
            name=name,
            call=torch.compile(timed.module),
            autocast=autocast,
            is_compiled=True,
        )
        found = timed.measure([base, compiled], COMPILED_SAMPLE_SHARE * self._left_s)
        return _at_speed_of(self._base[group.paths], found[AS_RECORDED], found[name])

    def _report(self, group: StoredGroup, name: str, samples: Samples) -> None:
        if samples.error is None and not samples.forward_ns:
            return
        trouble = None if samples.error is None else trouble_of(samples.error)
        self._write(
            ModuleTiming(
                modules=[*group.paths],
                variant=name,
                forward_ns=samples.forward_ns,
                backward_ns=samples.backward_ns,
                saved_bytes=samples.saved_bytes,
                trouble=trouble,
            )
        )

    def _write(self, timing: ModuleTiming) -> None:
        self._file.write(msgspec.json.encode(timing) + b"\n")
        self._file.flush()


def _lower_precisions(group: StoredGroup, timed: TimedModule) -> list[tuple[str, dict[str, Any]]]:
    """Returns the types of autocast that the program does not use, by the variant's name. Half
    precision needs a device: on CPUs it has no range for gradients and no speed."""
    import torch

    has_full = any(one.dtype is torch.float32 for one in timed.module.parameters())
    if group.autocast or not has_full:
        return []
    names = [(BFLOAT16, torch.bfloat16)]
    if timed.device != "cpu":
        names.append((FLOAT16, torch.float16))
    return [(name, {timed.device: dtype}) for name, dtype in names]


def _thread_counts(num_cores: int) -> list[int]:
    """Returns the powers of two up to the number of cores, and that number."""
    counts = {1 << power for power in range(num_cores.bit_length())}
    return sorted({count for count in counts if count <= num_cores} | {num_cores})


def _check_compiler() -> None:
    """Raises an error if kernels for CPUs cannot be compiled."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    get_cpp_compiler()


def _at_speed_of(reference: Samples, base: Samples, samples: Samples) -> Samples:
    """Scales samples so that ``base``, which was interleaved with them, would equal ``reference``:
    the machine may have become slower or faster in between."""

    def scaled(wanted: list[int], was: list[int], times: list[int]) -> list[int]:
        if not (wanted and was):
            return times
        return [round(one * median(wanted) / median(was)) for one in times]

    return Samples(
        forward_ns=scaled(reference.forward_ns, base.forward_ns, samples.forward_ns),
        backward_ns=scaled(reference.backward_ns, base.backward_ns, samples.backward_ns),
        saved_bytes=samples.saved_bytes,
        error=samples.error,
    )
