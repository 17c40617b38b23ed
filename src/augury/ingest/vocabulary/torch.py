"""Names of events in PyTorch traces: autograd, DDP, optimizers, gloo, NCCL, CUDA calls."""

from __future__ import annotations

import re

from augury.core.enums import OpKind, Phase
from augury.core.vocabulary.torch import (
    ACCUMULATES_GRADIENT,
    CLOSURE_RANGE,
    EVALUATION_RANGE,
    FORWARD_RANGE,
    MODULE_RANGE,
    OPTIMIZER_STEP,
)

EVALUATE = "autograd::engine::evaluate_function: "
DDP_FORWARD = "DistributedDataParallel.forward"
OPTIMIZER_ZERO_GRAD = "Optimizer.zero_grad#"
PROFILER_STEP = "ProfilerStep#"
DATA_LOADER = "enumerate(DataLoader)"
GLOO = "gloo:"
"""Prefix of the events in which gloo's threads run collectives."""
COLLECTIVE_LAUNCH = "c10d::"
"""Prefix of the operators that launch collectives."""
COMMUNICATION_PREFIXES = ("nccl", "rccl", "gloo", "c10d", "record_param_comms")
"""Prefixes of all names of collectives: kernels, events of gloo's threads, ranges and operators
around launches; in lower case."""

_BACKWARD_NODE = re.compile(r"[A-Za-z_]\w*Backward\w*|CppFunction|CompiledFunctionBackward")
_COLLECTIVE_KERNEL = re.compile(
    r"^(ncclDevKernel|ncclKernel|rcclDevKernel|rccl|nccl)", re.IGNORECASE
)
_COLLECTIVE_RANGE = re.compile(r"^(nccl|rccl|gloo|c10d|record_param_comms)")
_PROFILER_STEP_NUMBER = re.compile(r"^ProfilerStep#(\d{1,8})$")

# FSDP and pipeline schedules name their parts so.
_SCHEDULED = re.compile(r"(?:FSDP::\w*?)?(forward|backward)(?: \d+$|\b|_)", re.IGNORECASE)
_SHARDED_LAYER = re.compile(r"FSDP::\w+ (?:\(([\w.]+)\)|for ([\w.]+))$")
_SCHEDULED_PHASE = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD}

# Longer names first: "all_reduce" contains "reduce", "all_gather" contains "gather".
_COLLECTIVES: tuple[tuple[str, OpKind], ...] = (
    ("reducescatter", OpKind.REDUCE_SCATTER),
    ("allreduce", OpKind.ALL_REDUCE),
    ("allgather", OpKind.ALL_GATHER),
    ("alltoall", OpKind.ALL_TO_ALL),
    ("broadcast", OpKind.BROADCAST),
    ("barrier", OpKind.BARRIER),
    ("sendrecv", OpKind.ALL_TO_ALL),
    ("send", OpKind.SEND),
    ("recv", OpKind.RECV),
    ("reduce", OpKind.REDUCE),
    # One rank to all others and all others to one rank, whatever the parts are.
    ("scatter", OpKind.BROADCAST),
    ("gather", OpKind.REDUCE),
)

_RUNTIME_LAUNCHES = ("launch", "memcpy", "memset")

_ELEMENT_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "int": 4,
    "long": 8,
    "short": 2,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "long int": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


def layer_of_range(name: str) -> str:
    """Returns the layer that a range is about: the recorder's ranges around modules and FSDP's
    around their parameters state it. Empty for all others."""
    if name.startswith(MODULE_RANGE):
        return name.removeprefix(MODULE_RANGE)
    found = _SHARDED_LAYER.match(name)
    return found[1] or found[2] if found else ""


def collective_kind(name: str) -> OpKind | None:
    """Returns the kind that a name like ``gloo:all_reduce``, ``_allgather_base`` or
    ``ncclDevKernel_AllReduce_Sum_f32`` contains."""
    plain = name.lower().replace("_", "")
    return next((kind for word, kind in _COLLECTIVES if word in plain), None)


def is_collective_kernel(name: str) -> bool:
    """Returns whether a kernel of this name belongs to NCCL or RCCL."""
    return _COLLECTIVE_KERNEL.match(name) is not None


def is_collective_range(name: str) -> bool:
    """Returns whether torch opens a range of this name around the launch of a collective."""
    return _COLLECTIVE_RANGE.match(name) is not None


def is_communication(name: str) -> bool:
    """Returns whether an event of this name may say something about a collective."""
    return name.lower().startswith(COMMUNICATION_PREFIXES)


def runtime_call_kind(name: str) -> OpKind:
    """Returns the kind of a call of the CUDA or HIP runtime."""
    plain = name.lower()
    if "synchronize" in plain or "waitevent" in plain:
        return OpKind.SYNC
    return OpKind.LAUNCH if any(word in plain for word in _RUNTIME_LAUNCHES) else OpKind.OTHER


def profiler_step(name: str) -> int | None:
    """Returns the number in ``ProfilerStep#12``."""
    found = _PROFILER_STEP_NUMBER.match(name)
    return int(found[1]) if found else None


def is_backward_node(name: str) -> bool:
    """Returns whether autograd gives this name to a node of the backward graph."""
    return (
        name.startswith(EVALUATE)
        or name == ACCUMULATES_GRADIENT
        or _BACKWARD_NODE.fullmatch(name.removeprefix("torch::autograd::")) is not None
    )


def annotated_phase(name: str) -> Phase | None:
    """Returns the phase of a range that torch or the recorder opens by itself. It is NONE for
    ranges that end the phase around them; None for all other names."""
    if name.startswith((OPTIMIZER_STEP, OPTIMIZER_ZERO_GRAD)):
        return Phase.UPDATE
    if name.startswith(DATA_LOADER):
        return Phase.DATA
    if name.startswith((DDP_FORWARD, MODULE_RANGE, FORWARD_RANGE)):
        return Phase.FORWARD
    if name.startswith(EVALUATION_RANGE) or name == CLOSURE_RANGE:
        return Phase.NONE
    schedule = _SCHEDULED.match(name)
    return None if schedule is None else _SCHEDULED_PHASE[schedule[1].lower()]


def element_bytes(dtype: str) -> int:
    """Returns the size of one element; 0 for an unknown type."""
    return _ELEMENT_BYTES.get(dtype.lower().removeprefix("c10::"), 0)
