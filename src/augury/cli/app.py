"""The list of verbs, and the command made from them."""

from __future__ import annotations

from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer

VERBS = (
    "run", "import", "replay", "whatif", "diagnose", "schedule", "optimize",
    "oracle", "validate", "wire", "diff", "report", "synth", "demo", "doctor",
)  # fmt: skip
"""A verb is the function of that name in the module of that name, with `import_` for `import`."""

_HELP = "Record, replay, explain and speed up distributed neural-network training."
_EPILOG = "Start with `augury demo`."


_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def make_command(args: list[str]) -> Any:
    """Returns typer's command, whose class depends on typer's version. If ``args`` begin with a
    verb, only that one is included, which halves the start-up time."""
    from typer.main import get_command

    app = typer.Typer(
        help=_HELP,
        epilog=_EPILOG,
        context_settings=_HELP_OPTIONS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_options)
    for verb in [args[0]] if args and args[0] in VERBS else VERBS:
        name = f"{verb}_" if iskeyword(verb) else verb
        home = import_module(f"augury.cli.{name}")
        settings = {**_HELP_OPTIONS, **getattr(home, "CONTEXT_SETTINGS", {})}
        app.command(verb, context_settings=settings)(getattr(home, name))
    return get_command(app)


def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from augury import __version__

        print(f"augury {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)
