"""Optimizer steps, profiled windows and the job's store of PyTorch, for the recorder.

A step ends when the leading optimizer has stepped: the first one that stepped and still exists.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from augury.capture.framework import FrameworkFacts
from augury.capture.recorder import StepRecorder
from augury.capture.settings import Settings
from augury.capture.torch.calibrate import calibrate
from augury.capture.torch.closure_ranges import ClosureRanges
from augury.capture.torch.distributed_calls import CallRecorder
from augury.capture.torch.gradient_order import GradientOrder
from augury.capture.torch.module_ranges import ForwardRanges, KnownModules
from augury.capture.torch.module_times.forward_calls import ForwardCalls
from augury.capture.torch.profiler_window import TorchProfiler
from augury.capture.torch.rank_facts import DetailProbes, LightProbes, find_facts
from augury.capture.torch.step_phases import TorchPhases
from augury.capture.window_schedule import Mode
from augury.core.trace.rank_record import CalibrationRecord, RecordedCall, RecordedMemory

if TYPE_CHECKING:
    from torch.optim import Optimizer


def start_recording(settings: Settings, module: ModuleType) -> None:
    """Records this process; ``module`` is ``torch.optim.optimizer``."""
    framework = TorchRecorder(notes_calls=settings.times_modules)
    recorder = StepRecorder(settings, framework)
    framework.closures.arrange(module)
    if settings.watch:
        framework.phases().arrange(module)

    def on_step(optimizer: Optimizer, _args: Any, _options: Any) -> None:
        now_ns = time.time_ns()

        def end_step() -> None:
            if framework.is_leader(optimizer):
                recorder.end_step(now_ns)

        recorder.attempt(end_step)

    module.register_optimizer_step_post_hook(on_step)


def has_trained(module: ModuleType) -> bool:
    """Whether gradients exist, or a learning-rate schedule has seen an optimizer step."""
    optimizers = [thing for thing in gc.get_objects() if issubclass(type(thing), module.Optimizer)]
    return any(
        getattr(optimizer, "_opt_called", False)
        or any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
        for optimizer in optimizers
    )


class TorchRecorder:
    """Implements ``FrameworkRecorder`` for PyTorch."""

    def __init__(self, *, notes_calls: bool = False) -> None:
        """``notes_calls`` says whether modules will be stored, to be timed after the job."""
        self.closures = ClosureRanges()
        self._modules = KnownModules()
        self._forwards = ForwardRanges(self._modules)
        self._phases = TorchPhases(self._modules, self._optimizers)
        self._order = GradientOrder()
        self._forward_calls = ForwardCalls() if notes_calls else None
        self._leader: weakref.ref[Optimizer] | None = None
        self._seen: dict[int, weakref.ref[Optimizer]] = {}
        self._calls = CallRecorder()

    def is_leader(self, optimizer: Optimizer) -> bool:
        known = self._seen.get(id(optimizer))
        if known is None or known() is None:
            self._seen[id(optimizer)] = weakref.ref(optimizer)
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
            return True
        return leader is optimizer

    def version(self) -> str:
        import torch

        return f"torch {torch.__version__}"

    def job_store(self) -> TorchJobStore | None:
        return find_job_store()

    def open_window(self, mode: Mode, on_rival: Callable[[], None]) -> TorchWindow:
        probes = (
            DetailProbes(self._order, self._forward_calls)
            if mode == "detail"
            else LightProbes(self._forwards)
        )
        return TorchWindow(
            profiler=TorchProfiler(mode, on_rival),
            calls=self._calls,
            closures=self.closures,
            probes=probes,
            find_optimizers=self._optimizers,
        )

    def phases(self) -> TorchPhases:
        return self._phases

    def facts(self) -> FrameworkFacts:
        return find_facts(self._optimizers(), self._order)

    def calls(self) -> list[RecordedCall]:
        return [RecordedCall(*call) for call in self._calls.calls]

    def forget_calls(self, begin_ns: int, end_ns: int) -> None:
        self._calls.forget(begin_ns, end_ns)

    def calibrate(self) -> list[CalibrationRecord]:
        return calibrate()

    def store_modules(self, path: Path) -> None:
        if self._forward_calls is not None and self._forward_calls.noted:
            from augury.capture.torch.module_times.snapshot import save_snapshot

            save_snapshot(path, self._forward_calls.take())

    def _optimizers(self) -> list[Optimizer]:
        """Returns the optimizers in the order of their first steps."""
        return [optimizer for seen in self._seen.values() if (optimizer := seen()) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWindow:
    """Implements ``FrameworkWindow``: profiler, communication calls, closures and probes."""

    profiler: TorchProfiler
    calls: CallRecorder
    closures: ClosureRanges
    probes: DetailProbes | LightProbes
    find_optimizers: Callable[[], list[Optimizer]]

    def start_probes(self) -> None:
        self.calls.start()
        self.closures.start()
        self.probes.start(self.find_optimizers())

    def end_step(self) -> None:
        self.probes.end_step()

    def stop_probes(self) -> None:
        self.calls.stop()
        self.closures.stop()
        self.probes.stop()

    def stop_profiler(self) -> None:
        self.profiler.stop()

    def ranges_open_since(self, ns: int) -> list[str]:
        return self.profiler.ranges_open_since(ns)

    def export(self, path: Path) -> None:
        self.profiler.export(path)

    def saved_memory(self) -> list[RecordedMemory]:
        return self.probes.saved_memory()


@dataclass(frozen=True, slots=True)
class TorchJobStore:
    """Implements ``JobStore`` on the store of the default process group."""

    rank: int
    world_size: int
    _store: Any

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def get(self, key: str, *, timeout_s: float) -> str:
        self._store.wait([key], timedelta(seconds=timeout_s))
        content: bytes = self._store.get(key)
        return content.decode()


def find_job_store() -> TorchJobStore | None:
    """Returns None in a job of one rank, and before the default process group exists."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    if world_size < 2:
        return None
    return TorchJobStore(rank, world_size, distributed.distributed_c10d._get_default_store())
