"""Times of modules under other variants, as ratios to their recorded times.

Ratios are measured where calibration timed a module, an enclosing one, one inside of it, or one of
its class; else a model states them, with a wide error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from augury.core.plan.sections import HalfPrecision
from augury.core.trace.module_timing import AS_RECORDED, COMPILED, THREADS, ModuleTiming

MEASURED_ERROR = 0.03
"""Least relative error of a measured ratio: calibration runs outside of training."""
NEARBY_ERROR = 0.08
"""Relative error of a ratio that was measured on a related module."""
MODEL_ERRORS = {"compiled": 0.2, "half": 0.5, "threads": 0.2, "combined": 0.1}
"""Relative errors of the model, and of a product of ratios that were measured apart."""
_COMPILED_RATIO = 0.92
"""Time of a compiled module without a measurement: most of it is in kernels that stay."""
_HALF_RATIO = 1.0
"""Time in half precision without a measurement: processors without fast half precision are slower,
others are faster."""
_HALF_SAVED = 0.6
"""Saved activations in half precision: outputs of matrix products halve, others stay."""
_PARALLEL_SHARE = 0.9
"""Share of a module's work that threads divide among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleVariant:
    """How a module is run."""

    is_compiled: bool = False
    dtype: HalfPrecision | None = None
    num_threads: int | None = None
    """None: as recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio:
    """Times of a module relative to its recorded ones."""

    forward: float = 1.0
    backward: float = 1.0
    saved: float = 1.0
    """Ratio of the bytes that it saves for backward."""
    error: float = 0.0
    """Relative standard error of the times."""
    is_measured: bool = True

    def times(self, other: TimeRatio) -> TimeRatio:
        """Returns the ratio of both changes together."""
        return TimeRatio(
            forward=self.forward * other.forward,
            backward=self.backward * other.backward,
            saved=self.saved * other.saved,
            error=math.hypot(self.error, other.error),
            is_measured=self.is_measured and other.is_measured,
        )

    def over(self, before: TimeRatio) -> TimeRatio:
        """Returns the change from ``before`` to this one."""
        return replace(
            self,
            forward=self.forward / before.forward,
            backward=self.backward / before.backward,
            saved=self.saved / before.saved,
        )


UNCHANGED = TimeRatio()


@dataclass(frozen=True, kw_only=True)
class ModuleCosts:
    """Measured times of modules, and the model of what was not measured."""

    timings: tuple[ModuleTiming, ...] = ()
    """Those of all ranks."""
    class_names: Mapping[str, str] = field(default_factory=dict)
    """Class name of each module, by its path."""
    recorded_threads: int = 0
    """Threads that shared the work of one operation in the recorded run; 0 if unknown."""
    cores_per_rank: float = 0.0
    """Cores that each rank has for itself; 0 if unknown."""

    def ratio(self, module: str, variant: ModuleVariant) -> TimeRatio:
        """Returns the ratio of a module's times in this variant to its recorded ones."""
        together = UNCHANGED
        if variant.is_compiled and variant.dtype is not None:
            together = self._both(module, variant.dtype)
        elif variant.is_compiled:
            together = self._measured(module, COMPILED) or _COMPILED_MODEL
        elif variant.dtype is not None:
            together = self._measured(module, variant.dtype.value) or _HALF_MODEL
        if variant.num_threads is not None:
            together = together.times(self._threads(module, variant.num_threads))
        return together

    def trouble(self, module: str, variant: str) -> str | None:
        """Returns the reason why a module cannot run in this variant; None if none is known. Where
        no module could run in it, it is taken that none can."""
        tried = [one for one in self.timings if one.variant == variant]
        failed = [one for one in tried if one.trouble is not None]
        own = [one.trouble for one in failed if module in one.modules]
        if own:
            return own[0]
        return failed[0].trouble if failed and len(failed) == len(tried) else None

    def has_times(self, module: str) -> bool:
        """Whether calibration timed this very module."""
        return any(module in one.modules and one.trouble is None for one in self.timings)

    def _both(self, module: str, dtype: HalfPrecision) -> TimeRatio:
        measured = self._measured(module, f"{COMPILED}+{dtype.value}")
        if measured is not None:
            return measured
        product = self.ratio(module, ModuleVariant(is_compiled=True)).times(
            self.ratio(module, ModuleVariant(dtype=dtype))
        )
        return replace(product, error=math.hypot(product.error, MODEL_ERRORS["combined"]))

    def _threads(self, module: str, num_threads: int) -> TimeRatio:
        """Threads never divide the time by more than the cores that they add, and calibration may
        have had more cores than a rank has while all of them train."""
        if num_threads == self.recorded_threads:
            return UNCHANGED
        usable, had = (self._usable(number) for number in (num_threads, self.recorded_threads))
        measured = self._measured(module, f"{THREADS}{num_threads}")
        ratio = measured or TimeRatio(
            forward=_amdahl(usable) / _amdahl(had),
            backward=_amdahl(usable) / _amdahl(had),
            error=MODEL_ERRORS["threads"],
            is_measured=False,
        )
        least = had / usable
        return replace(
            ratio, forward=max(ratio.forward, least), backward=max(ratio.backward, least)
        )

    def _usable(self, num_threads: int) -> float:
        """Returns the cores that threads of one rank can use."""
        most = self.cores_per_rank or num_threads
        return max(1.0, min(float(num_threads), most))

    def _measured(self, module: str, variant: str) -> TimeRatio | None:
        """Returns the ratio of the module or of the nearest relative that was timed."""
        if (module, variant) in self._ratios:
            return self._ratios[module, variant]
        for related in self._related(module):
            found = [
                self._ratios[one, variant] for one in related if (one, variant) in self._ratios
            ]
            if found:
                return _mean(found, more_error=NEARBY_ERROR)
        return None

    def _related(self, module: str) -> Iterator[Sequence[str]]:
        """Yields related modules, nearest first: each enclosing one, those inside, those of the
        same class, the root."""
        outer = module.rpartition(".")[0]
        while outer:
            yield [outer]
            outer = outer.rpartition(".")[0]
        known = sorted({one for one, _ in self._ratios})
        yield [one for one in known if one.startswith(f"{module}.")]
        own = self.class_names.get(module)
        if own is not None:
            yield [one for one in known if self.class_names.get(one) == own]
        yield known

    @cached_property
    def _ratios(self) -> dict[tuple[str, str], TimeRatio]:
        """Measured ratios by module and variant."""
        times: dict[tuple[str, str], _Times] = defaultdict(_Times)
        for timing in self.timings:
            if timing.trouble is None:
                for module in timing.modules:
                    times[module, timing.variant].add(timing)
        found: dict[tuple[str, str], TimeRatio] = {}
        for (module, variant), own in times.items():
            before = times.get((module, AS_RECORDED))
            if variant != AS_RECORDED and before is not None:
                ratio = own.over(before)
                if ratio is not None:
                    found[module, variant] = ratio
        return found


_COMPILED_MODEL = TimeRatio(
    forward=_COMPILED_RATIO,
    backward=_COMPILED_RATIO,
    error=MODEL_ERRORS["compiled"],
    is_measured=False,
)
_HALF_MODEL = TimeRatio(
    forward=_HALF_RATIO,
    backward=_HALF_RATIO,
    saved=_HALF_SAVED,
    error=MODEL_ERRORS["half"],
    is_measured=False,
)


def module_timings(timings: Iterable[Iterable[ModuleTiming]]) -> tuple[ModuleTiming, ...]:
    """Returns the timings of all ranks in one row."""
    return tuple(one for of_rank in timings for one in of_rank)


class _Times:
    """Samples of one module in one variant."""

    def __init__(self) -> None:
        self.forward_ns: list[int] = []
        self.backward_ns: list[int] = []
        self.saved_bytes = 0

    def add(self, timing: ModuleTiming) -> None:
        self.forward_ns += timing.forward_ns
        self.backward_ns += timing.backward_ns
        self.saved_bytes = max(self.saved_bytes, timing.saved_bytes)

    def over(self, before: _Times) -> TimeRatio | None:
        forward = _ratio(self.forward_ns, before.forward_ns)
        backward = _ratio(self.backward_ns, before.backward_ns)
        if forward is None and backward is None:
            return None
        known = [one for one in (forward, backward) if one is not None]
        first, last = known[0], known[-1]
        has_saved = self.saved_bytes > 0 and before.saved_bytes > 0
        return TimeRatio(
            forward=first[0],
            backward=last[0],
            saved=self.saved_bytes / before.saved_bytes if has_saved else 1.0,
            error=max(MEASURED_ERROR, first[1], last[1]),
        )


def _ratio(now: Sequence[int], before: Sequence[int]) -> tuple[float, float] | None:
    """Returns the ratio of medians and its relative error; None without samples."""
    if not now or not before:
        return None
    upper, lower = float(np.median(now)), float(np.median(before))
    if upper <= 0 or lower <= 0:
        return None
    return upper / lower, math.hypot(_error_of_median(now), _error_of_median(before))


def _error_of_median(samples: Sequence[int]) -> float:
    values = np.array(samples, dtype=np.float64)
    median = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - median)))
    return 1.2533 * spread / median / math.sqrt(len(values))


def _mean(ratios: Sequence[TimeRatio], *, more_error: float) -> TimeRatio:
    """Returns the geometric mean of ratios; their spread adds to the error."""
    logs = np.log([(one.forward, one.backward, one.saved) for one in ratios])
    forward, backward, saved = np.exp(logs.mean(axis=0)).tolist()
    spread = float(logs[:, :2].std(axis=0).max()) if len(ratios) > 1 else 0.0
    error = max(one.error for one in ratios)
    return TimeRatio(
        forward=forward,
        backward=backward,
        saved=saved,
        error=math.sqrt(error**2 + spread**2 + more_error**2),
        is_measured=False,
    )


def _amdahl(threads: float) -> float:
    return 1 - _PARALLEL_SHARE + _PARALLEL_SHARE / threads
