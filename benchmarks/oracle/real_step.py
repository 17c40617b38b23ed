"""Memory of a real training step on the CPU, from every allocation that the torch profiler reports.

Each measurement runs in a process of its own: ``python -m benchmarks.oracle.real_step resnet50
3x224x224 16 momentum`` prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from augury.oracle.memory import Optimizer
from augury.oracle.model_reader.read_model import parse_shape
from augury.oracle.models.registry import BuiltIn, built_in

WARM_UP_BATCH = 2
"""Batch size of the warm-up step, in which the optimizer allocates its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    peak_bytes: int
    """Peak of the bytes that torch's allocator had handed out."""
    resident_bytes: int
    """Peak resident memory of the process, with the interpreter, libraries and kernel scratch
    space."""


def measure(model: str, shape: str, batch: int, optimizer: Optimizer) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.oracle.real_step", model, shape, str(batch), optimizer],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Measured(**json.loads(done.stdout))


def train(model: str, shape: str, batch: int, optimizer: Optimizer) -> Measured:
    import torch

    known = built_in(model)
    assert known is not None
    extents, _ = parse_shape(shape)
    torch.set_num_threads(1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        net = _made(known, extents)
        update = _optimizer(optimizer, net)
        loss_of = torch.nn.CrossEntropyLoss()
        for samples in (WARM_UP_BATCH, batch):
            x, y = torch.randn(samples, *extents), torch.zeros(samples, dtype=torch.long)
            update.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            update.step()
    return Measured(
        peak_bytes=_peak_bytes(profile),
        resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _made(known: BuiltIn, extents: tuple[int, ...]) -> Any:
    """Builds the module with all parameters zero: random initialization takes time and does not
    matter here."""
    import torch

    with torch.device("meta"):
        net = known.make(extents)
    net = net.to_empty(device="cpu").train()
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.zero_()
    return net


def _optimizer(kind: Optimizer, net: Any) -> Any:
    import torch

    parameters = net.parameters()
    if kind is Optimizer.ADAM:
        return torch.optim.Adam(parameters, lr=1e-4)
    momentum = 0.9 if kind is Optimizer.MOMENTUM else 0.0
    return torch.optim.SGD(parameters, lr=1e-3, momentum=momentum)


def _peak_bytes(profile: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_bytes())["traceEvents"]
    moved = sorted(
        (event["ts"], event["args"]["Bytes"])
        for event in events
        if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0
    )
    held = peak = 0
    for _, size_bytes in moved:
        held += size_bytes
        peak = max(peak, held)
    return peak


if __name__ == "__main__":
    model, shape, batch, optimizer = sys.argv[1:]
    found = train(model, shape, int(batch), Optimizer(optimizer))
    print(json.dumps({"peak_bytes": found.peak_bytes, "resident_bytes": found.resident_bytes}))
