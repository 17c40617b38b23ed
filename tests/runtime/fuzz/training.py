"""One training of a program on this rank: its model, optimizer and everything beside them."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augury.core.plan.plan import Plan
from augury.runtime.torch.training import Scheduled, schedule_training
from augury.runtime.trial import TrialRules
from tests.runtime.fuzz.blocks import NUM_TOKENS
from tests.runtime.fuzz.nets import NUM_CLASSES, Net
from tests.runtime.fuzz.optimizers import make_optimizer, make_scheduler
from tests.runtime.fuzz.plans import make_plan
from tests.runtime.fuzz.program import Program, Step

SHORT_TRIAL = TrialRules(
    warm_up_steps=0, block_steps=1, settling_steps=0, least_rounds=1, most_steps=6
)
"""Modes change at every step, and the verdict comes within a program of a few steps."""


class Training:
    def __init__(
        self, program: Program, *, is_planned: bool, changes_last_bits: bool = False
    ) -> None:
        """``changes_last_bits``: parameters start one unit in the last place off."""
        self.program = program
        self.is_planned = is_planned
        self.changes_last_bits = changes_last_bits
        self.rank = dist.get_rank()
        self.number = 0
        self.notes: list[Any] = []
        self.model: Any = None
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.scaler: Any = None
        self.scheduled: Scheduled | None = None
        self.averages: list[Any] = []
        self.views: list[Any] = []
        self.saved: tuple[Any, Any] | None = None
        self.other: Any = None
        self.other_optimizer: Any = None
        self.num_switches = self._num_replans = 0
        self.reasons: list[str] = []
        self._plans: tuple[Plan, ...] = ()
        self._applied: Plan | None = None

    # --- what it is made of

    def start(self) -> None:
        program = self.program
        self.build(seed=program.seed, plan=0)
        torch.manual_seed(1000 + 10 * program.seed + self.rank)  # dropout differs between ranks
        self.averages = [p.detach().clone() for p in self.model.parameters()]
        if program.scales:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        if program.other_model:
            self._build_other()

    def build(self, *, seed: int, plan: int, groups: list[list[str]] | None = None) -> None:
        """A new model with a new optimizer, under that plan; ``groups``: names of the parameters
        of each group."""
        program = self.program
        torch.manual_seed(seed)
        module = Net(program)
        if self.changes_last_bits:
            _change_last_bits(module)
        options: dict[str, Any] = {
            "find_unused_parameters": program.find_unused,
            "gradient_as_bucket_view": program.bucket_view,
            "broadcast_buffers": program.broadcasts_buffers,
        }
        if program.bucket_cap_mb:
            options["bucket_cap_mb"] = program.bucket_cap_mb
        chosen = None
        if self.is_planned:
            self._plans = tuple(
                make_plan(choice, module, dist.get_world_size()) for choice in program.plans
            )
            chosen = self._plans[plan]
        self.model = DistributedDataParallel(module, **options)
        self.optimizer = make_optimizer(program.optimizer, self.model)
        if groups is not None:
            self._regroup(groups)
        if program.scheduler:
            self.scheduler = make_scheduler(program.scheduler, self.optimizer)
        if program.has_views:
            self.views = [p.detach() for p in self.model.parameters()]
        if chosen is not None:
            self._apply(chosen)

    def _regroup(self, groups: list[list[str]]) -> None:
        named = dict(self.model.module.named_parameters())
        have = self.optimizer.param_groups
        while len(have) < len(groups):
            self.optimizer.add_param_group({"params": []})
        for group, names in zip(have, groups, strict=True):
            group["params"] = [named[name] for name in names]

    def _build_other(self) -> None:
        torch.manual_seed(self.program.seed + 1)
        if self.program.other_model == "teacher":
            self.other = Net(self.program).requires_grad_(False)
        else:
            layer = nn.Linear(self.program.width, 3).to(getattr(torch, self.program.dtype))
            self.other = DistributedDataParallel(layer)
            self.other_optimizer = torch.optim.SGD(self.other.parameters(), lr=0.1)

    # --- plans

    @property
    def is_followed(self) -> bool:
        """Under a plan, or on trial."""
        scheduled = self.scheduled
        return scheduled is not None and (scheduled.plan is not None or scheduled.is_on_trial)

    @property
    def num_replans(self) -> int:
        self._count_replans()
        return self._num_replans

    def _apply(self, plan: Plan) -> None:
        program = self.program
        self.scheduled = schedule_training(
            self.model,
            self.optimizer,
            plan,
            replan=program.replans,
            trial=SHORT_TRIAL if program.has_trial else None,
            log_every=program.log_every,
            searches_here=True,
        )
        self._applied = self.scheduled.plan
        if self.scheduled.reason is not None:
            self.reasons.append(self.scheduled.reason)

    def switch(self, to: str) -> None:
        """All ranks change between stock DDP and plans before a step."""
        if not (to and self.is_planned):
            return
        self._count_replans()
        plan = None if to == "stock" else self._plans[int(to)]
        self.num_switches += 1
        if self.scheduled is None:
            if plan is not None:
                self._apply(plan)
            return
        self.scheduled.switch(plan)
        self._applied = self.scheduled.plan
        if plan is not None and self.scheduled.reason is not None:
            self.reasons.append(self.scheduled.reason)

    def _count_replans(self) -> None:
        now = None if self.scheduled is None else self.scheduled.plan
        if now is not None and now is not self._applied:
            self._num_replans += 1
            self._applied = now

    def close(self) -> None:
        if self.scheduled is not None:
            self._count_replans()
            scheduled, self.scheduled = self.scheduled, None
            scheduled.close()

    # --- what a step needs

    def note(self, name: str, value: Any) -> None:
        if torch.is_tensor(value):
            value = value.detach().clone()
        self.notes.append((self.number, name, value))

    def predict(self, model: Any, *, key: tuple[int, int], fails: str = "") -> Any:
        generator = self._generator(key)
        program = self.program
        shape = program.batch, program.length, program.width
        features = torch.randn(shape, generator=generator).to(getattr(torch, program.dtype))
        tokens = torch.randint(NUM_TOKENS, shape[:2], generator=generator)
        output = model(features, tokens, turn=self.number + self.rank, fails=fails)
        if program.output == "dict":
            return output["logits"]
        return output[0] if program.output == "tuple" else output

    def targets(self, key: tuple[int, int]) -> tuple[Any, Any]:
        """Those of a regression, and classes."""
        generator = self._generator((key[0], key[1] + 1000))
        size = self.program.batch
        wanted = torch.randn(size, NUM_CLASSES, generator=generator)
        is_double = self.program.dtype == "float64"
        classes = torch.randint(NUM_CLASSES, (size,), generator=generator)
        return wanted.double() if is_double else wanted, classes

    def _generator(self, key: tuple[int, int]) -> torch.Generator:
        seed = hash((self.program.seed, self.rank, *key)) & 0x7FFFFFFF  # numbers: never salted
        return torch.Generator().manual_seed(seed)

    def zero(self, step: Step) -> None:
        owner = self.optimizer if step.zero_by == "optimizer" else self.model
        owner.zero_grad(set_to_none=step.set_to_none)

    def step_scheduler(self) -> None:
        if self.program.scheduler == "ReduceLROnPlateau":
            self.scheduler.step(1.0 / (1 + self.number % 3))
        else:
            self.scheduler.step()

    @property
    def joins_other(self) -> bool:
        return self.scaler is None and self.number % 2 == 0

    def other_loss(self) -> Any:
        if self.program.other_model != "trained":
            return None
        generator = self._generator((self.number, 77))
        inputs = torch.randn(2, self.program.width, generator=generator)
        return self.other(inputs.to(getattr(torch, self.program.dtype))).square().mean()

    def step_other(self, loss: Any) -> None:
        if not self.joins_other:
            loss.backward()
        self.other_optimizer.step()
        self.other_optimizer.zero_grad()

    # --- how it ended

    def state(self, *, with_gradients: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if with_gradients:
            for name, parameter in self.model.named_parameters():
                gradient = parameter.grad
                found[f"gradient {name}"] = None if gradient is None else gradient.detach().clone()
        for name, value in self.model.state_dict().items():
            found[f"model {name}"] = value.clone()
        found["optimizer"] = copy.deepcopy(self.optimizer.state_dict())
        for number, average in enumerate(self.averages):
            found[f"average {number}"] = average
        if self.other is not None:
            found["other"] = copy.deepcopy(self.other.state_dict())
        if self.scaler is not None:
            found["scaler"] = self.scaler.state_dict()
        found["random"] = torch.get_rng_state()
        return found


def _change_last_bits(module: nn.Module) -> None:
    """The same on all ranks, and without a number from the generator that dropout uses."""
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            towards = torch.randint(0, 2, parameter.shape, generator=numbers) * 2.0 - 1.0
            parameter.copy_(torch.nextafter(parameter, towards.to(parameter) * torch.inf))
