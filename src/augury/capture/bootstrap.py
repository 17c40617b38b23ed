"""The first thing that runs in a process to be recorded: it only waits for torch to come."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from augury.capture.settings import Settings
from augury.core.import_hook import after_import

_TOLD = "AUGURY_TORCH_VERSION"


def arrange(settings: Settings | None = None) -> None:
    """As the launcher told this process, if not as given."""
    settings = settings or Settings.from_environment()
    if settings is None:
        return
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        from augury.capture.launcher.run_folder import remove_earlier_start

        with suppress(OSError):
            remove_earlier_start(Path(settings.out))

    def start(module: ModuleType) -> None:
        _tell_untested()
        try:
            from augury.capture.torch.recorder import StepRecorder

            module.register_optimizer_step_post_hook(StepRecorder(settings).on_step)
        except Exception as error:
            print(f"augury: cannot record torch: {error}", file=sys.stderr)

    after_import("torch.optim.optimizer", start)


def _tell_untested() -> None:
    """One line, by the first process of the job that imports torch. Those that it starts, and
    ranks other than 0, say nothing."""
    from augury.core.tested_versions import is_tested, tested_versions

    version = str(getattr(sys.modules.get("torch"), "__version__", ""))
    is_told = _TOLD in os.environ or os.environ.get("RANK", "0") != "0"
    os.environ[_TOLD] = version
    if version and not is_told and not is_tested("torch", version):
        print(
            f"augury: torch {version} is not tested with this Augury, {tested_versions('torch')}"
            " is: recording goes on",
            file=sys.stderr,
        )
