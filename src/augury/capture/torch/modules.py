"""The trained modules of the process, and names for them and their parameters.

Modules are found among all live objects, so that nothing of torch has to be replaced beforehand:
those that contain a parameter of an optimizer, and every DistributedDataParallel. Objects that a
program hides from the garbage collector with ``gc.freeze`` are not found.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from augury.core.module_paths import clean_path

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import Optimizer


@dataclass(slots=True)
class TrainedModules:
    """Parameters are identified by ``id``, which is valid while the modules exist."""

    modules: dict[str, Module] = field(default_factory=dict)
    name_of_parameter: dict[int, str] = field(default_factory=dict)
    ddp: list[DistributedDataParallel] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    """Wrappers that ``torch.compile`` put around modules."""

    @property
    def class_names(self) -> dict[str, str]:
        return {path: class_name(module) for path, module in self.modules.items()}


def find_modules(optimizers: Sequence[Optimizer]) -> TrainedModules:
    from torch.nn import Module
    from torch.nn.parallel import DistributedDataParallel

    # By type, because asking an instance may run code of the program.
    everything = [thing for thing in gc.get_objects() if issubclass(type(thing), Module)]
    found = TrainedModules(
        ddp=[module for module in everything if issubclass(type(module), DistributedDataParallel)],
        compiled=[module for module in everything if is_compiled_wrapper(module)],
    )
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    trained = {id(p): i for i, p in enumerate(p for group in groups for p in group["params"])}
    owners = [
        module
        for module in everything
        if "_parameters" in vars(module)  # absent if its constructor failed
        and any(id(parameter) in trained for parameter in module._parameters.values())
    ]
    roots = [unwrapped(root) for root in _topmost([*found.ddp, *owners], everything)]
    # In the order of the optimizers, which all ranks share; live objects have no stable order.
    roots.sort(
        key=lambda root: min(
            (trained.get(id(p), len(trained)) for p in root.parameters()), default=0
        )
    )
    _name(roots, found)
    return found


def _topmost(modules: Iterable[Module], everything: Iterable[Module]) -> list[Module]:
    parents: dict[int, list[Module]] = {}
    for module in everything:
        for child in vars(module).get("_modules", {}).values():
            parents.setdefault(id(child), []).append(module)
    roots: dict[int, Module] = {}
    seen: set[int] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        above = parents.get(id(module), [])
        waiting += above
        if not above:
            roots[id(module)] = module
    return list(roots.values())


def unwrapped(module: Module) -> Module:
    from torch.nn import DataParallel
    from torch.nn.parallel import DistributedDataParallel

    while True:
        if isinstance(module, DistributedDataParallel | DataParallel):
            module = module.module
        elif is_compiled_wrapper(module):
            module = module._orig_mod
        else:
            return module


def class_name(module: Module) -> str:
    """Returns the name that the author gave: FSDP2 replaces a module's class by a derived one."""
    sharding = sys.modules.get("torch.distributed.fsdp")
    sharded = getattr(sharding, "FSDPModule", None)
    kind = type(module)
    if sharded is not None and len(kind.__bases__) == 2 and kind.__bases__[0] is sharded:
        kind = kind.__bases__[1]
    return kind.__name__


def is_compiled_wrapper(module: Any) -> bool:
    """Whether ``torch.compile`` made this wrapper. Does not import the compiler."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return compiler is not None and issubclass(type(module), compiler.OptimizedModule)


def _name(roots: list[Module], found: TrainedModules) -> None:
    """Names a root by its class and all modules below it by their paths; the root's name is a
    prefix of these where there are several roots."""
    # Two wrappers of one module share a root.
    roots = list({id(root): root for root in roots}.values())
    classes: Counter[str] = Counter()
    for root in roots:
        own = class_name(root)
        classes[own] += 1
        name = own if classes[own] == 1 else f"{own}#{classes[own]}"
        prefix = f"{name}." if len(roots) > 1 else ""
        for path, module in root.named_modules():
            shown = prefix + clean_path(path) if path else name
            found.modules.setdefault(shown, module)
            inside = f"{shown}." if path else prefix
            for parameter_name, parameter in _own_parameters(module):
                found.name_of_parameter.setdefault(id(parameter), inside + parameter_name)


def _own_parameters(module: Module) -> Iterator[tuple[str, Any]]:
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield name, parameter
