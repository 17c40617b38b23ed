"""Predicts the step time of a model by parallel strategy and number of devices, without a run.

python examples/oracle_scaling.py

The layers of VGG16 are read from a JSON file, which needs no torch. With torch installed,
`augury.oracle("resnet50", ...)` or `augury.oracle(my_module, ..., input_shapes=["3x224x224"])`
reads them from the network itself.
"""

from pathlib import Path

import augury

MODEL = Path(__file__).with_name("vgg16.json")
DEVICES = (4, 8, 16, 32, 64)

# "abci" is a built-in cluster: four V100 per node, InfiniBand between nodes.
answer = augury.oracle(MODEL, "abci", devices=DEVICES, batch_per_device=32)

print(f"{answer.model}: {answer.num_layers} layers, {answer.num_parameters / 1e6:.1f} M parameters")
print(f"{answer.cluster}: {answer.device}, {answer.precision}")
print()
print("step in ms, by strategy and number of devices; - is infeasible")
print(f"{'devices':12}" + "".join(f"{number:>8}" for number in DEVICES))

# There is one row per strategy and number of devices.
by_strategy: dict[str, dict[int, str]] = {}
for row in answer.rows:
    step = f"{row.step_s * 1e3:.0f}" if row.feasible else "-"
    by_strategy.setdefault(row.strategy, {})[row.devices] = step
for strategy, steps in by_strategy.items():
    print(f"{strategy:12}" + "".join(f"{steps[number]:>8}" for number in DEVICES))

print()
for fastest in answer.fastest:
    speed = f"{fastest.samples_per_s:.0f} samples/s"
    alike = f" (as fast: {', '.join(fastest.alike)})" if fastest.alike else ""
    print(f"{fastest.devices:>2} devices: {fastest.strategy}, {speed}{alike}")
for warning in answer.warnings:
    print(f"warning: {warning}")
