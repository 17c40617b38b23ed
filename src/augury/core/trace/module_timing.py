"""Measured times of single modules, as the program runs them and as a plan would."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_TIMINGS = 1 << 16
_Samples = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]], msgspec.Meta(max_length=1 << 12)
]

AS_RECORDED = ""
"""The variant that the program itself runs."""
COMPILED, COMPILED_BFLOAT16 = "compiled", "compiled+bfloat16"
BFLOAT16, FLOAT16 = "bfloat16", "float16"
THREADS = "threads="
"""Prefix of variants with another number of intra-op threads, such as ``threads=4``."""


class ModuleTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a module outside of training, with inputs of the shapes of a recorded step."""

    modules: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_TIMINGS)]
    """Paths of the modules that the times hold for: of one class, with parameters and inputs of
    equal shapes. The first one was measured."""
    variant: str = AS_RECORDED
    forward_ns: _Samples = []
    backward_ns: _Samples = []
    saved_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 60)] = 0
    """Bytes that the module saves for backward, without parameters."""
    trouble: str | None = None
    """Reason why there are no times: the module cannot run in this variant."""
