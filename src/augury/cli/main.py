"""The entry point: finds the verb, and turns whatever goes wrong into one message and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from augury.core.errors import AuguryError, UsageError
from augury.core.files import DISK_IS_FULL

INTERRUPTED = 130
PIPE_CLOSED = 141
COMPLETION_VARIABLE = "_AUGURY_COMPLETE"
"""Set by the shell's completion script, which `augury --install-completion` writes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code; never raises for what a user or a file did."""
    args = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except AuguryError as error:
        return _tell(error, args)
    except KeyboardInterrupt:
        print("\naugury: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; without this the interpreter complains once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except MemoryError:
        return _tell(_out_of_memory(), args)
    except OSError as error:
        return _tell(_refused(error), args)
    except Exception as error:
        if os.environ.get("AUGURY_TRACEBACK"):
            raise
        return _tell(_unexpected(error), args)


def _prepare_streams() -> None:
    # Started with a stream closed, Python has None there.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks must not end the program.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> int:
    import typer

    from augury.cli.app import make_command

    # typer's name for all that it finds wrong with a command line differs between versions.
    click_error: type[Exception] = typer.BadParameter.__mro__[2]
    command = make_command(args)
    if COMPLETION_VARIABLE in os.environ:
        command.main(args=args, prog_name="augury")  # prints completions, and exits
    try:
        # Not command.main(): that one turns interrupts and closed pipes into codes of its own.
        with command.make_context("augury", args) as context:
            command.invoke(context)
    except typer.Exit as ending:
        return ending.exit_code
    except click_error as error:
        raise _usage(error) from error
    return 0


def _usage(error: BaseException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "augury"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return UsageError(message, remedy=f"see `{path} --help`")


def _out_of_memory() -> AuguryError:
    return AuguryError(
        "the machine's memory does not suffice",
        remedy="record fewer steps or ranks, or use a larger machine",
    )


def _refused(error: OSError) -> AuguryError:
    where = f" ({os.fspath(error.filename)!r})" if error.filename is not None else ""
    is_full = error.errno in DISK_IS_FULL
    return AuguryError(
        f"the system refused: {error.strerror or error}{where}",
        remedy="make space there" if is_full else "check permissions",
    )


def _unexpected(error: Exception) -> AuguryError:
    return AuguryError(
        f"unexpected {type(error).__name__}: {error}",
        remedy="this is a defect of Augury; AUGURY_TRACEBACK=1 shows where",
    )


def _tell(error: AuguryError, args: list[str]) -> int:
    from augury.report.safe_text import safe

    print(f"augury: error: {safe(error.cause, max_chars=2000)}", file=sys.stderr)
    if error.remedy:
        print(f"  remedy: {safe(error.remedy, max_chars=2000)}", file=sys.stderr)
    if "--json" in args:
        print(_as_json(error))
    return error.exit_code


def _as_json(error: AuguryError) -> str:
    from augury.report.as_json import encode_document, fields_of

    return encode_document(
        **fields_of(error.result),
        error={"cause": error.cause, "remedy": error.remedy, "exit_code": error.exit_code},
    )
