"""Profiler ranges around the forward calls of modules: all of them, or only the outermost ones.

A detailed window has a range for every call of every module. A light window has one for every
outermost call, because torch itself marks only the forward of DistributedDataParallel.

Hooks are set on each module rather than globally, because compiled modules warn about global hooks.
The insides of compiled modules get no hooks, because these would be compiled too. Hooks that open
a range come before those of the program, so that the gathering of sharded parameters lies within.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from augury.capture.torch.modules import TrainedModules, find_modules, unwrapped
from augury.core.vocabulary.torch import EVALUATION_RANGE, FORWARD_RANGE, MODULE_RANGE

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import Optimizer

MAX_RANGES = 200
"""Most outermost ranges in one step: programs that call single cells in a loop have thousands."""


class ModuleRanges:
    """Between ``start`` and ``stop``, every forward call is a range named after its module."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        # Recomputation calls modules from autograd's own threads.
        self._local = threading.local()

    def start(self, trained: TrainedModules) -> None:
        for path, module in visible_modules(trained):
            self._watch(module, path)

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def current(self) -> str:
        """Returns the path of the innermost module that runs on this thread; empty if none."""
        ranges = self._ranges()
        return ranges[-1][0] if ranges else ""

    def _ranges(self) -> list[tuple[str, Any]]:
        if not hasattr(self._local, "ranges"):
            self._local.ranges = []
        ranges: list[tuple[str, Any]] = self._local.ranges
        return ranges

    def _watch(self, module: Module, path: str) -> None:
        def enter(module: Module) -> None:
            opened = _open_range(MODULE_RANGE, module, path)
            self._ranges().append((path, opened))

        def leave(_module: Module) -> None:
            ranges = self._ranges()
            # A call that failed may have left its range open.
            while any(name == path for name, _ in ranges):
                name, opened = ranges.pop()
                opened.__exit__(None, None, None)
                if name == path:
                    break

        self._hooks += _hooks_around(module, enter, leave)


class OpenRange(Protocol):
    """A range that has begun."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object: ...


class KnownModules:
    """The trained modules of the optimizers. Searching all live objects takes long, so it is
    repeated only if optimizers or modules have changed."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, weakref.ref[Module]]] = []
        self._ddp: list[weakref.ref[DistributedDataParallel]] = []
        self._optimizers: list[int] = []
        """Identifiers of the optimizers whose modules are known."""

    def find(self, optimizers: Sequence[Optimizer]) -> list[tuple[str, Module]]:
        """Returns the modules that can have hooks, with their paths."""
        found = [(path, module()) for path, module in self._modules]
        known = [(path, module) for path, module in found if module is not None]
        if self._optimizers == [*map(id, optimizers)] and known and len(known) == len(found):
            return known
        trained = find_modules(optimizers)
        known = list(visible_modules(trained))
        self._modules = [(path, weakref.ref(module)) for path, module in known]
        self._ddp = [weakref.ref(model) for model in trained.ddp]
        self._optimizers = [*map(id, optimizers)]
        return known

    @property
    def ddp(self) -> list[DistributedDataParallel]:
        """The models under DDP that ``find`` saw and that still exist."""
        return [model for known in self._ddp if (model := known()) is not None]


class ForwardRanges:
    """Between ``start`` and ``stop``, every outermost forward call of a trained module is a range.

    Which calls are outermost is learned in the first step of each window, whose duration does not
    count: a trainer may never call the whole model, only parts of it. After that step all other
    modules run without hooks."""

    def __init__(
        self, modules: KnownModules, open_range: Callable[[Module, str], OpenRange] | None = None
    ) -> None:
        """``open_range`` begins the range of a module with this path; by default it is one of
        torch's profiler."""
        self._modules = modules
        self._open_range = open_range or partial(_open_range, FORWARD_RANGE)
        self._hooks: dict[int, list[Any]] = {}
        """Hooks by ``id`` of their module."""
        self._outermost: set[int] = set()
        self._is_learning = False
        self._num_ranges = 0
        self._local = threading.local()

    def start(self, optimizers: Sequence[Optimizer]) -> None:
        for path, module in self._modules.find(optimizers):
            self._hooks[id(module)] = self._watch(module, path)
        self._outermost.clear()
        self._is_learning = True
        self._num_ranges = 0

    def end_step(self) -> None:
        self._num_ranges = 0
        if self._is_learning and self._outermost:
            self._is_learning = False
            for module in [one for one in self._hooks if one not in self._outermost]:
                self._remove(module)

    def stop(self) -> None:
        for module in list(self._hooks):
            self._remove(module)
        self._is_learning = False

    def _remove(self, module: int) -> None:
        for hook in self._hooks.pop(module):
            hook.remove()

    def _watch(self, module: Module, path: str) -> list[Any]:
        own = id(module)

        def enter(module: Module) -> None:
            call = getattr(self._local, "call", None)
            if call is not None:
                call.depth += call.module == own
                return
            self._num_ranges += 1
            if self._num_ranges <= MAX_RANGES:
                self._outermost.add(own)
                self._local.call = _OutermostCall(own, self._open_range(module, path))

        def leave(_module: Module) -> None:
            call = getattr(self._local, "call", None)
            if call is None or call.module != own:
                return
            call.depth -= 1
            if call.depth == 0:
                self._local.call = None
                call.range.__exit__(None, None, None)

        return _hooks_around(module, enter, leave)


class _OutermostCall:
    """The outermost call in progress on a thread. A module may call itself: ``depth`` counts."""

    __slots__ = ("depth", "module", "range")

    def __init__(self, module: int, opened: Any) -> None:
        self.module, self.range, self.depth = module, opened, 1


def visible_modules(trained: TrainedModules) -> Iterator[tuple[str, Module]]:
    """Yields all modules with their paths, without those inside of compiled ones."""
    inside = {id(inner) for outer in trained.compiled for inner in outer._orig_mod.modules()}
    for module in trained.modules.values():
        call = getattr(module, "_compiled_call_impl", None)
        # A plan that is followed stands in for calls, too; it says whether it compiles them.
        if call is not None and getattr(call, "is_compiled", True):
            inside.update(id(inner) for inner in module.modules())
    wrapper = {id(unwrapped(outer)): outer for outer in trained.compiled}
    for path, module in trained.modules.items():
        seen_from_outside = wrapper.get(id(module), module)
        if id(seen_from_outside) not in inside:
            yield path, seen_from_outside


def _open_range(prefix: str, module: Module, path: str) -> Any:
    from torch import is_grad_enabled
    from torch.autograd.profiler import record_function

    # Parts of a model may be frozen in this mode, or run without gradients: not both.
    is_evaluation = not module.training and not is_grad_enabled()
    opened = record_function((EVALUATION_RANGE if is_evaluation else prefix) + path)
    opened.__enter__()
    return opened


def _hooks_around(
    module: Module, enter: Callable[[Module], None], leave: Callable[[Module], None]
) -> list[Any]:
    """Calls ``enter`` before and ``leave`` after each forward call. Returns the hooks."""
    from torch.compiler import is_compiling

    def before(module: Module, _inputs: Any) -> None:
        if is_compiling():
            return  # otherwise it would be compiled into the module
        with suppress(Exception):
            enter(module)

    def after(module: Module, _inputs: Any, _output: Any) -> None:
        if is_compiling():
            return
        with suppress(Exception):
            leave(module)

    with suppress(Exception):  # scripted modules take no hooks
        return [
            module.register_forward_pre_hook(before, prepend=True),
            module.register_forward_hook(after, always_call=True),
        ]
    return []
