"""A random program from a seed: always the same one, and one for which stock DDP terminates.

What stock DDP itself cannot do is left out here, with the reason beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from tests.runtime.fuzz.optimizers import random_optimizer
from tests.runtime.fuzz.program import Act, Block, OptimizerChoice, PlanChoice, Program, Step

PLAIN_BLOCKS = (
    *("linear", "relu", "mlp", "wide", "checkpointed", "conv", "conv2d", "batchnorm", "layernorm"),
    *("attention", "recurrent", "weight_norm", "twice", "scale", "embedding", "dropout", "buffer"),
    *("frozen", "tied", "outside"),
)
EDITS = (
    *("none", "zero_", "replace", "mul_", "add_", "data", "foreach_zero_", "foreach_mul_"),
    *("all_none", "copy_", "clone", "detached", "rank0_none"),
)
ACTS = (
    *("parameters", "gradients", "gradient_norm", "model_state", "optimizer_state", "average"),
    *("evaluate", "evaluate", "evaluate_rank0", "lr", "swap_groups", "late_hook", "shrink"),
    *("data_shrink", "views", "deepcopy", "resume", "barrier", "all_reduce", "array", "new_data"),
    *("roll_back", "freeze", "unfreeze", "add_group", "freeze_module", "zero_parameter", "penalty"),
    *("zero_state", "clear_state", "wrap_step"),
)
POLICIES = (
    "fifo",
    "ddp",
    "ddp-best",
    "p3",
    "bytescheduler",
    "mg-wfbp",
    "dear",
    "prophet",
    "augury",
)
SCHEDULERS = (
    *("StepLR", "ExponentialLR", "OneCycleLR", "CosineAnnealingLR", "LambdaLR", "CyclicLR"),
    *("ReduceLROnPlateau", "LinearLR"),
)
RANKS = (2, 2, 2, 3, 4)
BUFFERED = ("batchnorm", "buffer")
SHIFTED = ("batchnorm", "attention", "encoder")
"""They take out what a bias adds: its gradient is zero but for rounding errors, which optimizers
that divide by the size of gradients make large."""


def program_of(seed: int) -> Program:
    random = Random(f"augury-fuzz-{seed}")
    num_ranks = random.choice(RANKS)
    program = Program(
        seed=seed,
        num_ranks=num_ranks,
        dtype=_dtype(random, num_ranks),
        width=random.choice((4, 6, 8, 16)),
        length=random.randint(1, 4),
        batch=random.randint(2, 5),
        find_unused=_chance(random, 0.35),
        bucket_view=_chance(random, 0.25),
        broadcasts_buffers=_chance(random, 0.8),
        bucket_cap_mb=random.choice((0.0, 0.0, 0.001, 0.01)),
        output=random.choice(("tensor", "tensor", "dict", "tuple")),
        scheduler=random.choice(SCHEDULERS) if _chance(random, 0.4) else "",
        has_average=_chance(random, 0.25),
        has_views=_chance(random, 0.1),
        other_model=random.choice(("teacher", "idle", "trained")) if _chance(random, 0.2) else "",
        loss=random.choice(("cross_entropy", "mse")),
        channels_last=_chance(random, 0.1),
    )
    program = replace(program, blocks=_blocks(random, program))
    program = replace(program, optimizer=random_optimizer(random, program))
    if num_ranks > 2 and any(block.kind in SHIFTED for block in program.blocks):
        program = replace(program, optimizer=OptimizerChoice())
    program = replace(
        program,
        autocasts=program.dtype == "float32" and _chance(random, 0.15),
        # A closure cannot be passed through a scaler.
        scales=program.dtype in ("float32", "float64") and _chance(random, 0.2),
        replans=_chance(random, 0.35),
    )
    program = replace(program, plans=(_plan(random), _plan(random)))
    num_steps = random.randint(10, 13) if program.replans else random.randint(3, 7)
    program = replace(program, log_every=random.choice((1, 1, 4)) if program.replans else 4)
    has_switches = _chance(random, 0.5)
    program = replace(program, has_trial=not has_switches or _chance(random, 0.1))
    steps = [_step(random, program, n, has_switches) for n in range(num_steps)]
    for before, number in zip(steps, range(1, num_steps), strict=False):
        if before.fails:
            # Its forward has announced an exchange, which stock DDP takes to be the next
            # backward's, exchanged or not.
            fails = steps[number].fails
            steps[number] = replace(
                steps[number], switch="", micro_batches=1, fails="" if fails == "local" else fails
            )
    if _chance(random, 0.05) and not program.find_unused:
        # Stock DDP cannot go on after this: the program ends with it. (Where parameters may be
        # unused, a rank may wait for the others within that step.)
        steps[-1] = Step(fails="middle", switch=steps[-1].switch)
    return replace(program, steps=tuple(steps))


def _chance(random: Random, share: float) -> bool:
    return random.random() < share


def _dtype(random: Random, num_ranks: int) -> str:
    """With more than two ranks sums differ in their last bits, which float64 keeps small."""
    if num_ranks > 2:
        return "float64"
    return random.choice(("float32", "float32", "float32", "float64", "bfloat16"))


def _blocks(random: Random, program: Program) -> tuple[Block, ...]:
    kinds = random.choices(PLAIN_BLOCKS, k=random.randint(1, 5))
    if program.num_ranks == 2:
        if _chance(random, 0.1):
            kinds.append("encoder")
        if _chance(random, 0.05):
            kinds.append("max_norm")
        if _chance(random, 0.03):
            kinds.append("huge")
    if program.find_unused:
        kinds += random.choices(("idle", "optional", "optional"), k=random.randint(1, 3))
    if program.dtype == "bfloat16":
        kinds = [kind for kind in kinds if kind != "recurrent"]  # not there for bfloat16
    random.shuffle(kinds)
    blocks = []
    for kind in kinds:
        dtype = ""
        # What shares a parameter with another block must have its dtype.
        if program.num_ranks == 2 and kind not in ("tied", "outside") and _chance(random, 0.06):
            dtype = random.choice(("float64", "bfloat16"))
            if kind == "recurrent" and dtype == "bfloat16":
                dtype = ""
        every = random.randint(1, 3) if kind == "optional" else 1
        blocks.append(Block(kind=kind, dtype=dtype, every=every))
    return tuple(blocks)


def _plan(random: Random) -> PlanChoice:
    kinds = ["random"] * 5 + ["halves"] * 3 + ["mixed"] * 2 + ["buckets", *POLICIES]
    return PlanChoice(
        kind=random.choice(kinds),
        seed=random.randrange(1 << 30),
        has_barrier=_chance(random, 0.3),
        lanes=random.choice((1, 1, 2)),
        has_marks=_chance(random, 0.3),
        ns_per_byte=10 ** random.uniform(-1, 4),
    )


def _step(random: Random, program: Program, number: int, has_switches: bool) -> Step:
    """Long programs, which are there for the sake of a new plan, do less in each step."""
    rare = 0.5 if program.replans else 1.0
    step = Step(
        micro_batches=random.choice((1, 1, 1, 2, 3)) if _chance(random, 0.5 * rare) else 1,
        # Where parameters may be unused, stock DDP takes one forward for each backward.
        num_forwards=2 if _chance(random, 0.08) and not program.find_unused else 1,
        zero=random.choice(("start",) * 6 + ("after_forward", "end", "never")),
        zero_by=random.choice(("optimizer", "optimizer", "model")),
        set_to_none=_chance(random, 0.75),
        evaluates_between=_chance(random, 0.05),
        clip=random.choice(("norm", "value")) if _chance(random, 0.15) else "",
        how=random.choice(("closure", "skip", "twice")) if _chance(random, 0.12) else "plain",
    )
    if _chance(random, 0.15):
        step = replace(step, edits=_edits(random))
    if _chance(random, 0.06):
        step = _failing(random, step, program)
    if program.scales and _chance(random, 0.2):
        step = replace(step, loss_factor=random.choice((math.inf, 1e-3, 10.0)))
    if program.scales and step.how != "skip":
        step = replace(step, how="plain")
    if _chance(random, 0.35 * rare):
        acts = [_act(random, program) for _ in range(random.randint(1, 2))]
        step = replace(step, acts=tuple(act for act in acts if act is not None))
    if has_switches and number and _chance(random, 0.4):
        step = replace(step, switch=random.choice(("stock", "0", "1")))
    return step


def _edits(random: Random) -> tuple[Act, ...]:
    return tuple(
        Act(name=random.choice(EDITS), number=random.randrange(64))
        for _ in range(random.randint(1, 2))
    )


def _failing(random: Random, step: Step, program: Program) -> Step:
    """On all ranks, before any gradient is there; or on one rank in a pass that is not
    exchanged. Elsewhere stock DDP waits for ever, or fails in the next forward."""
    fails = random.choice(("forward", "start", "interrupt", "local"))
    if fails == "local" and program.find_unused:
        fails = "forward"  # stock DDP counts parameters of the pass as used
    if fails == "local":
        return replace(step, fails=fails, micro_batches=max(2, step.micro_batches))
    return replace(step, fails=fails, micro_batches=1, num_forwards=1, edits=(), how="plain")


def _act(random: Random, program: Program) -> Act | None:
    name = random.choice(ACTS)
    has_buffers = any(block.kind in BUFFERED for block in program.blocks)
    if name == "average" and not program.has_average:
        return None
    if name == "views" and not program.has_views:
        return None
    if name == "freeze" and not program.find_unused:
        return None  # stock DDP would wait for the gradient
    number = random.randrange(64)
    if name == "evaluate_rank0" and has_buffers and program.broadcasts_buffers:
        number |= 1  # not through DDP, which would broadcast buffers on this rank only
    return Act(name=name, number=number)
