"""``make validate``: runs the suites, prints the table, updates ``build/validate.json``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.validate.document import Document, Outcome
from benchmarks.validate.progress import Progress
from benchmarks.validate.revision import Revision, current_revision
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.suite import Suite, chosen, record_all
from benchmarks.validate.suites import SUITES
from benchmarks.validate.table import show

BUILD = Path("build")
SUITE_MINUTES = 45.0
QUICK_MINUTES = 15.0


def main(
    words: Sequence[str] | None = None,
    suites: Sequence[Suite] = SUITES,
    revision: Revision | None = None,
) -> int:
    options = parse(words, suites)
    revision = revision or current_revision()
    if options.suite != "all":
        suites = [suite for suite in suites if suite.name == options.suite]
    if options.list:
        for suite in suites:
            cases = chosen(suite.settings, pattern_of(suite, options))
            print("\n".join(setting.name for setting in cases))
        return 0
    document = Document.read(options.out)
    deadline_s = time.monotonic() + 60 * (options.minutes or QUICK_MINUTES)
    exit_code = 0
    for suite in suites:
        if not options.quick:
            deadline_s = time.monotonic() + 60 * (options.minutes or SUITE_MINUTES)
        outcome = run(suite, options, revision, deadline_s)
        for line in outcome.troubles:
            print(line, file=sys.stderr)
        exit_code = 1 if outcome.troubles else exit_code
        if options.record_only:
            continue
        if not options.json:
            show(outcome.rows, outcome.checks, summarize(outcome.rows))
        for line in outcome.broken:
            print(line, file=sys.stderr)
        exit_code = exit_code or (5 if outcome.broken else 0)
        document.replace(outcome)
        document.write(options.out)
    if options.json:
        print(json.dumps(document.as_json()))
    return exit_code


def pattern_of(suite: Suite, options: argparse.Namespace) -> str | None:
    """Returns the pattern of the requested cases."""
    if options.quick:
        return ",".join(suite.quick)
    only: str | None = options.only
    return only


def run(
    suite: Suite, options: argparse.Namespace, revision: Revision, deadline_s: float
) -> Outcome:
    only = pattern_of(suite, options)
    settings = chosen(suite.settings, only)
    folder = options.folder / suite.name
    progress = Progress(
        folder=folder,
        revision=revision,
        can_measure=not options.predict_only,
        deadline_s=deadline_s,
    )
    troubles: list[str] = []
    if options.fresh:
        progress.forget(setting.name for setting in settings)
    if not options.predict_only:
        troubles = record_all(suite, settings, progress)
    rows: list[Row] = []
    checks = []
    if not options.record_only:
        rows = [stamped(row, progress, suite) for row in suite.rows(settings, folder, only)]
        checks = [
            check
            if check.commit is not None
            else replace(check, commit=revision.commit, is_dirty=revision.is_dirty)
            for check in suite.checks(rows, only, progress)
        ]
    if progress.postponed:
        left = ", ".join(progress.postponed)
        troubles.append(f"no time left for {left}: run the same command again to continue")
    return Outcome(
        suite=suite,
        only=only,
        rows=rows,
        checks=checks,
        troubles=[f"{suite.name}: {words}" for words in troubles],
        took_s=progress.took_s(setting.name for setting in settings),
    )


def stamped(row: Row, progress: Progress, suite: Suite) -> Row:
    """Adds the commits that measured and predicted to a row."""
    measured = progress.revision_of(row.case.partition("/")[0])
    predicted = measured if suite.predicts_in_job else progress.revision
    return replace(
        row,
        commit=predicted.commit,
        is_dirty=predicted.is_dirty,
        measured_commit=measured.commit,
    )


def parse(words: Sequence[str] | None, suites: Sequence[Suite]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make validate", description=__doc__)
    parser.add_argument(
        "--suite", choices=("all", *(suite.name for suite in suites)), default="all"
    )
    parser.add_argument(
        "--only", metavar="PATTERNS", help="cases such as 'conv-*' or '*/bucket-1,last-*'"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one case per capability, in 15 minutes in all"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure again cases that are done at this commit"
    )
    parser.add_argument(
        "--minutes", type=float, help="start no case after this many minutes (45 per suite)"
    )
    parser.add_argument("--predict-only", action="store_true", help="predict from saved runs")
    parser.add_argument("--record-only", action="store_true", help="measure and save only")
    parser.add_argument("--list", action="store_true", help="list the settings and exit")
    parser.add_argument(
        "--json", action="store_true", help="print the document instead of the table"
    )
    parser.add_argument(
        "--folder", type=Path, default=BUILD / "validate", help="folder of saved runs"
    )
    parser.add_argument("--out", type=Path, help="build/validate.json, or validate-quick.json")
    options = parser.parse_args(words)
    if options.quick and options.only:
        parser.error("--quick chooses the cases: --only cannot")
    if options.out is None:
        options.out = BUILD / ("validate-quick.json" if options.quick else "validate.json")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
