"""The cases of the schedule suite: jobs that run under one policy after the other."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.validate.settings import Setting

FEW = ("ddp", "ddp-best", "augury")
ALL = (
    "fifo", "ddp", "ddp-best", "p3", "bytescheduler", "mg-wfbp", "dear", "prophet", "augury",
)  # fmt: skip
CAPS_MB = (1.0, 2.0, 5.0, 10.0)
"""Single bucket sizes among which the best is found by measuring; 25 MB is most of a model here."""

SIZES = {"small": 1.0, "large": 3.0}
"""Batch size relative to the usual one: three times the compute with the same gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    setting: Setting
    policies: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.setting.name


def _case(
    model: str,
    mbit: int,
    size: str,
    *,
    num_ranks: int = 2,
    policies: tuple[str, ...] = FEW,
) -> PolicyCase:
    ranks = "" if num_ranks == 2 else f"-{num_ranks}ranks"
    return PolicyCase(
        setting=Setting(
            name=f"{model}-{mbit}mbit-{size}{ranks}",
            model=model,
            mbit=mbit,
            cap="default",
            num_ranks=num_ranks,
            ordinary=True,
            # Under a quota, ranks that share a core do not slow each other down.
            quota=None if num_ranks == 2 else 0.45,
            options=("--batch-scale", str(SIZES[size])),
        ),
        policies=policies,
    )


CASES: tuple[PolicyCase, ...] = (
    # Communication takes 0.4 to 2 times as long as compute, where scheduling matters most.
    _case("last", 1000, "small"),
    _case("first", 1000, "small", policies=ALL),
    _case("conv", 1000, "small", policies=ALL),
    _case("transformer", 1000, "small"),
    _case("first", 1000, "large"),
    _case("conv", 1000, "large"),
    _case("transformer", 1000, "large"),
    _case("last", 400, "large", policies=ALL),
    _case("first", 400, "large"),
    _case("conv", 400, "large"),
    _case("transformer", 400, "large", policies=ALL),
    _case("conv", 200, "large"),
    # The network is always busy: the other end of the range.
    _case("last", 400, "small"),
    _case("last", 1000, "small", num_ranks=3),
    _case("conv", 1000, "small", num_ranks=3),
    _case("transformer", 1000, "small", num_ranks=3),
    _case("last", 1000, "small", num_ranks=4),
    _case("transformer", 1000, "small", num_ranks=4, policies=ALL),
)
