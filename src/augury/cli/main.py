"""The entry point of the command line, which turns errors into one message and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from augury.core.errors import AuguryError, DefectError, UsageError
from augury.core.files import DISK_IS_FULL

INTERRUPTED = 130
PIPE_CLOSED = 141
COMPLETION_VARIABLE = "_AUGURY_COMPLETE"
"""The completion script sets it; `augury --install-completion` writes that script."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code; errors of users and files are printed, not raised."""
    args = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except AuguryError as error:
        if isinstance(error, DefectError) and os.environ.get("AUGURY_TRACEBACK"):
            raise
        return _print_error(error, args)
    except KeyboardInterrupt:
        print("\naugury: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has gone; without this the interpreter prints an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except MemoryError:
        return _print_error(_out_of_memory(), args)
    except OSError as error:
        return _print_error(_system_error(error), args)
    except Exception as error:
        if os.environ.get("AUGURY_TRACEBACK"):
            raise
        return _print_error(_unexpected(error), args)


def _prepare_streams() -> None:
    # A stream that was closed when Python started is None.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not end the program.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> int:
    import typer

    from augury.cli.app import make_command

    # The name of the base class of typer's usage errors differs between versions.
    click_error: type[Exception] = typer.BadParameter.__mro__[2]
    command = make_command(args)
    if COMPLETION_VARIABLE in os.environ:
        command.main(args=args, prog_name="augury")  # prints completions and exits
    try:
        # command.main() would turn interrupts and closed pipes into exit codes of its own.
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
        "out of memory",
        remedy="record fewer steps or ranks, or use a larger machine",
    )


def _system_error(error: OSError) -> AuguryError:
    where = f" ({os.fspath(error.filename)!r})" if error.filename is not None else ""
    is_full = error.errno in DISK_IS_FULL
    return AuguryError(
        f"the operating system reports: {error.strerror or error}{where}",
        remedy="free some space there" if is_full else "check permissions",
    )


def _unexpected(error: Exception) -> AuguryError:
    return AuguryError(
        f"unexpected {type(error).__name__}: {error}",
        remedy="this is a defect of Augury; AUGURY_TRACEBACK=1 shows where",
    )


def _print_error(error: AuguryError, args: list[str]) -> int:
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
