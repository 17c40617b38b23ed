"""``augury doctor`` checks this machine and this installation."""

from __future__ import annotations

import typer

from augury.cli.options import Json
from augury.cli.say import say


def doctor(json: Json = False) -> None:
    """Check this machine and this installation."""
    from augury.doctor import CheckStatus, check_all

    checks = check_all()
    is_ok = all(check.status is not CheckStatus.FAIL for check in checks)
    if json:
        from augury.report.as_json import encode_document

        print(encode_document(ok=is_ok, checks=[check.as_dict() for check in checks]))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(f"{check.status.value:<4}  {check.name:<{width}}  {check.found}")
            if check.remedy:
                say(f"{'':<{width + 8}}remedy: {check.remedy}")
    if not is_ok:
        raise typer.Exit(1)
