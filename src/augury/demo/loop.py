"""The whole loop on real training: record, replay, diagnose, plan, apply, verify, page."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from augury import api
from augury.answers import DiagnoseAnswer, DiffAnswer, ReplayAnswer, ScheduleAnswer
from augury.capture.launcher.launch import launch
from augury.capture.launcher.run_folder import prepare_folder
from augury.capture.settings import Settings, parse_windows
from augury.core.errors import AuguryError
from augury.core.progress import Progress, silent
from augury.core.results.comparison import Comparison
from augury.core.results.diagnosis import Diagnosis
from augury.core.results.replay import ReplayResult
from augury.core.results.schedule import ScheduleResult
from augury.demo.network import behind_slow_network, can_have_slow_network
from augury.ingest.open_run import open_run
from augury.report.perfetto import Written
from augury.runtime.torch.injection import VARIABLE

if TYPE_CHECKING:
    from augury.report.exports import WrittenFile

WINDOWS = "10:20,30:40"
NUM_RECORDED_STEPS = 20
NUM_STEPS = 60
PLANNED_STEPS = 280
"""Includes the trial of the plan, which takes 200 steps at most."""
CALIBRATE_SECONDS = 20.0
"""Time for measuring modules of the recorded run; the planned run has the same ones."""
_ENVIRONMENT = {
    # By name, because a host cannot resolve its own name in a network namespace.
    "GLOO_SOCKET_IFNAME": "lo",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # torchrun would set it too, with a warning.
    "OMP_NUM_THREADS": "1",
}


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """The loop's results; ``plan``, ``planned_run`` and ``diff`` are null where no plan pays
    off."""

    run: str
    timeline: str
    page: str
    result: ReplayResult
    diagnosis: Diagnosis
    plan: str | None
    schedule: ScheduleResult
    planned_run: str | None
    diff: Comparison | None


@dataclass(frozen=True)
class DemoLoop:
    """The stages of the loop, to be called in order: ``record``, ``replay``, ``diagnose``,
    ``make_plan``, ``follow_plan`` if a plan was written, and ``write_page``."""

    out: Path
    """Folder of all files."""
    force: bool = False
    has_slow_network: bool = False
    progress: Progress = silent

    @property
    def run(self) -> Path:
        return self.out / "run"

    @property
    def timeline(self) -> Path:
        return self.out / "timeline.json"

    @property
    def plan(self) -> Path:
        return self.out / "plan.json"

    @property
    def planned_run(self) -> Path:
        return self.out / "planned-run"

    @property
    def page(self) -> Path:
        return self.out / "report.html"

    @cached_property
    def recorded(self) -> api.Run:
        """The recorded run, opened once for all stages."""
        return api.open(self.run, progress=self.progress)

    def record(self) -> None:
        self._train(self.run, NUM_STEPS, f"{NUM_STEPS} steps, recording {NUM_RECORDED_STEPS}")

    def replay(self) -> tuple[ReplayAnswer, Written | None]:
        """Replays the recorded run and writes its timeline."""

        answer = self.recorded.replay()
        return answer, answer.write(self.timeline, force=self.force)

    def diagnose(self) -> DiagnoseAnswer:
        return self.recorded.diagnose()

    def make_plan(self) -> ScheduleAnswer:
        """Assesses policies and writes the best plan; ``plan`` of the result is None where no plan
        pays off."""

        answer = self.recorded.schedule()
        answer.save_plan(self.plan, force=self.force)
        return answer

    def follow_plan(self) -> DiffAnswer:
        """Trains again with the plan and compares the runs. The plan's prediction is compared too,
        unless the trial in the job kept stock DDP."""

        self._train(
            self.planned_run,
            PLANNED_STEPS,
            f"{PLANNED_STEPS} steps: a trial of the plan, then the faster of the two",
            {VARIABLE: os.path.realpath(self.plan)},
        )
        status = open_run(self.planned_run).ranks[0].plan
        is_followed = status is not None and status.is_followed
        return self.recorded.diff(self.planned_run, self.plan if is_followed else None)

    def write_page(self) -> WrittenFile:
        """Writes the page about the recorded run."""
        return self.recorded.report(self.page, force=self.force)

    def _train(
        self, out: Path, num_steps: int, work: str, variables: dict[str, str] | None = None
    ) -> None:
        folder = prepare_folder(out, force=self.force, rank=None)
        settings = Settings(
            out=str(folder),
            windows=parse_windows(WINDOWS),
            calibrate=True,
            calibrate_seconds=CALIBRATE_SECONDS if variables is None else 0,
        )
        environment = os.environ | _ENVIRONMENT | (variables or {})
        with self.progress(f"training with two processes for {work}"):
            code = launch(self._command(num_steps), settings, environment)
        if code:
            raise AuguryError(
                f"the training ended with exit code {code}",
                remedy="look at its output above, or add --synthetic",
            )

    def _command(self, num_steps: int) -> list[str]:
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2"),
            *(str(Path(__file__).with_name("training.py")), str(num_steps)),
        ]
        return behind_slow_network(command) if self.has_slow_network else command


def run_demo(out: str | os.PathLike[str] = "augury-demo", *, force: bool = False) -> LoopResult:
    """Runs the whole loop on a real training of two processes, as ``augury demo`` does."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    return run_loop(DemoLoop(folder, force, can_have_slow_network()))


def run_loop(loop: DemoLoop) -> LoopResult:
    """Runs all stages."""
    loop.record()
    replayed, _ = loop.replay()
    diagnosis = loop.diagnose().result
    plans = loop.make_plan().result
    diff = loop.follow_plan().result if plans.plan is not None else None
    loop.write_page()
    return LoopResult(
        run=str(loop.run),
        timeline=str(loop.timeline),
        page=str(loop.page),
        result=replayed.result,
        diagnosis=diagnosis,
        plan=plans.plan,
        schedule=plans,
        planned_run=str(loop.planned_run) if diff is not None else None,
        diff=diff,
    )
