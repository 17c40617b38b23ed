"""Device: rates of compute and memory of one accelerator or CPU, and its capacity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from augury.core.errors import InputError


class Precision(StrEnum):
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def item_bytes(self) -> int:
        """Bytes of one activation item; weights, gradients and state take 4, as with autocast."""
        return 2 if self in (Precision.FP16, Precision.BF16) else 4


@dataclass(frozen=True, kw_only=True)
class Device:
    """Peak rates as the vendor states them, and the share of each peak that large layers reach."""

    name: str
    flops_per_s: dict[Precision, float]
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    compute_efficiency: float = 0.7
    memory_efficiency: float = 0.75

    def __post_init__(self) -> None:
        rates = (*self.flops_per_s.values(), self.memory_bandwidth_bytes_per_s, self.memory_bytes)
        if not self.flops_per_s or not all(1 <= rate <= 1e24 for rate in rates):
            raise InputError(
                f"device {self.name!r} has no figures, or figures out of range",
                remedy="give FLOP/s by precision, memory bandwidth and memory in bytes",
            )
        if not all(0 < e <= 1 for e in (self.compute_efficiency, self.memory_efficiency)):
            raise InputError(
                f"device {self.name!r} has an efficiency outside of (0, 1]",
                remedy="give the share of the peak that large layers reach",
            )

    def reached_flops_per_s(self, precision: Precision) -> float:
        """Rate that large layers reach, below the peak."""
        peak = self.flops_per_s.get(precision)
        if peak is None:
            known = ", ".join(self.flops_per_s)
            raise InputError(
                f"{self.name} has no figure for {precision}", remedy=f"use one of {known}"
            )
        return peak * self.compute_efficiency

    @property
    def reached_bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth that large layers reach, below the peak."""
        return self.memory_bandwidth_bytes_per_s * self.memory_efficiency
