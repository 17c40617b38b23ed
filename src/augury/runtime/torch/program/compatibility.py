"""Checks whether a given training can follow a Plan, and states why not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer

from augury.core.enums import OpKind
from augury.core.plan.plan import (
    TORCH,
    CommunicationSection,
    Mode,
    Plan,
    communication_of,
    parameters_digest,
)
from augury.core.plan.plan_spec import order_errors
from augury.runtime.torch.pieces.updates import PART_OF
from augury.runtime.torch.program.parameter_names import matched, trained_parameters
from augury.runtime.torch.sections.module_calls import ModuleCall

GOVERNED = "_augury_governed"
"""Marks an optimizer whose steps a plan governs."""
_OTHER_STEPS = {"LBFGS", "SparseAdam"}
"""Optimizers that evaluate the model within a step, or take sparse gradients."""


def why_no_model(model: Any) -> str | None:
    """Returns the first reason that holds for every section of every plan."""
    return next(_against_model(model), None)


def why_no_ddp(optimizers: Sequence[Any]) -> str:
    """Returns the reason that holds where no model is wrapped by DistributedDataParallel."""
    tensors = sys.modules.get("torch.distributed.tensor")
    parameters = [p for one in optimizers for group in _groups(one) for p in group["params"]]
    if tensors is not None and any(isinstance(p, tensors.DTensor) for p in parameters):
        return "the parameters are sharded (DTensor), as by FSDP2's fully_shard"
    return "no model is trained by DistributedDataParallel"


def why_never(model: Any, optimizer: Any) -> str | None:
    """Returns the first reason that holds for the communication section of every plan."""
    return why_no_model(model) or why_no_exchange(model, optimizer)


def why_no_exchange(model: Any, optimizer: Any | None) -> str | None:
    """Returns why gradients cannot be exchanged in another way; without ``optimizer``: as far as
    that is known before the program has one."""
    reason = next(_against_exchange(model), None)
    if optimizer is None:
        return reason
    return reason or next(_against_optimizer(model, optimizer), None)


def why_not(model: Any, plan: Plan) -> str | None:
    """Returns the first reason why the model cannot have any section of this plan."""
    num_ranks = model.process_group.size()
    if plan.num_ranks != num_ranks:
        return f"the plan is for {plan.num_ranks} ranks, this job has {num_ranks}"
    if plan.framework != TORCH:
        return f"the plan is for {plan.framework}, not for PyTorch"
    return None if plan.sections else "the plan has no section"


def why_no_communication(model: Any, section: CommunicationSection, digest: str) -> str | None:
    """Returns the first reason why the model cannot have this section; ``digest``: the fingerprint
    of the plan's parameters."""
    return next(_against_section(model, section, digest), None)


def planned_parameters(model: Any, plan: Plan) -> list[Any]:
    """Returns the parameters in the order of the Problem's gradients."""
    here = trained_parameters(model)
    names = [gradient.name for gradient in communication_of(plan).problem.gradients]
    known = matched(list(here), names)
    assert known is not None
    return [here[known[name]] for name in names]


def _against_model(model: Any) -> Iterator[str]:
    if type(model) is not DistributedDataParallel:
        yield f"{type(model).__name__} is not a plain DistributedDataParallel"
        return
    if model.process_group.size() != distributed.get_world_size():
        yield "the model is not trained by all ranks together"
    if model.process_group.size() < 2:
        yield "there is only one rank"
    if any(p.device.type != "cpu" for p in model.parameters()):
        yield "only training on CPUs is supported"
    if model.static_graph:
        yield "DDP was given static_graph=True"
    if getattr(model, "mixed_precision", None) is not None:
        yield "DDP's own mixed precision is on"
    if getattr(model, "_delay_all_reduce_params", None) or getattr(
        model, "_use_python_reducer", False
    ):
        yield "DDP does not use its default reducer"
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        yield "part of the model is scripted"
    if _is_compiled(model):
        yield "the model is compiled"


def _against_exchange(model: Any) -> Iterator[str]:
    if getattr(model, "_comm_hooks", None):
        yield "the model has a communication hook"
    if has_sparse_gradients(model):
        yield "the model has sparse gradients"


def has_sparse_gradients(model: Any) -> bool:
    return any(
        getattr(module, "sparse", False) is True and hasattr(module, "embedding_dim")
        for module in model.modules()
    )


def _is_compiled(model: Any) -> bool:
    calls = [getattr(module, "_compiled_call_impl", None) for module in model.modules()]
    if any(call is not None and not isinstance(call, ModuleCall) for call in calls):
        return True
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is None:
        return False
    wrapper = compiler.OptimizedModule
    return any(isinstance(module, wrapper) for module in model.modules()) or any(
        thing._orig_mod is model for thing in _living(wrapper)
    )


def _living(kind: type) -> list[Any]:
    """Returns all instances in the program. ``isinstance`` could run code of the program."""
    kinds: set[type] = set()
    new = {kind}
    while new:
        kinds |= new
        below: set[type] = set()
        for above in new:
            below.update(type.__subclasses__(above))
        new = below - kinds
    return [thing for thing in gc.get_objects() if type(thing) in kinds]


def _against_optimizer(model: Any, optimizer: Any) -> Iterator[str]:
    kind = type(optimizer)
    if not f"{kind.__module__}.".startswith("torch.optim."):
        yield f"{kind.__name__} is not one of torch's optimizers"
        return
    if kind.__name__ in _OTHER_STEPS:
        yield f"{kind.__name__} cannot update parameters one by one"
    if kind.__name__ == "Adafactor" and any(
        len({p.dtype for p in group["params"]}) > 1 for group in optimizer.param_groups
    ):
        # Torch uses the epsilon of the first parameter of a group for all of them.
        yield "Adafactor cannot update parameters of several types one by one"
    if _is_patched(kind):
        yield f"the program has replaced {kind.__name__}.step"
    if has_step_hooks(optimizer):
        yield "the optimizer has step hooks"
    if GOVERNED in vars(optimizer):
        yield "the optimizer also updates another model that follows a plan"
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    exchanged = {id(p) for p in trained_parameters(model).values()}
    if not own & exchanged:
        yield "the optimizer has no parameters of the model"
    rivals = [
        other
        for other in _living(torch.optim.Optimizer)
        if other is not optimizer
        and PART_OF not in vars(other)
        and any(id(p) in exchanged for group in _groups(other) for p in group["params"])
    ]
    if rivals:
        yield "several optimizers update the model"


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = vars(optimizer).get("param_groups", [])
    return found


def is_plain_step(optimizer: Any, step: Any) -> bool:
    """Whether a method is the optimizer's own ``step``, wrapped by learning-rate schedulers at
    most. Other wrappers of the program must run in every step."""
    function = getattr(step, "__func__", step)
    if getattr(function, "_wrapped_by_lr_sched", False):
        function = getattr(function, "__wrapped__", None)
    return function is type(optimizer).step and not _is_patched(type(optimizer))


def _is_patched(kind: Any) -> bool:
    """Whether the program has put a wrapper around the ``step`` of a class of torch."""
    function = kind.step
    while function is not None:
        home = getattr(function, "__globals__", {}).get("__name__", "")
        if not home.startswith("torch."):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def has_step_hooks(optimizer: Any) -> bool:
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def has_global_step_hooks() -> bool:
    """Whether the program has registered hooks for the steps of all optimizers. Those of Augury
    neither read nor change gradients."""
    return any(
        not str(getattr(hook, "__module__", "")).startswith("augury.")
        for hooks in (
            torch_optimizer._global_optimizer_pre_hooks,
            torch_optimizer._global_optimizer_post_hooks,
        )
        for hook in hooks.values()
    )


def _against_section(model: Any, section: CommunicationSection, digest: str) -> Iterator[str]:
    for error in order_errors(section.order, section.problem):
        yield f"the plan is invalid: {error}"
        return
    here = trained_parameters(model)
    gradients = section.problem.gradients
    known = matched(list(here), [gradient.name for gradient in gradients])
    if known is None:
        yield f"the plan's {len(gradients)} gradients are not the model's {len(here)}"
        return
    if section.mode is Mode.PIECES:
        for gradient in gradients:
            parameter = here[known[gradient.name]]
            if parameter.nbytes != gradient.size_bytes:
                yield f"{gradient.name} has {parameter.nbytes} bytes, not {gradient.size_bytes}"
            # A record does not state item sizes, so an item of a plan may be several elements.
            elif gradient.item_bytes % parameter.element_size():
                yield f"{gradient.name} cannot be cut into items of {gradient.item_bytes} bytes"
                return
    found = parameters_digest(
        (gradient.name, here[known[gradient.name]].nbytes, gradient.item_bytes)
        for gradient in gradients
    )
    if found != digest:
        yield "the plan was made for parameters of other sizes"
    if section.mode is Mode.DDP_BUCKETS:
        return
    for piece in section.order.pieces:
        if piece.op in (OpKind.PUSH, OpKind.PULL):
            yield "the plan is for a parameter server"
            return
        kinds = {here[known[gradients[part.gradient].name]].dtype for part in piece.slices}
        if len(kinds) > 1:
            yield "the plan joins gradients of several types"
            return
