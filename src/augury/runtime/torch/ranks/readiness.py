"""A vote of all ranks, under stock DDP, on whether each knows the optimizer of the model.

Ranks need not take their first optimizer step together: one may skip a batch. So they vote at the
end of each exchange of gradients and read the outcome at the start of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from augury.runtime.torch.program.hooks import Hook
from augury.runtime.torch.ranks.control import Control
from augury.runtime.torch.ranks.exchange_counter import ExchangeCounter, announces_exchange

WITHOUT_COMMUNICATION = 1 << 15
"""Added to the vote of a rank that is ready, but cannot have the communication section."""
REFUSES = 1 << 31
MOST_STEPS = 50
"""Number of exchanges without an optimizer step on some rank after which the plan is refused."""


class ReadinessVote:
    """Calls ``on_ready`` once all ranks are ready, with whether all can have the communication
    section, or ``on_refusal`` once a rank refuses."""

    def __init__(
        self,
        model: Any,
        control: Control,
        *,
        on_ready: Callable[[ExchangeCounter, bool], None],
        on_refusal: Callable[[str], None],
    ) -> None:
        self.control = control
        self._on_ready, self._on_refusal = on_ready, on_refusal
        self._vote = 0
        self._count: Any = None
        self._counter = ExchangeCounter(model, self)
        self._counter.watch_stock(True)
        self._hook = model.register_forward_hook(Hook(self._after_forward))

    def be_ready(self, *, has_communication: bool) -> None:
        self._vote = max(self._vote, 1 if has_communication else 1 + WITHOUT_COMMUNICATION)

    def refuse(self) -> None:
        self._vote = REFUSES

    def _after_forward(self, model: Any, _inputs: Any, _output: Any) -> None:
        if announces_exchange(model):
            self._counter.after_forward()

    def end_step(self, _step: int) -> None:
        self._count = self.control.vote(self._vote)

    def begin_step(self, step: int) -> None:
        if self._count is None:
            return
        (total, work), self._count = self._count, None
        work.wait()
        number = int(total.item())
        num_without, num_ready = divmod(number, WITHOUT_COMMUNICATION)
        if number < REFUSES and num_ready == self.control.group.size:
            self._leave()
            self._on_ready(self._counter, num_without == 0)
        elif number >= REFUSES or step > MOST_STEPS:
            self._leave()
            self._on_refusal(
                "another rank cannot follow the plan"
                if number >= REFUSES
                else "a rank takes no optimizer steps"
            )

    def _leave(self) -> None:
        self._counter.watch_stock(False)
        self._hook.remove()
