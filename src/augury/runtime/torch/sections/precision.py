"""Section ``precision``: the model's training forward and backward under autocast."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import torch

from augury.core.plan.sections import HalfPrecision, PrecisionSection
from augury.runtime.torch.sections.module_calls import Call, ModuleCalls
from augury.runtime.torch.sections.rehearsal import rehearse

DTYPES = {HalfPrecision.BFLOAT16: torch.bfloat16, HalfPrecision.FLOAT16: torch.float16}
HAS_SCALER = "the program has a GradScaler"
_HALF = (torch.bfloat16, torch.float16)


def why_not(model: Any, section: PrecisionSection) -> str | None:
    if section.dtype is HalfPrecision.FLOAT16:
        return "float16 needs a GradScaler, which only the program can have"
    if _has_scaler():
        return HAS_SCALER
    if any(p.is_floating_point() and p.dtype in _HALF for p in model.parameters()):
        return "the model has parameters in half precision"
    if hasattr(model.module, "training_step"):
        return 'Lightning has a setting of its own: Trainer(precision="bf16-mixed")'
    return None


def _has_scaler() -> bool:
    kind = torch.amp.GradScaler
    scalers = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    return any(scaler.is_enabled() for scaler in scalers)


class AutocastModel:
    """Autocast around one model. ``trouble`` states why the section cannot be applied."""

    is_compiled = False

    def __init__(self, model: Any, section: PrecisionSection, calls: ModuleCalls) -> None:
        self.is_on = self.is_rehearsing = False
        self.trouble: str | None = None
        self._module, self._calls = model.module, calls
        self._dtype = DTYPES[section.dtype]
        self._is_rehearsed = False
        self._is_own = False
        """Whether autocast is entered by the section itself."""
        self._enter: Any = None
        calls.add(model.module, self)
        self._watch_program()

    def why_not(self) -> str | None:
        """Returns why the section cannot be applied, after the rehearsal."""
        if self.trouble is None and _has_scaler():
            self.trouble = HAS_SCALER
        missing = None if self._is_rehearsed else "the model was not called"
        return self.trouble or missing

    def use(self, is_on: bool) -> None:
        self.is_on = is_on
        if is_on:
            self._stop_watching()

    def rehearse(self, is_on: bool) -> None:
        self.is_rehearsing = is_on

    def close(self) -> None:
        self.is_on = self.is_rehearsing = False
        self._stop_watching()
        self._calls.remove_layers({id(self)})

    def run(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.is_rehearsing and self.trouble is None and not self._is_rehearsed:
            self._is_rehearsed = True
            self._rehearse(call, args, options)
        if not self.is_on:
            return call(*args, **options)
        return self._cast(call, *args, **options)

    def _cast(self, call: Call, *args: Any, **options: Any) -> Any:
        was, self._is_own = self._is_own, True
        try:
            with torch.autocast("cpu", dtype=self._dtype):
                result = call(*args, **options)
        finally:
            self._is_own = was
        return as_float32(result)

    def _rehearse(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if torch.is_autocast_enabled("cpu"):
            self.trouble = "the program uses autocast"
            return

        def cast(*own_args: Any, **own_options: Any) -> Any:
            return self._cast(call, *own_args, **own_options)

        try:
            found = rehearse(self._module, cast, args, options)
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self.trouble = f"the model fails under autocast: {first[:200]}"
            return
        if any(one is not None and not torch.isfinite(one).all() for one in found):
            self.trouble = "the model computes infinite values under autocast"

    def _watch_program(self) -> None:
        """Notices where the program enters autocast itself, also in its loss."""
        kind = torch.autocast
        was = self._was = kind.__enter__
        section = self

        def enter(context: Any) -> Any:
            if getattr(context, "_enabled", True) and not section._is_own:
                section.trouble = section.trouble or "the program uses autocast"
            return was(context)

        self._enter = kind.__enter__ = enter

    def _stop_watching(self) -> None:
        if self._enter is not None and torch.autocast.__enter__ is self._enter:
            torch.autocast.__enter__ = self._was
        self._enter = None


def as_float32(value: Any) -> Any:
    """Returns an output with tensors of half precision as float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(as_float32(one) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(as_float32(one) for one in value)
    return value


def _rebuilt_mapping(value: Any) -> Any:
    cast = {name: as_float32(one) for name, one in value.items()}
    if all(cast[name] is value[name] for name in cast):
        return value
    return type(value)(cast) if type(value) is dict else type(value)(**cast)
