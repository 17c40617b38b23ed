"""Chooses the modules that are worth timing, and groups those of equal shapes.

The search descends from the outermost modules to blocks that repeat, such as the layers of a
transformer. One of each group is timed for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from augury.capture.torch.module_times.described import Described, TensorDescription
from augury.capture.torch.module_times.forward_calls import NotedCalls

if TYPE_CHECKING:
    from torch.nn import Module

MIN_SHARE = 0.02
"""Least share of a group in the time of forward: a decision about less gains nothing."""
MIN_SINGLE_SHARE = 0.1
"""Least share of a group of single operations, which cannot be fused."""
OWN_OPERATIONS = 2
"""Assumed operations of a module without children whose class is the program's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleGroup:
    """Modules of one class with parameters and inputs of equal shapes."""

    paths: tuple[str, ...]
    """In the order in which the program registers them."""
    module: Module
    """The first of them."""
    calls: NotedCalls
    elapsed_ns: int
    """Time in forward, of all of them."""
    num_operations: int
    """Estimate of the number of operations in the forward of one of them."""


def find_groups(noted: Mapping[str, NotedCalls]) -> list[ModuleGroup]:
    """Returns the groups by decreasing time in forward."""
    return sorted(_GroupSearch(noted).groups(), key=lambda group: -group.elapsed_ns)


class _GroupSearch:
    def __init__(self, noted: Mapping[str, NotedCalls]) -> None:
        self._noted = noted
        self._path = {
            id(module): path
            for path, calls in noted.items()
            if (module := calls.module()) is not None
        }
        self._signatures: dict[str, Hashable] = {}
        for path, calls in noted.items():
            module = calls.module()
            if module is not None and calls.arguments is not None:
                self._signatures[path] = _signature(module, calls, calls.arguments)
        self._repeats = Counter(self._signatures.values())
        self._chosen: dict[str, Module] = {}

    def groups(self) -> Iterator[ModuleGroup]:
        roots = self._outermost()
        total_ns = sum(map(self._forward_ns, roots))
        for root in roots:
            self._choose(root, is_root=True)
        members: dict[Hashable, list[str]] = {}
        for path in self._chosen:
            members.setdefault(self._signatures[path], []).append(path)
        for paths in members.values():
            module, calls = self._chosen[paths[0]], self._noted[paths[0]]
            elapsed_ns = sum(self._noted[path].elapsed_ns for path in paths)
            num_operations = max(1, self._num_operations(module))
            least = MIN_SHARE if num_operations > 1 else MIN_SINGLE_SHARE
            if elapsed_ns >= least * total_ns:
                yield ModuleGroup(
                    paths=tuple(paths),
                    module=module,
                    calls=calls,
                    elapsed_ns=elapsed_ns,
                    num_operations=num_operations,
                )

    def _outermost(self) -> list[Module]:
        """The modules that no other noted module contains."""
        noted = [calls.module() for calls in self._noted.values()]
        modules = [module for module in noted if module is not None]
        inner = {id(child) for module in modules for child in module.children()}
        return [module for module in modules if id(module) not in inner]

    def _forward_ns(self, module: Module) -> int:
        """Time of a module's forward, or of those inside of one that the program never calls."""
        path = self._path.get(id(module))
        elapsed_ns = self._noted[path].elapsed_ns if path is not None else 0
        return elapsed_ns or sum(map(self._forward_ns, module.children()))

    def _choose(self, module: Module, *, is_root: bool = False) -> None:
        path = self._path.get(id(module))
        if path in self._signatures and path not in self._chosen:
            self._chosen[path] = module
            is_block = self._num_operations(module) > 1
            if is_block and not is_root and self._repeats[self._signatures[path]] > 1:
                return
        for child in module.children():
            self._choose(child)

    def _num_operations(self, module: Module) -> int:
        return sum(
            1 if type(inner).__module__.startswith("torch.nn.") else OWN_OPERATIONS
            for inner in module.modules()
            if not any(True for _ in inner.children())
            and self._path.get(id(inner)) in self._signatures
        )


def _signature(module: Module, calls: NotedCalls, arguments: Described) -> Hashable:
    written = ""
    with suppress(Exception):  # a program's own representation may fail
        written = repr(module)
    parameters = module.named_parameters()
    return (
        type(module),
        written,
        tuple((name, tuple(one.shape), one.dtype, one.requires_grad) for name, one in parameters),
        tuple(inner.training for inner in module.modules()),
        tuple(
            (tuple(one.shape), one.dtype, one.requires_grad, isinstance(one, TensorDescription))
            for one in arguments.tensors
        ),
        tuple(sorted(calls.autocast.items())),
    )
