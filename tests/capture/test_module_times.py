"""Modules are noted in training, stored without their values, and timed with new ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from augury.core.trace.module_timing import ModuleTiming
from augury.core.trace.rank_record import RankRecord
from augury.ingest.open_run import open_run
from tests.capture.jobs import record, start, torchrun

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from torch import nn

from augury.capture.torch.module_times.candidates import ModuleGroup, find_groups
from augury.capture.torch.module_times.described import describe, load
from augury.capture.torch.module_times.forward_calls import ForwardCalls
from augury.capture.torch.module_times.snapshot import load_snapshot, save_snapshot
from augury.capture.torch.module_times.timed_module import TimedModule, Variant
from augury.capture.torch.modules import TrainedModules

if TYPE_CHECKING:
    from augury.capture.torch.module_times.forward_calls import NotedCalls


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, pair: tuple[torch.Tensor, int], *, options: dict[str, Any]) -> Any:
        value, factor = pair
        hidden = self.first(value).relu()
        return {"value": value + self.second(hidden) * factor + options["bias"]}


class Model(nn.Module):
    def __init__(self, num_blocks: int = 3) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(Block(number) for number in range(num_blocks))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> Any:
        value = self.table(words)
        for block in self.blocks:
            value = block((value, 2), options={"bias": torch.zeros(16)})["value"]
        return SimpleNamespace(logits=self.head(value), unused=1)


def noted(model: nn.Module, *arguments: Any, grad: bool = True) -> dict[str, NotedCalls]:
    calls = ForwardCalls()
    modules = {path or type(model).__name__: module for path, module in model.named_modules()}
    calls.start(TrainedModules(modules=modules))
    with torch.set_grad_enabled(grad):
        model(*arguments)
    calls.stop()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return calls.take()


def words() -> torch.Tensor:
    return torch.randint(50, (4, 7))


def groups(model: nn.Module, *arguments: Any) -> dict[tuple[str, ...], ModuleGroup]:
    return {group.paths: group for group in find_groups(noted(model, *arguments))}


def test_repeated_blocks_are_one_group_and_are_not_taken_apart() -> None:
    found = groups(Model(), words())
    blocks = ("blocks.0", "blocks.1", "blocks.2")
    assert blocks in found
    assert ("Model",) in found
    assert not any(path.startswith("blocks.0.") for paths in found for path in paths)
    assert found["Model",].num_operations > found[blocks].num_operations > 1


def test_modules_with_other_inputs_are_apart() -> None:
    class Wider(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3)
            )

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            first, second, third = self.parts
            once = first(value)
            return second(once).sum() + third(torch.cat([once, once])).sum()

    found = groups(Wider(), torch.randn(4, 8, requires_grad=True))
    assert {("parts.0", "parts.1"), ("parts.2",)} <= set(found)


def test_a_module_that_is_never_called_is_searched_for_its_parts() -> None:
    """Trainers call a part of the module that they are given."""
    outer = nn.ModuleDict({"model": Model()})
    calls = ForwardCalls()
    calls.start(TrainedModules(modules={path or "Outer": m for path, m in outer.named_modules()}))
    outer["model"](words())
    calls.stop()
    found = {group.paths for group in find_groups(calls.take())}
    assert {("model",), tuple(f"model.blocks.{number}" for number in range(3))} <= found
    assert ("Outer",) not in found


def test_calls_without_gradients_are_not_noted() -> None:
    assert find_groups(noted(Model(), words(), grad=False)) == []


def test_a_module_is_made_anew_with_its_shapes_layout_and_ties() -> None:
    model = Model()
    model.register_buffer("order", torch.arange(9))
    model.register_buffer("small", torch.rand(3, 4, dtype=torch.bfloat16).t())
    model.head.weight.requires_grad_(False)
    made = load(describe(model, with_values=True))
    assert made.head.weight is made.table.weight
    assert not made.head.weight.requires_grad
    assert made.order.tolist() == list(range(9))
    assert made.small.equal(model.small)
    assert made.small.stride() == model.small.stride()
    assert made.blocks[2].number == 2
    for (name, one), (_, other) in zip(
        model.named_parameters(), made.named_parameters(), strict=True
    ):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert type(other) is nn.Parameter
        assert not one.equal(other), name
    large = nn.Linear(300, 300)
    content = pickle.dumps(describe(large, with_values=True))
    assert len(content) < large.weight.untyped_storage().nbytes() / 10


def test_noted_inputs_are_not_kept_alive() -> None:
    """Except for indices and masks, whose values matter."""
    value = torch.randn(4, 16, requires_grad=True)
    calls = ForwardCalls()
    block = Block(0)
    calls.start(TrainedModules(modules={"block": block}))
    block((value, 2), options={"bias": torch.zeros(16)})
    calls.stop()
    arguments = calls.take()["block"].arguments
    assert arguments is not None
    assert not any(isinstance(one, torch.Tensor) for one in arguments.tensors)
    (pair,), options = load(arguments)
    assert pair[0].shape == value.shape
    assert pair[0].requires_grad
    assert pair[1] == 2
    assert options["options"]["bias"].shape == (16,)


def stored(tmp_path: Path, model: nn.Module, *arguments: Any) -> dict[tuple[str, ...], Any]:
    path = tmp_path / "modules"
    save_snapshot(path, noted(model, *arguments))
    assert path.stat().st_mode & 0o077 == 0
    return {group.paths: group for group in load_snapshot(path).groups}


def variant(timed: TimedModule, **changes: Any) -> Variant:
    fields: dict[str, Any] = {"name": "", "call": timed.module, "autocast": {}}
    return Variant(**fields | {"num_threads": torch.get_num_threads()} | changes)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_forward_and_backward_of_a_stored_block_are_timed(tmp_path: Path) -> None:
    (block,) = (g for paths, g in stored(tmp_path, Model(), words()).items() if len(paths) == 3)
    timed = TimedModule(block)
    lower = variant(timed, name="bfloat16", autocast={"cpu": torch.bfloat16})
    found = timed.measure([variant(timed), lower], 60.0)
    assert set(found) == {"", "bfloat16"}
    for samples in found.values():
        assert samples.error is None
        assert len(samples.forward_ns) == len(samples.backward_ns) > 0
        assert min(*samples.forward_ns, *samples.backward_ns) > 0
    # The input of the first layer, and that of the second, which is also the output of relu.
    assert found[""].saved_bytes == 4 * 7 * (16 + 64) * 4


def test_indices_keep_their_values(tmp_path: Path) -> None:
    """Random ones would be outside of the table."""
    (root,) = (g for paths, g in stored(tmp_path, Model(), words()).items() if paths == ("Model",))
    assert root.arguments.tensors[0].max() < 50
    timed = TimedModule(root)
    samples = timed.measure([variant(timed)], 60.0)[""]
    assert len(samples.forward_ns) == len(samples.backward_ns) > 0


def test_modules_that_change_their_input_run_again_and_again(tmp_path: Path) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.ReLU(inplace=True), nn.Linear(8, 8)

        def forward(self, value: torch.Tensor, seen: list[int]) -> torch.Tensor:
            seen.append(1)
            assert len(seen) == 1
            return self.second(self.first(value))

    value = torch.randn(4, 8, requires_grad=True) * 1
    found = stored(tmp_path, Changing(), value, [])
    timed = TimedModule(found["Changing",])
    samples = timed.measure([variant(timed)], 60.0)[""]
    assert samples.error is None
    assert len(samples.backward_ns) > 1


def test_backward_starts_from_the_loss_where_a_module_returns_one(tmp_path: Path) -> None:
    class Losing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, value: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.second(value), "loss": self.first(value).mean()}

    found = stored(tmp_path, Losing(), torch.randn(4, 8))
    timed = TimedModule(found["Losing",])
    assert timed.measure([variant(timed)], 60.0)[""].backward_ns
    assert timed.module.first.weight.grad is not None
    assert timed.module.second.weight.grad is None


def test_a_variant_that_fails_leaves_the_others(tmp_path: Path) -> None:
    (block,) = (g for paths, g in stored(tmp_path, Model(), words()).items() if len(paths) == 3)
    timed = TimedModule(block)

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("not here")

    found = timed.measure([variant(timed), variant(timed, name="odd", call=fail)], 60.0)
    assert found[""].forward_ns
    assert str(found["odd"].error) == "not here"
    assert not found["odd"].forward_ns


def test_modules_that_cannot_be_stored_are_named_with_the_reason(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), nn.Tanh())
    model.lock = threading.Lock()  # type: ignore[assignment]
    path = tmp_path / "modules"
    save_snapshot(path, noted(model, torch.randn(2, 4, requires_grad=True)))
    header = msgspec.json.decode(path.read_bytes().partition(b"\n")[0])
    assert "lock" in header["refused"][0]["trouble"]
    assert header["refused"][0]["modules"] == ["Sequential"]
    assert "0" in header["modules"]


PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

class Activation(nn.Module):
    def forward(self, value):
        return torch.relu(value)

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)
        self.activation = Activation()

    def forward(self, given, *, scale):
        hidden = self.activation(self.first(given["value"]))
        return {"value": given["value"] + self.second(hidden) * scale}

class Refusing(nn.Module):
    # Cannot run under autocast, nor compiled.
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))

    def forward(self, value):
        if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
            torch._assert(False, "only as it is")
        return self.parts(value)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.parts = nn.ModuleList(Part() for _ in range(3))
        self.last = Refusing()

    def forward(self, value):
        given = {"value": self.first(value)}
        for part in self.parts:
            given = part(given, scale=0.5)
        return self.last(given["value"])

def main():
    torch.manual_seed(0)
    model = Model()
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 64)).square().mean()
        loss.backward()
        optimizer.step()
    sys.stdout.write(f"loss {loss.item().hex()}\\n")
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(int(sys.argv[1]))

if __name__ == "__main__":
    main()
"""


def timings(out: Path) -> list[ModuleTiming]:
    record = msgspec.json.decode((out / "rank-00000.json").read_bytes(), type=RankRecord)
    assert record.trouble is None
    assert not [path for path in out.iterdir() if "pickle" in path.name]
    return record.module_timings


@pytest.mark.more
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_calibrated_job_has_times_of_its_modules(tmp_path: Path, num_ranks: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = (
        torchrun(script, "0", num_ranks=2) if num_ranks == 2 else [sys.executable, str(script), "0"]
    )
    plain, out = start(command), tmp_path / "run"
    options = ("--steps", "3:6", "--calibrate", "--calibrate-seconds", "90")
    done = record(out, command, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(plain.stdout.split())
    assert "timed: " in done.stderr
    found = {(*one.modules, one.variant): one for one in timings(out)}
    parts = ("parts.0", "parts.1", "parts.2")
    base = found[*parts, ""]
    assert base.forward_ns
    assert base.backward_ns
    assert found[*parts, "bfloat16"].forward_ns
    compiled = found[*parts, "compiled"]
    assert compiled.backward_ns or "compiler" in str(compiled.trouble)
    assert "only as it is" in str(found["last", "bfloat16"].trouble)
    trace = open_run(out)
    assert trace.ranks[0].module_timings == timings(out)
    assert all(not rank.module_timings for rank in trace.ranks[1:])


@pytest.mark.more
@pytest.mark.parametrize("exit_code", ["0", "3"])
def test_a_rank_that_augury_becomes_times_modules_if_it_succeeds(
    tmp_path: Path, exit_code: str
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text(PROGRAM.replace('"WORLD_SIZE" in os.environ', "False"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "augury", "run", "--out", str(out), "--steps", "3:6"),
            *("--calibrate", "--calibrate-seconds", "20", str(script), exit_code),
        ],
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == int(exit_code), done.stderr
    assert bool(timings(out)) == (exit_code == "0")


@pytest.mark.more
def test_without_a_compiler_one_trouble_says_so(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text(PROGRAM)
    options = ("--steps", "3:6", "--calibrate", "--calibrate-seconds", "60")
    done = record(out, [sys.executable, str(script), "0"], *options, CXX="/nowhere/g++")
    assert done.returncode == 0, done.stderr
    (compiled,) = (one for one in timings(out) if "compiled" in one.variant)
    assert "compiler" in str(compiled.trouble)
    assert "compiler" in done.stderr
