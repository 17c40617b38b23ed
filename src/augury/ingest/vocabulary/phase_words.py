"""Words in names of ranges and kernels that state a phase of training."""

from __future__ import annotations

import re

from augury.core.enums import Phase

MODULE_FRAME = "nn.Module: "
"""Prefix of the frames that torch's profiler records around forward passes of modules."""

_MODULE_RANGE = re.compile(r"(?:nn\.Module: |\[pl\]\[module\][\w.]+: )(.+)")

_WORD = re.compile(r"[a-z]+")
_FORWARD = frozenset({"forward", "fwd"})
_BACKWARD = frozenset({"backward", "bwd", "backprop"})
_UPDATE = re.compile(r"optimizer|optim_?step|zero_?grad|clip_?grad|grad_?clip|unscale")
_DATA = re.compile(r"data_?load|_batch|batch_|data_dist|prefetch")
_BACKWARD_KERNEL = re.compile(r"backward|bwd|dgrad|wgrad|_grad_|gradinput", re.IGNORECASE)
_UPDATE_KERNEL = re.compile(r"adam|multi_tensor_apply|_sgd|sgd_|lamb_", re.IGNORECASE)
_FORWARD_KERNEL = re.compile(r"fwd|forward|fprop", re.IGNORECASE)


def range_phase(name: str) -> Phase:
    """Returns the phase that the name of a program's range states, such as ``## forward ##``, and
    NONE for operators and for names with several phases."""
    if "::" in name:
        return Phase.NONE
    if module_of(name):
        return Phase.FORWARD
    plain = name.lower()
    words = {*_WORD.findall(plain)}
    stated = [
        phase
        for phase, is_stated in (
            (Phase.FORWARD, bool(words & _FORWARD)),
            (Phase.BACKWARD, bool(words & _BACKWARD)),
            (Phase.UPDATE, _UPDATE.search(plain) is not None),
        )
        if is_stated
    ]
    if len(stated) == 1:
        return stated[0]
    return Phase.DATA if not stated and _DATA.search(plain) else Phase.NONE


def module_of(name: str) -> str:
    """Returns the module whose frame (torch's profiler) or range (Lightning's) has this name; an
    empty name for other events."""
    found = _MODULE_RANGE.fullmatch(name)
    return found[1] if found else ""


def kernel_phase(name: str) -> Phase:
    """Returns the phase that the name of a kernel suggests; NONE for most kernels."""
    if _BACKWARD_KERNEL.search(name):
        return Phase.BACKWARD
    if _UPDATE_KERNEL.search(name):
        return Phase.UPDATE
    return Phase.FORWARD if _FORWARD_KERNEL.search(name) else Phase.NONE
