"""Times the parts of PyTorch's steps by hooks, without a profiler, for watch windows.

Waiting in collectives is known from two sources: DDP's own timers, which say how long the exchange
of gradients lasts beyond backward, and calls of torch.distributed from Python on the training
thread. That time counts in no other part. Collectives that other code calls from C++ are not seen;
their time counts as backward.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from augury.capture.framework import PhaseTimes
from augury.capture.torch.distributed_calls import CallRecorder
from augury.capture.torch.module_ranges import ForwardRanges, KnownModules

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

DDP_SAMPLE_RATE = 100
"""Steps between two that DDP times by default."""


class TorchPhases:
    """Implements ``FrameworkPhases``."""

    def __init__(
        self, modules: KnownModules, find_optimizers: Callable[[], Sequence[Optimizer]]
    ) -> None:
        self._find_optimizers = find_optimizers
        self._forwards = ForwardRanges(modules, self._begin_forward)
        self._waits = CollectiveWaits()
        self._gradients = GradientWaits(modules)
        self._is_on = False
        self._begin_ns = 0
        self._first_forward = self._update = _NEVER
        self._forward_ns = 0

    def arrange(self, module: ModuleType) -> None:
        """``module`` is ``torch.optim.optimizer``. The hook stays for the whole job: a hook that
        comes and goes would let a compiled optimizer be compiled again."""
        module.register_optimizer_step_pre_hook(self._before_update)

    def start(self) -> None:
        self._is_on = True
        self._forwards.start(self._find_optimizers())
        self._waits.start()
        self._gradients.start()
        self._begin_step()

    def end_step(self) -> PhaseTimes:
        update_ns = self._since(self._update) if self._update.begin_ns else 0
        self._forwards.end_step()
        first = self._first_forward
        phases = PhaseTimes(
            input_ns=max(0, first.begin_ns - self._begin_ns - first.waited_ns),
            forward_ns=self._forward_ns,
            communication_ns=self._waits.sum_ns + self._gradients.last_ns(),
            update_ns=update_ns,
        )
        self._begin_step()
        return phases

    def stop(self) -> None:
        self._is_on = False
        for stop in (self._forwards.stop, self._waits.stop, self._gradients.stop):
            with suppress(Exception):
                stop()

    def _begin_step(self) -> None:
        self._waits.sum_ns = self._forward_ns = 0
        self._first_forward = self._update = _NEVER
        self._begin_ns = time.monotonic_ns()

    def _moment(self) -> _Moment:
        return _Moment(time.monotonic_ns(), self._waits.sum_ns)

    def _since(self, moment: _Moment) -> int:
        """Time since then without waits in collectives."""
        waited_ns = self._waits.sum_ns - moment.waited_ns
        return time.monotonic_ns() - moment.begin_ns - waited_ns

    def _before_update(self, _optimizer: Optimizer, _args: Any, _options: Any) -> None:
        from torch.compiler import is_compiling

        # In this order: a compiled optimizer must not depend on whether a window is open.
        if is_compiling() or not self._is_on or self._update.begin_ns:
            return
        self._update = self._moment()

    def _begin_forward(self, module: Module, _path: str) -> _ForwardCall:
        from torch import is_grad_enabled

        # An evaluation between two steps is no forward of the step.
        is_training = module.training or is_grad_enabled()
        return _ForwardCall(partial(self._end_forward, self._moment()) if is_training else None)

    def _end_forward(self, begin: _Moment) -> None:
        # A closure runs forward and backward within the optimizer's step.
        self._update = _NEVER
        if not self._first_forward.begin_ns:
            self._first_forward = begin
        self._forward_ns += self._since(begin)


class _Moment(NamedTuple):
    begin_ns: int
    waited_ns: int
    """Time in collectives since the start of the step."""


_NEVER = _Moment(0, 0)


class _ForwardCall:
    """Implements ``OpenRange``: a forward call in progress."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[], None] | None) -> None:
        self._end = end

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
        /,
    ) -> None:
        if self._end is not None:
            self._end()


class CollectiveWaits(CallRecorder):
    """Sums the time that the training thread spends in calls of torch.distributed and in waits for
    their results, between ``start`` and ``stop``."""

    def __init__(self) -> None:
        super().__init__()
        self.sum_ns = 0
        self._thread = 0

    def start(self) -> None:
        self._thread = threading.get_ident()
        super().start()

    def _noting(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG002
        return self._timed(call)

    def _noting_end(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        return self._timed(wait)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            begin_ns = time.monotonic_ns()
            result = call(*args, **options)
            if threading.get_ident() == self._thread:
                self.sum_ns += time.monotonic_ns() - begin_ns
            return result

        return timed


class GradientWaits:
    """Reads from DDP's own timers for how long the exchange of gradients lasted beyond backward.

    DDP evaluates its timers in the forward of the next step, so the time is that of the step
    before."""

    def __init__(self, modules: KnownModules) -> None:
        self._modules = modules
        self._last: dict[int, tuple[int, int, int]] = {}

    def start(self) -> None:
        self._last.clear()
        self._sample(1)

    def stop(self) -> None:
        self._sample(DDP_SAMPLE_RATE)

    def last_ns(self) -> int:
        return sum(self._exposed_ns(model) for model in self._modules.ddp)

    def _sample(self, rate: int) -> None:
        for model in self._modules.ddp:
            with suppress(Exception):
                model._set_ddp_runtime_logging_sample_rate(rate)

    def _exposed_ns(self, model: Any) -> int:
        with suppress(Exception):  # a reducer that a plan has replaced
            logged = model._get_ddp_logging_data()
            communication_ns, overlap_ns, compute_ns = timers = (
                int(logged["backward_comm_time"]),
                int(logged["backward_compute_comm_overlap_time"]),
                int(logged["backward_compute_time"]),
            )
            if self._last.get(id(model)) != timers and compute_ns > 0:
                self._last[id(model)] = timers
                return max(0, communication_ns - overlap_ns)
        return 0
