"""What names of torch's events mean."""

from __future__ import annotations

import re

from augury.core.enums import OpKind, Phase

MODULE_RANGE = "augury.module: "
EVALUATE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
DDP_FORWARD = "DistributedDataParallel.forward"

_BACKWARD_NODE = re.compile(r"[A-Za-z_]\w*Backward\w*|CppFunction|CompiledFunctionBackward")

# What FSDP and pipeline schedules call their parts.
_SCHEDULED = re.compile(r"(?:FSDP::\w*?)?(forward|backward)(?: \d+$|\b|_)", re.IGNORECASE)
_SCHEDULED_PHASE = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD}

# Longer names first: "all_reduce" has "reduce" in it, "all_gather" has "gather".
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
    # One to many and many to one, whatever the pieces are.
    ("scatter", OpKind.BROADCAST),
    ("gather", OpKind.REDUCE),
)

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


def collective_kind(name: str) -> OpKind | None:
    """Of ``gloo:all_reduce``, ``_allgather_base``, ``ncclDevKernel_AllReduce_Sum_f32``, ..."""
    plain = name.lower().replace("_", "")
    return next((kind for word, kind in _COLLECTIVES if word in plain), None)


def is_backward_node(name: str) -> bool:
    return (
        name.startswith(EVALUATE)
        or name == ACCUMULATE
        or _BACKWARD_NODE.fullmatch(name.removeprefix("torch::autograd::")) is not None
    )


def annotated_phase(name: str) -> Phase | None:
    """Of what torch annotates by itself."""
    if name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")):
        return Phase.UPDATE
    if name.startswith("enumerate(DataLoader)"):
        return Phase.DATA
    if name.startswith((DDP_FORWARD, MODULE_RANGE)):
        return Phase.FORWARD
    schedule = _SCHEDULED.match(name)
    return None if schedule is None else _SCHEDULED_PHASE[schedule[1].lower()]


def element_bytes(dtype: str) -> int:
    """0 where unknown."""
    return _ELEMENT_BYTES.get(dtype.lower().removeprefix("c10::"), 0)
