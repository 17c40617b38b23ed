"""The cases of the trainers suite: programs of each trainer, with two models each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.validate.launched_job import PORT, torchrun
from benchmarks.validate.settings import Setting, bandwidth

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "trainers" / "programs"
MBIT = 1000
HALVED = bandwidth(0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCase:
    setting: Setting
    program: str
    """File name of the program; the setting's options are its arguments."""
    num_steps: int
    own_launcher: bool = False
    """Whether ``accelerate launch`` starts the processes, instead of torchrun."""
    prevented_by: str | None = None
    """The setting that prevents every plan, as the run must name it; None if plans can be
    followed."""

    @property
    def name(self) -> str:
        return self.setting.name

    def command(self, host: int, address: str, num_steps: int | None = None) -> list[str]:
        """Returns the command that a user starts on this host."""
        steps = str(num_steps or self.num_steps)
        return [
            *(_accelerate(host, address) if self.own_launcher else torchrun(host, address, 2)),
            *(str(PROGRAMS / self.program), "--model", self.setting.model),
            *("--steps", steps, *self.setting.options),
        ]


def _accelerate(host: int, address: str) -> list[str]:
    return [
        # On CPUs the launcher starts several processes only if it takes them for GPU processes.
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"),
        *("--num_machines=2", f"--machine_rank={host}", f"--main_process_ip={address}"),
        *(f"--main_process_port={PORT}", "--mixed_precision=no", "--dynamo_backend=no"),
    ]


def _case(
    trainer: str,
    model: str,
    program: str,
    num_steps: int,
    *arguments: str,
    own_launcher: bool = False,
    prevented_by: str | None = None,
) -> TrainerCase:
    return TrainerCase(
        setting=Setting(
            name=f"{trainer}-{model}",
            model=model,
            mbit=MBIT,
            ordinary=True,
            options=arguments,
            changes=(HALVED,),
        ),
        program=program,
        num_steps=num_steps,
        own_launcher=own_launcher,
        prevented_by=prevented_by,
    )


SHARDED = "fully_shard"
COMPILED = "compiled"

CASES: tuple[TrainerCase, ...] = (
    _case("hf", "bert", "hf_trainer.py", 400, "--width", "192", "--layers", "4"),
    _case("hf", "gpt2", "hf_trainer.py", 400, "--width", "192", "--layers", "4"),
    _case("accelerate", "mlp", "accelerate_loop.py", 600, "--batch", "256"),
    _case("accelerate", "conv", "accelerate_loop.py", 600, "--batch", "96", own_launcher=True),
    _case("lightning", "mlp", "lightning_fit.py", 600, "--batch", "256", "--nodes", "2"),
    _case("lightning", "conv", "lightning_fit.py", 600, "--batch", "96", "--nodes", "2"),
    _case("fsdp2", "mlp", "fsdp2_loop.py", 500, "--batch", "256", prevented_by=SHARDED),
    _case("fsdp2", "transformer", "fsdp2_loop.py", 400, "--batch", "32", prevented_by=SHARDED),
    _case(
        "compiled", "mlp", "plain_loop.py", 600, "--batch", "256", "--compile", "outside",
        prevented_by=COMPILED,
    ),
    _case(
        "compiled", "conv", "plain_loop.py", 600, "--batch", "96", "--compile", "inside",
        prevented_by=COMPILED,
    ),
)  # fmt: skip
