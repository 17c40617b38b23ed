"""Times forward and backward of one module in several variants, which take turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from augury.capture.torch.module_times.described import TensorDescription, load
from augury.capture.torch.module_times.saved_bytes import SavedBytes
from augury.capture.torch.module_times.snapshot import StoredGroup

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

MIN_SAMPLES, MAX_SAMPLES = 3, 16
MUCH_SLOWER = 4.0
"""A variant that takes this many times longer than the module as recorded gets one sample."""
SPREAD_ELEMENTS = 1 << 17
"""Elements of an operation that torch spreads over all threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to run the module."""

    name: str
    call: Callable[..., Any]
    autocast: dict[str, Any]
    """Type of autocast by kind of device."""
    num_threads: int
    is_compiled: bool = False


@dataclass(slots=True, kw_only=True)
class Samples:
    """Measured times of one variant, or the error that it raised."""

    forward_ns: list[int] = field(default_factory=list)
    backward_ns: list[int] = field(default_factory=list)
    saved_bytes: int = 0
    error: Exception | None = None

    @property
    def total_ns(self) -> int:
        return sum(self.forward_ns) + sum(self.backward_ns)

    def clear(self) -> None:
        self.forward_ns.clear()
        self.backward_ns.clear()


class TimedModule:
    """One module with the arguments of its call, in this process."""

    def __init__(self, group: StoredGroup) -> None:
        self.module: Module = load(group.module)
        self._arguments = group.arguments
        self._templates: dict[int, Tensor] = {}
        self.device = _device_of(self.module, group)
        """Kind of the device that the module runs on."""
        self._wait = _wait_for(self.device)
        load(group.arguments, self._fresh)  # fails here if it fails

    def measure(self, variants: list[Variant], seconds: float) -> dict[str, Samples]:
        """Returns samples by the variant's name. The first variant is the module as recorded: if it
        fails, the others are not tried. Variants that the time does not suffice for are left
        out; compiling takes as long as it takes."""
        deadline = time.monotonic() + seconds
        found: dict[str, Samples] = {}
        quick: list[Variant] = []
        limit_ns = math.inf
        for variant in variants:
            samples = found[variant.name] = Samples()
            try:
                self._sample(variant, samples)
                is_quick = samples.total_ns <= limit_ns or variant.is_compiled
                if quick and variant.num_threads != quick[0].num_threads:
                    samples.saved_bytes = found[quick[0].name].saved_bytes
                elif is_quick:
                    with suppress(Exception):  # a module may refuse hooks on what it saves
                        samples.saved_bytes = self._saved_bytes(variant)
                if is_quick:
                    quick.append(variant)
            except Exception as error:
                samples.clear()
                samples.error = error
            if not quick or (time.monotonic() > deadline and not variant.is_compiled):
                break
            limit_ns = MUCH_SLOWER * found[quick[0].name].total_ns
        if any(variant.is_compiled for variant in quick):
            deadline = time.monotonic() + seconds  # compiling is not counted
        if quick:
            self._take_turns(quick, found, deadline, seconds)
        return found

    def _take_turns(
        self, variants: list[Variant], found: dict[str, Samples], deadline: float, seconds: float
    ) -> None:
        for variant in variants:
            found[variant.name].clear()  # these were taken while caches were cold
        begun = time.monotonic()
        num_rounds = MAX_SAMPLES
        number = 0
        while number < num_rounds:
            for variant in variants:
                self._sample(variant, found[variant.name])
            number += 1
            round_s = (time.monotonic() - begun) / number
            least = MIN_SAMPLES if MIN_SAMPLES * round_s < seconds else 1
            num_rounds = min(MAX_SAMPLES, max(least, round((deadline - begun) / round_s)))

    def _sample(self, variant: Variant, samples: Samples) -> None:
        forward_ns, backward_ns = self._run(variant)
        samples.forward_ns.append(forward_ns)
        if backward_ns is not None:
            samples.backward_ns.append(backward_ns)

    def _saved_bytes(self, variant: Variant) -> int:
        saved = SavedBytes(self.module)
        # Hooks would have compiled code compiled again.
        hooks = nullcontext() if variant.is_compiled else saved.hooks()
        with self._prepared(variant) as (arguments, options), hooks:
            output = variant.call(*arguments, **options)
        if variant.is_compiled:
            saved.add_graph(_with_gradients(output))
        self._backward(output)
        return saved.size_bytes

    def _run(self, variant: Variant) -> tuple[int, int | None]:
        """Returns the times of forward and backward, None where no gradient is computed."""
        with self._prepared(variant) as (arguments, options):
            self._wait()
            start_ns = time.perf_counter_ns()
            output = variant.call(*arguments, **options)
            self._wait()
            forward_ns = time.perf_counter_ns() - start_ns
        return forward_ns, self._backward(output)

    @contextmanager
    def _prepared(self, variant: Variant) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        import torch

        if torch.get_num_threads() != variant.num_threads:
            torch.set_num_threads(variant.num_threads)
            torch.ones(SPREAD_ELEMENTS).mul_(1.0)  # starts the threads
        for leaf in (*self.module.parameters(), *self._templates.values()):
            leaf.grad = None
        arguments, options = load(self._arguments, self._fresh)
        with ExitStack() as stack:
            for kind, dtype in variant.autocast.items():
                stack.enter_context(torch.autocast(kind, dtype))
            yield arguments, options

    def _backward(self, output: Any) -> int | None:
        import torch

        results = _with_gradients(output)
        if not results:
            return None
        gradients = [torch.ones_like(result) for result in results]
        self._wait()
        start_ns = time.perf_counter_ns()
        torch.autograd.backward(results, gradients)
        self._wait()
        return time.perf_counter_ns() - start_ns

    def _fresh(self, number: int) -> Tensor:
        """Returns a copy, which the module may change in place: it is no leaf."""
        kept = self._arguments.tensors[number]
        if not isinstance(kept, TensorDescription):
            return kept.clone()
        if number not in self._templates:
            made = kept.make().detach()
            self._templates[number] = made.requires_grad_(kept.requires_grad)
        return self._templates[number].clone()


def _with_gradients(output: Any) -> list[Tensor]:
    """Returns the tensors of a module's output that backward starts from: the loss alone, if there
    is one."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(output)
    for leaf in [*leaves]:
        # torch knows only some kinds of containers: look into others one level deep.
        leaves += tree_leaves(list(getattr(leaf, "__dict__", {}).values()))
    found = [
        leaf
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None
    ]
    losses = [leaf for leaf in found if leaf.dim() == 0]
    return losses[:1] or found


def _device_of(module: Module, group: StoredGroup) -> str:
    import torch

    tensors = [*module.parameters(), *module.buffers(), *group.arguments.tensors]
    kinds = {torch.device(tensor.device).type for tensor in tensors}
    return next(iter(sorted(kinds - {"cpu"})), "cpu")


def _wait_for(kind: str) -> Callable[[], None]:
    """Returns a function that waits until the device has completed its work."""
    import torch

    if kind == "cpu":
        return lambda: None
    device = getattr(torch, kind)
    wait: Callable[[], None] = device.synchronize
    return wait
