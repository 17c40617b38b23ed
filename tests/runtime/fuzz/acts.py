"""What programs do after the optimizer's step: read, evaluate, change, save and resume."""

from __future__ import annotations

import copy
import io
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from tests.runtime.fuzz.program import Act

Change = Callable[[Any, int], None]


def do_act(training: Any, act: Act) -> None:
    ACTS[act.name](training, act.number)


def _one(training: Any, number: int) -> Any:
    parameters = list(training.model.parameters())
    return parameters[number % len(parameters)]


# --- reading


def _parameters(training: Any, number: int) -> None:
    if number % 2:
        training.note("parameter", _one(training, number))
        return
    for parameter in training.model.parameters():
        training.note("parameter", parameter)


def _gradients(training: Any, number: int) -> None:
    if number % 2:
        training.note("gradient", _one(training, number).grad)
        return
    for parameter in training.model.parameters():
        training.note("gradient", parameter.grad)


def _gradient_norm(training: Any, number: int) -> None:
    gradients = [p.grad for p in training.model.parameters() if p.grad is not None]
    if number % 2:
        for norm in torch._foreach_norm(gradients) if gradients else []:
            training.note("norm", norm)
    else:
        training.note("norm", torch.nn.utils.get_total_norm(gradients))


def _model_state(training: Any, _number: int) -> None:
    for name, value in training.model.state_dict().items():
        training.note(name, value)


def _optimizer_state(training: Any, _number: int) -> None:
    training.note("optimizer", copy.deepcopy(training.optimizer.state_dict()))


def _views(training: Any, _number: int) -> None:
    for view in training.views:
        training.note("view", view)


def _deepcopy(training: Any, _number: int) -> None:
    for parameter in copy.deepcopy(training.model.module).parameters():
        training.note("copy", parameter)


def _array(training: Any, number: int) -> None:
    parameter = _one(training, number)
    if parameter.dtype is torch.bfloat16:
        parameter = parameter.float()
    training.note("array", torch.from_numpy(parameter.detach().numpy().copy()))


def _average(training: Any, number: int) -> None:
    parameters = list(training.model.parameters())
    if number % 3 == 0:
        for average, parameter in zip(training.averages, parameters, strict=True):
            average.lerp_(parameter.detach(), 0.1)
    elif number % 3 == 1:
        for average, parameter in zip(training.averages, parameters, strict=True):
            average.mul_(0.9).add_(parameter.data, alpha=0.1)
    else:
        with torch.no_grad():
            torch._foreach_lerp_(training.averages, parameters, 0.1)


# --- evaluation and collectives of the program's own


def _evaluate(training: Any, number: int) -> None:
    model = training.model if number % 2 else training.model.module
    how: list[Callable[[], AbstractContextManager[None]]] = [
        torch.no_grad,
        torch.inference_mode,
        # With unused parameters, stock DDP may send a bucket in such a forward, on some ranks.
        torch.no_grad if training.program.find_unused else torch.enable_grad,
    ]
    is_training = number % 7 == 0
    training.model.train(is_training)
    with how[number // 2 % 3]():
        training.note("evaluated", training.predict(model, key=(number, 92)).detach())
    training.model.train()


def _evaluate_rank0(training: Any, number: int) -> None:
    if training.rank == 0:
        training.model.eval()
        with torch.no_grad():
            model = training.model.module if number % 2 else training.model
            training.note("evaluated", training.predict(model, key=(number, 93)))
        training.model.train()
    dist.barrier()


def _barrier(_training: Any, _number: int) -> None:
    dist.barrier()


def _all_reduce(training: Any, number: int) -> None:
    value = _one(training, number).detach().clone()
    dist.all_reduce(value)
    training.note("reduced", value)


# --- changes of parameters


def _shrink(training: Any, _number: int) -> None:
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.mul_(0.99)


def _data_shrink(training: Any, number: int) -> None:
    _one(training, number).data.mul_(0.95)


def _new_data(training: Any, number: int) -> None:
    parameter = _one(training, number)
    parameter.data = parameter.data.clone()
    if training.views:
        training.views = [p.detach() for p in training.model.parameters()]


def _freeze(training: Any, number: int) -> None:
    _one(training, number).requires_grad_(False)


def _freeze_module(training: Any, _number: int) -> None:
    """And back: nothing may come of it."""
    training.model.module.head.requires_grad_(False)
    training.model.module.head.requires_grad_(True)


def _unfreeze(training: Any, _number: int) -> None:
    training.model.requires_grad_(True)


def _zero_parameter(training: Any, number: int) -> None:
    with torch.no_grad():
        if number % 2:
            _one(training, number).zero_()
        else:
            torch._foreach_zero_([_one(training, number)])


def _penalty(training: Any, number: int) -> None:
    """A backward of its own, into gradients that the next step may start from. Not where
    parameters may be unused: stock DDP takes them for used in the next step, and fails."""
    if training.program.find_unused:
        return
    parameters = [p for p in training.model.parameters() if p.requires_grad]
    if number % 2:
        parameters = parameters[:1]
    if parameters:
        sum(p.float().square().sum() for p in parameters).mul(0.01).backward()


# --- changes of the optimizer


def _zero_state(training: Any, _number: int) -> None:
    for kept in training.optimizer.state.values():
        for name in ("momentum_buffer", "exp_avg"):
            if isinstance(kept.get(name), torch.Tensor):
                kept[name].zero_()


def _clear_state(training: Any, number: int) -> None:
    if number % 2:
        training.optimizer.state.clear()
    else:
        training.optimizer.state = defaultdict(dict)


def _wrap_step(training: Any, number: int) -> None:
    step = training.optimizer.step

    def wrapped(*args: Any, **options: Any) -> Any:
        result = step(*args, **options)
        training.note("wrapped", _one(training, number))
        return result

    # Schedulers and scalers that are made later look into a method.
    if training.scheduler is None and not training.program.scales:
        training.optimizer.step = wrapped


def _lr(training: Any, _number: int) -> None:
    for group in training.optimizer.param_groups:
        group["lr"] = group["lr"] * 0.7


def _swap_groups(training: Any, number: int) -> None:
    """Parameters change groups, or one takes the place of another: lengths stay."""
    groups = training.optimizer.param_groups
    own = {id(p) for group in groups for p in group["params"]}
    free = [p for p in training.model.parameters() if id(p) not in own]
    if free and training.program.optimizer.kind != "Muon" and number % 2:
        old = groups[0]["params"][0]
        groups[0]["params"][0] = free[0]
        training.optimizer.state.pop(old, None)
    elif len(groups) > 1 and groups[0]["params"] and groups[1]["params"]:
        first, second = groups[0]["params"], groups[1]["params"]
        first[0], second[0] = second[0], first[0]


def _add_group(training: Any, _number: int) -> None:
    own = {id(p) for group in training.optimizer.param_groups for p in group["params"]}
    free = [p for p in training.model.parameters() if id(p) not in own]
    # Schedulers keep a list of as many rates as there were groups.
    if free and training.scheduler is None and training.program.optimizer.kind != "Muon":
        training.optimizer.add_param_group({"params": free, "lr": 0.005})


def _late_hook(training: Any, number: int) -> None:
    def after(*_: Any) -> None:
        training.note("hook", _one(training, number))

    def before(*_: Any) -> None:
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    if number % 2:
        training.optimizer.register_step_post_hook(after)
    else:
        training.optimizer.register_step_pre_hook(before)


# --- saving


def _roll_back(training: Any, _number: int) -> None:
    """Saves the first time; returns to that later."""
    sizes = [len(group["params"]) for group in training.optimizer.param_groups]
    if training.saved is None:
        states = training.model.state_dict(), training.optimizer.state_dict()
        training.saved = sizes, copy.deepcopy(states)
    elif training.saved[0] == sizes:
        model, optimizer = copy.deepcopy(training.saved[1])
        training.model.load_state_dict(model)
        training.optimizer.load_state_dict(optimizer)


def _resume(training: Any, number: int) -> None:
    """Into a new model and a new optimizer, under the other plan."""
    file = io.BytesIO()
    states = {"model": training.model.module.state_dict()}
    states["optimizer"] = training.optimizer.state_dict()
    torch.save(states, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    names = {id(p): name for name, p in training.model.module.named_parameters()}
    groups = [[names[id(p)] for p in group["params"]] for group in training.optimizer.param_groups]
    scheduler = None
    if training.scheduler is not None:
        scheduler = copy.deepcopy(training.scheduler.state_dict())
    random = torch.get_rng_state()
    training.close()
    training.saved = None
    training.build(seed=training.program.seed + number + 2, plan=1, groups=groups)
    training.model.module.load_state_dict(loaded["model"])
    training.optimizer.load_state_dict(loaded["optimizer"])
    if scheduler is not None:
        training.scheduler.load_state_dict(scheduler)
    torch.set_rng_state(random)


ACTS: dict[str, Change] = {
    "parameters": _parameters,
    "gradients": _gradients,
    "gradient_norm": _gradient_norm,
    "model_state": _model_state,
    "optimizer_state": _optimizer_state,
    "average": _average,
    "evaluate": _evaluate,
    "evaluate_rank0": _evaluate_rank0,
    "lr": _lr,
    "swap_groups": _swap_groups,
    "late_hook": _late_hook,
    "zero_parameter": _zero_parameter,
    "penalty": _penalty,
    "zero_state": _zero_state,
    "clear_state": _clear_state,
    "wrap_step": _wrap_step,
    "shrink": _shrink,
    "data_shrink": _data_shrink,
    "views": _views,
    "deepcopy": _deepcopy,
    "resume": _resume,
    "barrier": _barrier,
    "all_reduce": _all_reduce,
    "array": _array,
    "new_data": _new_data,
    "roll_back": _roll_back,
    "freeze": _freeze,
    "unfreeze": _unfreeze,
    "add_group": _add_group,
    "freeze_module": _freeze_module,
}
