"""The cases of the diagnose suite: jobs with one injected fault each, and healthy ones.

A fault is part of the recorded configuration; the only change of a case removes it, in blocks that
alternate with the recorded ones. Faults are strong enough that their removal gains more than
anything else that a healthy run could be improved by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.validate.settings import BedFault, Change, Setting

MBIT = 1000
MODELS = ("conv", "transformer")
HEALTHY = "healthy"
NUM_HEALTHY = 10
NUM_ROUNDS = 4
PAUSE = "pause"
USUAL_CAP = "1"
BATCH_SCALE = "2"
"""More compute than communication: the faults cost more than exposed communication does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A fault, and the kinds of findings that name it."""

    name: str
    finding: tuple[str, ...]
    bed: BedFault | None = None
    training: str = ""
    """Value of the training script's ``--fault``."""
    cap: str | None = None
    """Capacity of DDP's buckets instead of the usual one."""
    models: tuple[str, ...] = ()
    """Models instead of the usual ones, where those do not suffer from the fault."""


FAULTS: tuple[FaultKind, ...] = (
    FaultKind(name="slow-host", finding=("straggler-compute",), bed=BedFault(slow=2.5)),
    FaultKind(name="slow-link", finding=("slow-link",), bed=BedFault(rate=0.25)),
    FaultKind(name="other-flow", finding=("slow-link",), bed=BedFault(flow_mbit=700)),
    FaultKind(
        name="lossy-link", finding=("retransmissions", "slow-link"), bed=BedFault(lossy=True)
    ),
    FaultKind(
        name="small-buckets", finding=("buckets-too-small",), cap="0.001", models=("deep", "narrow")
    ),
    FaultKind(name="large-bucket", finding=("bucket-too-large",), cap="1000"),
    FaultKind(name="slow-loader", finding=("input",), training="loader-150"),
    FaultKind(name="pause", finding=(PAUSE,), training="pause-500"),
    FaultKind(name="uneven-batches", finding=("batch-imbalance",), training="uneven-0.7"),
    FaultKind(name="late-rank", finding=("straggler-host", "straggler-input"), training="late-150"),
)


def _fixed(block: str) -> Change:
    return Change(name="fixed", whatif=(), block=block, is_healed=True)


def _settings() -> Iterator[Setting]:
    for number, model in enumerate(MODELS):
        for fault in FAULTS:
            chosen = fault.models[number] if fault.models else model
            words = [f"cap={USUAL_CAP}"] if fault.cap else []
            words += ["fault=none"] if fault.training else []
            yield Setting(
                name=f"{chosen}-{fault.name}",
                model=chosen,
                mbit=MBIT,
                cap=fault.cap or USUAL_CAP,
                options=(
                    *("--batch-scale", BATCH_SCALE),
                    *(("--fault", fault.training) if fault.training else ()),
                ),
                changes=(
                    Change(
                        name="fixed", whatif=(), block="+".join(words) or "base", is_healed=True
                    ),
                ),
                wire=True,
                fault=fault.bed,
                num_rounds=NUM_ROUNDS,
            )
    for number in range(NUM_HEALTHY):
        model = ("conv", "transformer", "last", "first")[number % 4]
        yield Setting(
            name=f"{model}-{HEALTHY}-{number + 1}",
            model=model,
            mbit=MBIT,
            cap=("5", "25", "1")[number % 3],
            options=("--batch-scale", BATCH_SCALE),
            wire=number % 2 == 0,
            num_rounds=NUM_ROUNDS,
        )


FAULT_SETTINGS = tuple(_settings())


def fault_of(setting: Setting) -> FaultKind | None:
    """Returns the fault of a case; None for a healthy one."""
    name = setting.name.removeprefix(f"{setting.model}-")
    return next((fault for fault in FAULTS if fault.name == name), None)
