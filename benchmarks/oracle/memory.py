"""``python -m benchmarks.oracle.memory``: memory of a training step, predicted by the oracle from
the module alone and measured in a real step on the CPU; one JSON line per model."""

from __future__ import annotations

import sys

from augury.oracle.memory import Optimizer, step_memory
from augury.oracle.model_reader.read_model import load_model
from benchmarks.measure import at_most, report, say
from benchmarks.oracle.real_step import measure

IMAGENET = "3x224x224"
CASES = (
    ("resnet50", 16, Optimizer.MOMENTUM),
    ("resnet50", 32, Optimizer.MOMENTUM),
    ("resnet50", 64, Optimizer.MOMENTUM),
    ("resnet50", 16, Optimizer.ADAM),
    ("vgg16", 8, Optimizer.MOMENTUM),
    ("vgg16", 16, Optimizer.SGD),
)


def main() -> int:
    held = [check(*case) for case in CASES]
    return 0 if all(held) else 5


def check(name: str, batch: int, optimizer: Optimizer) -> bool:
    say(f"{name}, batch {batch}, {optimizer}")
    model = load_model(name, input_shapes=[IMAGENET])
    predicted = step_memory(model, batch=batch, optimizer=optimizer)
    held = measure(name, IMAGENET, batch, optimizer)
    error_pct = 100 * (predicted.peak_bytes - held.peak_bytes) / held.peak_bytes
    return report(
        f"oracle_memory_{name}_b{batch}_{optimizer}",
        abs(error_pct),
        "%",
        at_most(10),
        error_pct=round(error_pct, 2),
        predicted_bytes=predicted.peak_bytes,
        measured_bytes=held.peak_bytes,
        resident_bytes=held.resident_bytes,
    )


if __name__ == "__main__":
    sys.exit(main())
