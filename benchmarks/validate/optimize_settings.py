"""The cases of the optimizer's suite: programs whose plan is applied, and those whose memory is
measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.validate.launched_job import torchrun
from benchmarks.validate.settings import Setting
from benchmarks.validate.trainers_settings import PROGRAMS

TESTBED = "benchmarks.testbed.train"
LARGE_BATCH = ("--batch-scale", "3")
SLOW_LOADER = ("--fault", "storage-150")
ROUNDING = "rounding"
COMPRESSED = f"{ROUNDING},compression"
HALVED = f"{ROUNDING},precision,compression"
RECORDED_STEPS, PLANNED_STEPS = 160, 330
"""Steps of the recorded job, and of the job under the plan: a trial takes up to 205 of them, and
another one may follow for the plan's other parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase:
    """A program on a network. Its plan is found from one recorded run, and then applied."""

    setting: Setting
    program: str
    """A module of the test bed, or the file name of a trainer's program."""
    allow: str
    """Changes of numerics that the plan may make."""
    has_slow_loader: bool = False

    @property
    def name(self) -> str:
        return self.setting.name

    def command(self, host: int, address: str, num_steps: int) -> list[str]:
        """Returns the command that a user starts on this host."""
        return [
            *torchrun(host, address, self.setting.num_ranks),
            *words_of(self.program, self.setting.model, num_steps, self.setting.options),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One configuration whose peak memory is measured, and predicted from the run as it is."""

    name: str
    modules: tuple[str, ...] = ()
    """Modules that are recomputed."""
    is_half: bool = False
    """Whether forward and backward compute in bfloat16."""
    micro_batches: int = 1
    options: tuple[str, ...] | None = None
    """Options of the program, where they differ from those of the recorded run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCase:
    """A program on two local ranks. Variations are predicted from one recorded run."""

    setting: Setting
    program: str
    variations: tuple[Variation, ...]
    limit_by: str = ""
    """Sections of a plan that needs less memory; empty: no such plan is made."""

    @property
    def name(self) -> str:
        return self.setting.name


def words_of(program: str, model: str, num_steps: int, options: tuple[str, ...]) -> list[str]:
    """Returns a program with its arguments, as a launcher takes them."""
    what = [str(PROGRAMS / program)] if program.endswith(".py") else ["-m", program]
    return [*what, "--model", model, "--steps", str(num_steps), *options]


def _bed(
    model: str,
    mbit: int,
    allow: str,
    *options: str,
    num_ranks: int = 2,
    has_slow_loader: bool = False,
) -> PlanCase:
    """A loop in plain PyTorch, with DDP's defaults."""
    ranks = "" if num_ranks == 2 else f"-{num_ranks}ranks"
    return PlanCase(
        setting=Setting(
            name=f"{'loader-' * has_slow_loader}{model}-{mbit}mbit{ranks}",
            model=model,
            mbit=mbit,
            num_ranks=num_ranks,
            ordinary=True,
            # Under a quota, ranks that share a core do not slow each other down.
            quota=None if num_ranks == 2 else 0.45,
            options=("--cap", "default", *options),
        ),
        program=TESTBED,
        allow=allow,
        has_slow_loader=has_slow_loader,
    )


def _trainer(name: str, model: str, mbit: int, program: str, allow: str, *options: str) -> PlanCase:
    return PlanCase(
        setting=Setting(
            name=f"{name}-{model}-{mbit}mbit",
            model=model,
            mbit=mbit,
            ordinary=True,
            options=options,
        ),
        program=program,
        allow=allow,
    )


PLAN_CASES: tuple[PlanCase, ...] = (
    _bed("last", 1000, COMPRESSED),
    _bed("first", 400, COMPRESSED, *LARGE_BATCH),
    _bed("conv", 400, COMPRESSED, *LARGE_BATCH),
    _bed("transformer", 1000, HALVED, *LARGE_BATCH),
    _bed("last", 1000, COMPRESSED, num_ranks=4),
    _bed("transformer", 1000, COMPRESSED, num_ranks=4),
    _trainer("hf", "bert", 1000, "hf_trainer.py", COMPRESSED, "--width", "192", "--layers", "4"),
    _trainer("hf", "gpt2", 400, "hf_trainer.py", HALVED, "--width", "192", "--layers", "4"),
    _trainer("accelerate", "mlp", 1000, "accelerate_loop.py", ROUNDING, "--batch", "256"),
    _trainer(
        "lightning", "conv", 1000, "lightning_fit.py", COMPRESSED, "--batch", "96", "--nodes", "2"
    ),
    _bed("last", 1000, ROUNDING, *SLOW_LOADER, has_slow_loader=True),
    _bed("transformer", 1000, COMPRESSED, *LARGE_BATCH, *SLOW_LOADER, has_slow_loader=True),
)

PLAIN = Variation(name="default")
ACCUMULATED = "accumulated"


def _memory(
    name: str,
    model: str,
    program: str,
    options: tuple[str, ...],
    variations: tuple[Variation, ...],
    *,
    limit_by: str = "",
) -> MemoryCase:
    return MemoryCase(
        setting=Setting(name=f"memory-{name}", model=model, mbit=None, options=options),
        program=program,
        variations=(PLAIN, *variations),
        limit_by=limit_by,
    )


_LAYERS = ("layers.0", "layers.1", "layers.2")
_BERT_LAYERS = tuple(f"bert.encoder.layer.{number}" for number in range(4))
_BERT = ("--width", "192", "--layers", "4", "--batch", "32")

MEMORY_CASES: tuple[MemoryCase, ...] = (
    _memory(
        "transformer",
        "transformer",
        TESTBED,
        ("--cap", "default", "--batch-scale", "8"),
        (
            Variation(name="recomputed", modules=_LAYERS),
            Variation(name="recomputed-partly", modules=_LAYERS[1:]),
            Variation(name="bf16", is_half=True),
            Variation(name="recomputed-bf16", modules=_LAYERS, is_half=True),
            Variation(
                name=ACCUMULATED,
                micro_batches=2,
                options=("--cap", "default", "--batch-scale", "4", "--accumulate", "2"),
            ),
        ),
        limit_by="recompute",
    ),
    _memory(
        "mlp",
        "mlp",
        "plain_loop.py",
        ("--batch", "512"),
        (Variation(name="bf16", is_half=True),),
    ),
    _memory(
        "conv",
        "conv",
        "plain_loop.py",
        ("--batch", "96"),
        (
            Variation(
                name=ACCUMULATED,
                micro_batches=2,
                options=("--batch", "48", "--accumulate", "2", "--no-sync"),
            ),
        ),
    ),
    _memory(
        "bert",
        "bert",
        "hf_trainer.py",
        _BERT,
        (Variation(name="recomputed", modules=_BERT_LAYERS),),
        limit_by="recompute",
    ),
)
