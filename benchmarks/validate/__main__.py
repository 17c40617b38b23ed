"""``make validate``: runs the suites, prints the table, writes ``build/validate.json``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.validate.checks import Check
from benchmarks.validate.gates import broken
from benchmarks.validate.oracle_suite import ORACLE
from benchmarks.validate.policy_suite import SCHEDULE
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.suite import Suite, chosen, record_all
from benchmarks.validate.table import show
from benchmarks.validate.torch_suite import TORCH
from benchmarks.validate.wire_suite import WIRE

SUITES = {suite.name: suite for suite in (TORCH, WIRE, SCHEDULE, ORACLE)}
BUILD = Path("build")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Of one suite or of all of them together."""

    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def main() -> int:
    options = parse()
    suites = list(SUITES.values()) if options.suite == "all" else [SUITES[options.suite]]
    if options.list:
        for suite in suites:
            print("\n".join(setting.name for setting in chosen(suite.settings, options.only)))
        return 0
    begin = time.monotonic()
    whole = Outcome()
    for suite in suites:
        found = run(suite, options)
        whole.rows += found.rows
        whole.checks += found.checks
        whole.summary[suite.name] = found.summary
        whole.broken += found.broken
        whole.troubles += found.troubles
        if not options.json and not options.record_only:
            show(found.rows, found.checks, found.summary)
    document = {
        "schema_version": 1,
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "took_s": round(time.monotonic() - begin, 1),
        "rows": [row.as_json() for row in whole.rows],
        "checks": [check.as_json() for check in whole.checks],
        "summary": whole.summary,
        "broken_gates": whole.broken,
        "troubles": whole.troubles,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    if options.json:
        print(json.dumps(document))
    for line in (*whole.broken, *whole.troubles):
        print(line, file=sys.stderr)
    return 1 if whole.troubles else 5 if whole.broken else 0


def run(suite: Suite, options: argparse.Namespace) -> Outcome:
    folder = options.folder / suite.name
    settings = chosen(suite.settings, options.only)
    outcome = Outcome()
    if not options.predict_only:
        outcome.troubles = record_all(suite, settings, folder)
    if options.record_only:
        return outcome
    outcome.rows = list(suite.rows(settings, folder, options.only))
    outcome.checks = list(
        suite.checks(outcome.rows, folder, options.only, not options.predict_only)
    )
    outcome.summary = summarize(outcome.rows)
    outcome.broken = [
        f"{suite.name}: {words}"
        for words in broken(outcome.rows, outcome.checks, outcome.summary, suite.gates)
    ]
    return outcome


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
