"""``augury doctor``: is everything there that Augury needs here?"""

from __future__ import annotations

import sys

import typer

from augury.cli.options import Json


def doctor(json: Json = False) -> None:
    """Check this machine and this installation."""
    from augury.cli.graphs import import_numpy
    from augury.cli.health import Status, examine

    import_numpy()
    checks = examine()
    is_ok = all(check.status is not Status.FAIL for check in checks)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(ok=is_ok, checks=checks))
    else:
        from augury.report.console import columns, make_console
        from augury.report.safe_text import safe

        console = make_console(sys.stdout)
        table = columns("", "what", "found")
        styles = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}
        for check in checks:
            from rich.text import Text

            table.add_row(
                Text(check.status.value, styles[check.status]), check.name, safe(check.found)
            )
            if check.remedy:
                table.add_row("", "", Text(f"remedy: {check.remedy}", "dim"))
        console.print(table)
    if not is_ok:
        raise typer.Exit(1)
