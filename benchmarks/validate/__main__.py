"""``make validate``: runs the suites, prints the table, writes ``build/validate.json``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.validate import torch_suite
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import broken
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.table import show

SUITES = ("torch",)
BUILD = Path("build")


def main() -> int:
    options = parse()
    begin = time.monotonic()
    folder = options.folder / "torch"
    settings = torch_suite.chosen(options.only)
    if options.list:
        print("\n".join(setting.name for setting in settings))
        return 0
    troubles = [] if options.predict_only else torch_suite.record_all(settings, folder)
    rows: list[Row] = []
    checks: list[Check] = []
    if not options.record_only:
        rows = list(torch_suite.rows(settings, folder, options.only))
        checks = list(
            torch_suite.checks(rows, folder, options.only, again=not options.predict_only)
        )
    summary = summarize(rows)
    failed = broken(rows, checks, summary)
    document = {
        "schema_version": 1,
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "took_s": round(time.monotonic() - begin, 1),
        "rows": [row.as_json() for row in rows],
        "checks": [check.as_json() for check in checks],
        "summary": {"torch": summary},
        "broken_gates": failed,
        "troubles": troubles,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    if options.json:
        print(json.dumps(document))
    elif not options.record_only:
        show(rows, checks, summary)
    for line in (*failed, *troubles):
        print(line, file=sys.stderr)
    return 1 if troubles else 5 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make validate", description=__doc__)
    parser.add_argument("--suite", choices=("all", *SUITES), default="all")
    parser.add_argument("--only", metavar="PATTERN", help="cases such as 'conv-*' or '*/bucket-1'")
    parser.add_argument("--predict-only", action="store_true", help="from the runs saved before")
    parser.add_argument("--record-only", action="store_true", help="measure and save, no more")
    parser.add_argument("--list", action="store_true", help="name the settings and end")
    parser.add_argument("--json", action="store_true", help="the document instead of the table")
    parser.add_argument("--folder", type=Path, default=BUILD / "validate", help="of saved runs")
    parser.add_argument("--out", type=Path, default=BUILD / "validate.json")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
