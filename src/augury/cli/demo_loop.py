"""The whole loop on a real training of two processes: record, replay, plan, apply, verify."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from augury.cli.demo_network import (
    GBIT_EACH_WAY,
    behind_slow_network,
    can_have_slow_network,
)
from augury.cli.progress import working
from augury.core.errors import AuguryError

if TYPE_CHECKING:
    from augury.core.results.comparison import Comparison
    from augury.core.results.schedule import ScheduleResult

WINDOWS = "10:20,30:40"
NUM_STEPS = 60
PLANNED_STEPS = 280
"""With the trial of the plan, which takes 200 steps at most."""


@dataclass(frozen=True, slots=True)
class Demo:
    """``out`` is the folder in which everything lands."""

    out: Path
    force: bool
    is_slow: bool

    @property
    def run(self) -> Path:
        return self.out / "run"

    @property
    def plan(self) -> Path:
        return self.out / "plan.json"

    @property
    def planned_run(self) -> Path:
        return self.out / "planned-run"

    def record(self) -> Path:
        return self._train(self.run, NUM_STEPS, f"{NUM_STEPS} steps, recording 20")

    def make_plan(self) -> ScheduleResult:
        """Its ``plan`` is None where no plan pays off."""
        from augury import api

        answer = api.open(self.run, progress=working).schedule()
        answer.save_plan(self.plan, force=self.force)
        return answer.result

    def follow_plan(self) -> Comparison:
        """Held against the plan, unless the trial in the job kept stock DDP."""
        from augury.core.plan.plan_file import load_plan
        from augury.diagnose.compare_runs import compare_runs
        from augury.ingest.open_run import open_run
        from augury.runtime.torch.injection import VARIABLE

        folder = self._train(
            self.planned_run,
            PLANNED_STEPS,
            f"{PLANNED_STEPS} steps: a trial of the plan, then what is faster",
            {VARIABLE: os.path.realpath(self.plan)},
        )
        with working("comparing"):
            after = open_run(folder)
            status = after.ranks[0].plan
            is_followed = status is not None and status.is_followed
            plan = load_plan(self.plan) if is_followed else None
            return compare_runs(open_run(self.run), after, plan)

    def _train(
        self, out: Path, num_steps: int, what: str, told: dict[str, str] | None = None
    ) -> Path:
        from augury.capture.launcher.launch import launch
        from augury.capture.launcher.run_folder import prepare_folder
        from augury.capture.settings import Settings, parse_windows

        folder = prepare_folder(out, force=self.force, rank=None)
        settings = Settings(out=str(folder), windows=parse_windows(WINDOWS), calibrate=True)
        with working(f"training with two processes for {what}"), _environment(told or {}):
            code = launch(self._job(num_steps), settings)
        if code:
            raise AuguryError(
                f"the training ended with {code}",
                remedy="look at its output above, or add --made-up",
            )
        return folder

    def _job(self, num_steps: int) -> list[str]:
        job = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2"),
            *(str(Path(__file__).with_name("demo_training.py")), str(num_steps)),
        ]
        return behind_slow_network(job) if self.is_slow else job


def open_demo(out: Path, *, force: bool) -> Demo:
    return Demo(out, force, can_have_slow_network())


def introduction(demo: Demo) -> list[str]:
    network = (
        f"a network of {GBIT_EACH_WAY} Gbit/s, which lasts as long as the demo"
        if demo.is_slow
        else "loopback"
    )
    return [
        f"A real training, recorded without a change to it: two processes, {NUM_STEPS} steps, a",
        f"small convolutional net, gradients averaged by DDP over {network}.",
        "The steps that were recorded are replayed, and held against those that nobody watched.",
    ]


@contextmanager
def _environment(told: dict[str, str]) -> Iterator[None]:
    """Of the processes started meanwhile. Loopback by name: in a network of its own a host does
    not find itself by its name, and torch would warn of that. One thread: or torchrun warns that
    it sets that itself."""
    told = {
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
        **told,
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
