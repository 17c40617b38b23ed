"""The first thing that runs in a process to be recorded: it only waits for torch to come."""

from __future__ import annotations

import sys
from types import ModuleType

from augury.capture.settings import Settings
from augury.core.after_import import after_import


def arrange(settings: Settings | None = None) -> None:
    """As the launcher told this process, if not as given."""
    settings = settings or Settings.from_environment()
    if settings is None:
        return

    def start(module: ModuleType) -> None:
        try:
            from augury.capture.torch_recorder import StepRecorder

            module.register_optimizer_step_post_hook(StepRecorder(settings).on_step)
        except Exception as error:
            print(f"augury: cannot record torch: {error}", file=sys.stderr)

    after_import("torch.optim.optimizer", start)
