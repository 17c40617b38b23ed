from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from augury.core.enums import MemoryKind, OpKind, Phase, StepState, StreamKind
from augury.core.errors import InputError, UsageError
from augury.core.graph.graph import NONE
from augury.core.model import LayerKind, Model, ModelLayer
from augury.core.string_table import StringPool
from augury.core.trace.trace import Events, MemoryUse, RankFacts, Steps, Streams, Trace
from augury.core.vocabulary.torch import MODULE_RANGE
from augury.ingest.open_run import open_run
from augury.oracle.model_reader.layer_times import layer_times
from augury.oracle.model_reader.model_from_run import model_from_run, with_times
from augury.oracle.model_reader.read_model import load_model
from tests.build.recorded_runs import rows
from tests.capture.jobs import record

US = 1000
EVENT_NS = 2 * US


class Written:
    """A trace of one rank, one event after the other."""

    def __init__(self) -> None:
        self.pool = StringPool([""])
        self.events: list[dict] = []
        self.steps: list[dict] = []
        self.now = 0

    def step(self, state: StepState, *events: tuple) -> None:
        """Adds a step. Each event is phase, name, layer, duration, and its children."""
        begin = self.now
        for event in events:
            self._event(len(self.steps), NONE, *event)
        self.steps.append(
            {"rank": 0, "step": len(self.steps), "start_ns": begin, "end_ns": self.now}
            | {"state": state, "cpu_ns": NONE, "delay_ns": NONE, "helper_cpu_ns": NONE}
        )

    def _event(
        self, step: int, parent: int, phase: Phase, name: str, layer: str, ns: int, *inside: tuple
    ) -> None:
        kind = {Phase.FORWARD: OpKind.FORWARD, Phase.BACKWARD: OpKind.BACKWARD}
        row, begin = len(self.events), self.now
        self.events.append({})
        for event in inside:
            self._event(step, row, *event)
        self.now = max(self.now, begin + ns)
        self.events[row] = {
            "kind": kind.get(phase, OpKind.UPDATE), "rank": 0, "stream": 0, "phase": phase,
            "name": self.pool.number(name), "layer": self.pool.number(layer) if layer else NONE,
            "start_ns": begin, "dur_ns": self.now - begin, "arrival_ns": begin, "step": step,
            "size_bytes": 0, "group": NONE, "sequence": NONE, "cause": NONE, "parent": parent,
        }  # fmt: skip

    def trace(self, stream: StreamKind = StreamKind.MAIN_THREAD) -> Trace:
        memory = [
            (MemoryKind.PARAMETER, "net.conv.weight", 400),
            (MemoryKind.PARAMETER, "net.conv.bias", 40),
            (MemoryKind.ACTIVATION, "net.conv", 8 * 4 * 30),
        ]
        return Trace(
            events=rows(Events, self.events),
            streams=rows(Streams, [{"kind": stream, "rank": 0, "name": self.pool.number("main")}]),
            steps=rows(Steps, self.steps),
            memory=rows(
                MemoryUse,
                [
                    {"rank": 0, "kind": kind, "layer": self.pool.number(name), "size_bytes": size}
                    for kind, name, size in memory
                ],
            ),
            strings=self.pool.table(),
            ranks=[RankFacts(rank=0, host="here", cores=1)],
            world_size=1,
        )


def forward(layer: str, name: str, ns: int, *inside: tuple) -> tuple:
    return (Phase.FORWARD, name, layer, ns, *inside)


def node(layer: str, ns: int, *, inside: int = 0) -> tuple:
    """An autograd node with ``inside`` operations that each cost the profiler's overhead."""
    ops = [(Phase.BACKWARD, "aten::op", layer, EVENT_NS) for _ in range(inside)]
    return (Phase.BACKWARD, "ConvolutionBackward0", layer, ns + inside * EVENT_NS, *ops)


def written(*, ddp_ns: int = 0) -> Written:
    run = Written()
    whole = [forward("", "DistributedDataParallel.forward", ddp_ns)] if ddp_ns else []
    for factor in (1, 3, 1):
        run.step(
            StepState.TIMED,
            *whole,
            node("net.relu", 20 * US * factor),
            node("net.conv", 100 * US * factor),
            (Phase.UPDATE, "Optimizer.step", "", 30 * US),
        )
    for _ in range(2):
        convolution = forward("net.conv", "aten::conv2d", 50 * US + 2 * EVENT_NS)
        insides = [forward("net.conv", f"aten::{name}", US) for name in ("convolution", "thing")]
        run.step(
            StepState.DETAILED,
            forward(
                "net",
                f"{MODULE_RANGE}net",
                400 * US,
                forward("net.conv", f"{MODULE_RANGE}net.conv", 90 * US, (*convolution, *insides)),
                forward("net.relu", f"{MODULE_RANGE}net.relu", 50 * US,
                        forward("net.relu", "aten::relu", 8 * US)),
                forward("net", "aten::add", 4 * US),
            ),
            forward("", "aten::loss", 5 * US),
            node("net.relu", 20 * US, inside=3),
            node("net.conv", 100 * US, inside=5),
        )  # fmt: skip
    return run


def test_profiler_overhead_is_subtracted():
    times = layer_times(written().trace())
    assert times.forward_ns == {"net.conv": 50 * US, "net.relu": 8 * US, "net": 4 * US}
    assert times.backward_ns == {"net.conv": 100 * US, "net.relu": 20 * US, "net": 0}
    assert times.update_ns == 30 * US


def test_layers_share_a_forward_that_was_timed_as_a_whole():
    assert sum(layer_times(written(ddp_ns=31 * US).trace()).forward_ns.values()) == 31 * US
    assert sum(layer_times(written(ddp_ns=99 * US).trace()).forward_ns.values()) == 62 * US


def test_a_model_is_read_from_a_run_alone():
    model = model_from_run(written().trace(), 8)
    conv, relu, net = model.layers
    assert (conv.name, conv.kind) == ("net.conv", LayerKind.CONVOLUTION)
    assert (conv.num_parameters, conv.saved_items) == (110, 30)
    assert conv.forward_s == pytest.approx(50e-6 / 8)
    assert conv.backward_s == pytest.approx(100e-6 / 8)
    assert conv.update_s == pytest.approx(30e-6)  # of a step, not of a sample
    assert (relu.kind, relu.update_s) == (LayerKind.ELEMENTWISE, 0)
    assert net.forward_s == pytest.approx(4e-6 / 8)


def test_calls_of_one_module_share_its_time():
    def layer(name: str, items: int) -> ModelLayer:
        return ModelLayer(
            name=name,
            kind=LayerKind.OTHER,
            input_shape=(1,),
            output_shape=(1,),
            forward_items=items,
            backward_items=items,
        )

    names = (("net.conv", 1), ("net.relu", 1), ("net.relu#2", 3), ("net:add", 1), ("other", 1))
    known = Model(name="net", input_shape=(1,), layers=tuple(layer(*one) for one in names))
    timed = model_from_run(written().trace(), 1, model=known)
    assert [layer.forward_s for layer in timed.layers] == pytest.approx(
        [50e-6, 2e-6, 6e-6, 4e-6, 0]
    )
    assert [layer.backward_s for layer in timed.layers] == pytest.approx(
        [100e-6, 5e-6, 15e-6, 0, 0]
    )
    stranger = Model(name="stranger", input_shape=(1,), layers=(layer("other", 1),))
    with pytest.raises(InputError, match="stranger"):
        model_from_run(written().trace(), 1, model=stranger)


def test_runs_without_the_needed_facts_are_refused():
    with pytest.raises(InputError, match="batch"):
        model_from_run(written().trace(), 0)
    with pytest.raises(InputError, match="devices"):
        model_from_run(written().trace(StreamKind.DEVICE), 1)
    with pytest.raises(UsageError, match="batch"):
        with_times(model_from_run(written().trace(), 1), Path("run"), None)
    bare = Written()
    bare.step(StepState.TIMED, node("net.conv", 100))
    with pytest.raises(InputError, match="detail"):
        model_from_run(bare.trace(), 1)


NET = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.relu(self.norm(self.conv(x))))

def make():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)
    )

if __name__ == "__main__":
    torch.set_num_threads(1)
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(int(sys.argv[1])):
        x, y = torch.randn(4, 3, 16, 16), torch.randint(10, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""


@pytest.mark.more
def test_a_real_run_matches_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    (tmp_path / "recorded_net.py").write_text(NET)
    out = tmp_path / "run"
    done = record(out, [sys.executable, str(tmp_path / "recorded_net.py"), "30"])
    assert done.returncode == 0, done.stderr
    trace = open_run(out)
    monkeypatch.chdir(tmp_path)
    model = load_model("recorded_net:make", input_shapes=["3x16x16"])
    timed, alone = with_times(model, out, 4), model_from_run(trace, 4)
    assert [layer.name for layer in timed.layers] == [
        "0", "1.conv", "1.norm", "1.relu", "1:add", "1.relu#2", "2", "4",
    ]  # fmt: skip
    assert all(layer.forward_s for layer in timed.layers)
    assert all(layer.backward_s for layer in timed.layers)
    whole_s = sum((layer.forward_s or 0) + (layer.backward_s or 0) for layer in timed.layers) * 4
    longest_s = int(np.max(trace.steps.end_ns - trace.steps.start_ns)) / 1e9
    assert 0 < whole_s < longest_s
    # What the recorder saw and what is read of the module without data are the same.
    recorded = {layer.name: layer for layer in alone.layers}
    assert alone.num_parameters == model.num_parameters
    for layer in timed.layers:
        if layer.name in ("1.conv", "1.norm", "2", "4"):
            assert recorded[layer.name].kind is layer.kind
            assert recorded[layer.name].saved_items == pytest.approx(layer.saved_items, abs=16)
