"""Starts the training programs of this folder under ``augury run`` and examines the runs."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import augury
from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.graph.graph import NONE, Graph
from augury.core.measured_step import measured_run
from augury.core.trace.trace import Trace
from augury.ingest.open_run import open_run
from tests.capture.jobs import record, start, torchrun

PROGRAMS = Path(__file__).parent / "programs"


def single(program: str, *arguments: str) -> list[str]:
    """Returns the command of a program in one process, or with a launcher of its own."""
    return [sys.executable, str(PROGRAMS / program), *arguments]


def two_ranks(program: str, *arguments: str) -> list[str]:
    """Returns the command of a program with two ranks under torchrun."""
    return torchrun(PROGRAMS / program, *arguments)


def results(output: str) -> list[str]:
    """Returns the lines in which the ranks print their losses and parameters."""
    return sorted(line for line in output.splitlines() if line.startswith("rank "))


@dataclass(frozen=True)
class RecordedProgram:
    """The run of a program that was recorded without a change of its result."""

    out: Path
    num_ranks: int

    @cached_property
    def trace(self) -> Trace:
        return open_run(self.out)

    @cached_property
    def graph(self) -> Graph:
        return augury.open(self.out).graph

    def num_steps(self, rank: int = 0) -> int:
        return len(json.loads((self.out / f"rank-{rank:05d}.json").read_text())["step_end_ns"])

    def shares(self, rank: int = 0) -> dict[str, float]:
        """Returns the share of each kind in the work of a rank's thread, and the share of its
        communication relative to that work."""
        ops = self.graph.ops
        work: Counter[str] = Counter()
        for op in np.flatnonzero(ops.rank == rank).tolist():
            kind = OpKind(int(ops.kind[op]))
            name = "communication" if kind.is_communication else kind.label
            work[name] += int(ops.work_ns[op])
        total = sum(ns for name, ns in work.items() if name not in ("communication", "delay"))
        return {name: ns / total for name, ns in work.items()}

    def layer_share(self, phase: Phase) -> float:
        """Returns the share of a phase's time in a detailed step that is tied to a layer, without
        the time that DDP takes for its buckets and buffers. The median over ranks and steps:
        other load on the machine may interrupt a rank anywhere."""
        events, steps = self.trace.events, self.trace.steps
        is_main = self.trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
        own_ns = np.where(is_main, events.dur_ns, 0)
        inner = np.flatnonzero(is_main & (events.parent != NONE))
        np.subtract.at(own_ns, events.parent[inner], events.dur_ns[inner])
        detailed = steps.step[(steps.rank == 0) & (steps.state == StepState.DETAILED)]
        total: Counter[tuple[int, int]] = Counter()
        known: Counter[tuple[int, int]] = Counter()
        for row in np.flatnonzero(
            (events.phase == phase) & np.isin(events.step, detailed) & is_main
        ).tolist():
            if events.kind[row] != OpKind.LAUNCH and not self._is_of_ddp(row):
                place = int(events.rank[row]), int(events.step[row])
                has_layer = bool(self.trace.strings[int(events.layer[row])])
                total[place] += int(own_ns[row])
                known[place] += has_layer * int(own_ns[row])
        return statistics.median(known[place] / ns for place, ns in total.items() if ns)

    def _is_of_ddp(self, row: int) -> bool:
        # DDP's hooks run around AccumulateGrad, within the frame that the engine opens for it.
        if self.trace.name(row).endswith("evaluate_function: torch::autograd::AccumulateGrad"):
            return True
        # Around the module, DDP waits for the buffers of the first rank.
        if self.trace.name(row) == "DistributedDataParallel.forward":
            return True
        while row != NONE:
            if self.trace.name(row).startswith(("torch.distributed.ddp", "torch::distributed")):
                return True
            row = int(self.trace.events.parent[row])
        return False

    def assert_replays(self) -> None:
        """The replayed step is within 5 % of the measured one, or within the noise of the run. On a
        busy machine the recorded steps, which replay starts from, may differ from the others."""
        predicted_ns = augury.open(self.out).replay().result.predicted_step_ns
        measured = measured_run(self.trace)
        reached = [measured.step_ns, measured.recorded_step_ns or measured.step_ns]
        tolerance = max(0.05, measured.noise)
        assert predicted_ns >= min(reached) * (1 - tolerance), (predicted_ns, measured)
        assert predicted_ns <= max(reached) * (1 + tolerance), (predicted_ns, measured)

    def assert_told_apart(self, *, update: float = 0.5) -> None:
        """Forward, backward and update are told apart, and the first two are tied to layers."""
        for rank in range(self.num_ranks):
            shares = self.shares(rank)
            assert 0.04 < shares["forward"] < 0.7, shares
            assert 0.15 < shares["backward"] < 0.9, shares
            assert 0.005 < shares["update"] < update, shares
            # Python between the operations of steps of 10 ms, which has no events.
            assert shares.get("unexplained", 0) < 0.25, shares
            assert self.num_ranks == 1 or shares["communication"] > 0
        assert self.layer_share(Phase.FORWARD) > 0.7
        assert self.layer_share(Phase.BACKWARD) > 0.7


def record_program(
    folder: Path, command: list[str], *options: str, num_ranks: int = 2, **environment: str
) -> RecordedProgram:
    """Runs a program without and with the recorder, and compares what both printed."""
    plain = start(command, **environment)
    assert plain.returncode == 0, plain.stderr[-4000:]
    expected = results(plain.stdout)
    assert len(expected) == num_ranks, plain.stdout
    return record_again(folder, command, expected, *options, **environment)


def record_again(
    folder: Path, command: list[str], expected: list[str], *options: str, **environment: str
) -> RecordedProgram:
    """Records a program whose printed results are ``expected``."""
    out = folder / "run"
    done = record(out, command, *options, **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    assert results(done.stdout) == expected
    for rank in range(len(expected)):
        told = json.loads((out / f"rank-{rank:05d}.json").read_text())
        assert told["trouble"] is None, told["trouble"]
    return RecordedProgram(out, len(expected))
