"""Section ``fusion``: compiles the chosen modules, each as a whole.

A module is compiled for the shapes with which training calls it before the trial, in a rehearsal
beside the training. Calls with other shapes and evaluations run as without the plan, so nothing is
compiled later.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from augury.core.plan.plan import PlanSection
from augury.runtime.plan_reports import note_refusal
from augury.runtime.torch.sections.module_calls import Call, ModuleCalls, has_own_hooks
from augury.runtime.torch.sections.rehearsal import largest_difference, rehearse, tensors_in

WATCHED_STEPS = 20
"""Steps before the trial in which the program is watched: compiled code has no second derivatives,
which some programs need only every few steps."""
COMPILED_WITHIN_S = 600.0
"""Ranks wait for each other while they compile."""
MAX_SHAPES = 4
"""Combinations of input shapes for which one module is compiled."""
TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.02}
FLOAT32_TOLERANCE = 1e-3
_CREATE_GRAPH = 3
"""Place of ``create_graph`` among the arguments of autograd's engine."""
_LIMITS = {"recompile_limit": 256, "accumulated_recompile_limit": 4096}
"""Modules of one class share compiled code, one version for each combination of shapes."""


def why_not(model: Any, modules: Mapping[str, Any]) -> str | None:
    if model.find_unused_parameters:
        return "DDP has find_unused_parameters=True, and compiled modules do not show unused ones"
    for path, module in modules.items():
        if has_own_hooks(module):
            return f"module {path} has hooks of the program"
    return None


class CompiledModules:
    """The compiled modules of one model. ``trouble`` states why the section cannot be applied."""

    def __init__(self, modules: Mapping[str, Any], calls: ModuleCalls) -> None:
        self.is_on = self.is_rehearsing = False
        self.trouble: str | None = None
        self.left_s = COMPILED_WITHIN_S
        self._calls = calls
        self._parts = [_FusedModule(self, path, module) for path, module in modules.items()]
        for part in self._parts:
            calls.add(part.module, part)
        # Otherwise a backward with retain_graph=True fails, whenever it was compiled.
        self._config = torch._functorch.config
        self._donated = self._config.donated_buffer
        self._config.donated_buffer = False
        self._was_engine = torch.autograd._engine_run_backward
        self._engine = self._watching(self._was_engine)
        torch.autograd._engine_run_backward = self._engine

    def _watching(self, was: Callable[..., Any]) -> Callable[..., Any]:
        """Notices where the program asks for derivatives of its gradients."""

        @functools.wraps(was)
        def run_backward(*args: Any, **options: Any) -> Any:
            if len(args) > _CREATE_GRAPH and args[_CREATE_GRAPH]:
                self.trouble = "the program uses create_graph=True"
            return was(*args, **options)

        return run_backward

    def why_not(self) -> str | None:
        """Returns why the section cannot be applied, after the rehearsal."""
        if torch.autograd._engine_run_backward is self._engine:
            torch.autograd._engine_run_backward = self._was_engine
        missing = [part.path for part in self._parts if not part.shapes]
        return self.trouble or (f"module {missing[0]} was not called" if missing else None)

    def use(self, is_on: bool) -> None:
        self.is_on = is_on and self.trouble is None

    def rehearse(self, is_on: bool) -> None:
        self.is_rehearsing = is_on

    def close(self) -> None:
        self.is_on = self.is_rehearsing = False
        self._calls.remove_layers({id(part) for part in self._parts})
        self._config.donated_buffer = self._donated
        if torch.autograd._engine_run_backward is self._engine:
            torch.autograd._engine_run_backward = self._was_engine

    def fail(self, path: str, error: BaseException) -> None:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        self.trouble = f"module {path} cannot be compiled: {first[:200]}"


class _FusedModule:
    def __init__(self, owner: CompiledModules, path: str, module: Any) -> None:
        self._owner, self.path, self.module = owner, path, module
        self.shapes: set[Any] = set()
        """Signatures of the calls for which the module is compiled."""
        self._compiled: Any = None

    @property
    def is_compiled(self) -> bool:
        return self._owner.is_on

    def run(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        owner = self._owner
        if owner.is_rehearsing and owner.trouble is None:
            self._rehearse(call, args, options)
        if not owner.is_on or _signature(self.module, args, options) not in self.shapes:
            return call(*args, **options)
        try:
            return self._run_compiled(call, *args, **options)
        except Exception as error:  # the program's own error comes again
            result = call(*args, **options)
            owner.is_on = False
            owner.fail(self.path, error)
            note_refusal(PlanSection.FUSION, str(owner.trouble), is_said=True)
            return result

    def _run_compiled(self, call: Call, *args: Any, **options: Any) -> Any:
        with torch.compiler.set_stance("eager_on_recompile"):
            return self._with_forward(call, *args, **options)

    def _with_forward(self, call: Call, *args: Any, **options: Any) -> Any:
        """Calls the module with its forward compiled; its hooks run as they are."""
        own = vars(self.module)
        was = own.get("forward")
        own["forward"] = self._compiled
        try:
            return call(*args, **options)
        finally:
            if was is None:
                own.pop("forward", None)
            else:
                own["forward"] = was

    def _rehearse(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        signature = _signature(self.module, args, options)
        if signature in self.shapes or len(self.shapes) >= MAX_SHAPES:
            return
        owner = self._owner
        start_s = time.monotonic()
        try:
            plain = rehearse(self.module, call, args, options)
            with ExitStack() as stack:
                stack.enter_context(torch._dynamo.config.patch(**_LIMITS))
                # Compilers in processes of their own would take the cores of other ranks.
                stack.enter_context(torch._inductor.config.patch(compile_threads=1))
                if self._compiled is None:
                    self._compiled = torch.compile(
                        self.module.forward, dynamic=False, options={"fallback_random": True}
                    )
                compiled = functools.partial(self._with_forward, call)
                fused = rehearse(self.module, compiled, args, options)
        except Exception as error:
            owner.fail(self.path, error)
            return
        owner.left_s -= time.monotonic() - start_s
        kinds = {one.dtype for one in tensors_in(plain)}
        tolerance = max((TOLERANCE.get(one, FLOAT32_TOLERANCE) for one in kinds), default=0.0)
        if largest_difference(plain, fused) > tolerance:
            owner.trouble = f"module {self.path} computes other values when it is compiled"
        elif owner.left_s < 0:
            owner.trouble = f"compiling takes longer than {COMPILED_WITHIN_S:.0f} s"
        else:
            self.shapes.add(signature)


def _signature(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Returns what compiled code depends on: the form of the inputs, and the mode."""
    return (
        module.training,
        torch.is_autocast_enabled("cpu"),
        tuple((one.shape, one.dtype, one.requires_grad) for one in tensors_in((args, options))),
    )
