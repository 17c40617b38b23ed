"""Starts recording in a process once it imports one of the frameworks in a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

from augury.capture.process_identity import is_restarted
from augury.capture.settings import Settings
from augury.core.import_hook import after_import


def _record_torch(settings: Settings, module: ModuleType) -> None:
    from augury.capture.torch.recorder import start_recording

    start_recording(settings, module)


def _has_torch_trained(module: ModuleType) -> bool:
    from augury.capture.torch.recorder import has_trained

    return has_trained(module)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFramework:
    """One framework that can be recorded."""

    name: str
    trigger: str
    """Module whose import starts the recorder."""
    start: Callable[[Settings, ModuleType], None]
    has_trained: Callable[[ModuleType], bool]
    """Whether the process has trained already, as far as can be seen."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Defaults for variables that the framework reads."""

    @property
    def version(self) -> str:
        return str(getattr(sys.modules.get(self.name), "__version__", ""))


FRAMEWORKS = (
    RecordedFramework(
        name="torch",
        trigger="torch.optim.optimizer",
        start=_record_torch,
        has_trained=_has_torch_trained,
        # Otherwise torch's profiler reports its starts and stops on the job's stderr.
        environment={"KINETO_LOG_LEVEL": "99"},
    ),
)


def has_trained() -> bool:
    """Whether this process has trained already, with any framework."""
    return any(
        framework.has_trained(sys.modules[framework.trigger])
        for framework in FRAMEWORKS
        if framework.trigger in sys.modules
    )


def set_defaults(environment: MutableMapping[str, str]) -> None:
    """Adds the variables that the frameworks' recorders need, where the user has not set them."""
    for framework in FRAMEWORKS:
        for name, value in framework.environment.items():
            environment.setdefault(name, value)


def arrange(settings: Settings | None = None) -> None:
    """Arranges for this process to be recorded once it imports a framework. Without ``settings``,
    those of the launcher apply; without either, nothing is recorded."""
    settings = settings or Settings.from_environment()
    if settings is None:
        return
    if is_restarted():
        from augury.capture.launcher.run_folder import remove_earlier_start

        with suppress(OSError):
            remove_earlier_start(Path(settings.out))
    for framework in FRAMEWORKS:
        after_import(framework.trigger, partial(_start, settings, framework))


def _start(settings: Settings, framework: RecordedFramework, module: ModuleType) -> None:
    _warn_if_untested(framework)
    try:
        framework.start(settings, module)
    except Exception as error:
        print(f"augury: cannot record {framework.name}: {error}", file=sys.stderr)


def _warn_if_untested(framework: RecordedFramework) -> None:
    """Prints one line, in the first process of the job that imports the framework. Processes that
    it starts, and ranks other than 0, print nothing."""
    from augury.core.tested_versions import is_tested, tested_versions

    name, version = framework.name, framework.version
    variable = f"AUGURY_{name.upper()}_VERSION"
    is_printed = variable in os.environ or os.environ.get("RANK", "0") != "0"
    os.environ[variable] = version
    if version and not is_printed and not is_tested(name, version):
        print(
            f"augury: {name} {version} is not tested with this Augury, {tested_versions(name)}"
            " is: recording goes on",
            file=sys.stderr,
        )
