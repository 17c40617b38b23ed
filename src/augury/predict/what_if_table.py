"""The table of usual changes to a run, each predicted by replay."""

from __future__ import annotations

from typing import Any

from augury.core.errors import AuguryError
from augury.core.results.breakdown import WhatIfRow
from augury.predict.opened_run import OpenedRun
from augury.predict.replays import Engine
from augury.predict.whatif import parse_changes, predict_change

USUAL_CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("communication hidden behind compute", "--perfect-overlap", {"perfect_overlap": True}),
    ("no stragglers", "--no-straggler", {"no_straggler": True}),
    ("twice the bandwidth", "--bandwidth 2x", {"bandwidth": "2x"}),
    ("half the bandwidth", "--bandwidth 0.5x", {"bandwidth": "0.5x"}),
    ("half the latency", "--latency 0.5x", {"latency": "0.5x"}),
    ("compute twice as fast", "--compute-scale 0.5", {"compute_scale": "0.5"}),
)
"""In words, as options of ``augury whatif``, and as arguments of ``parse_changes``."""


def what_if_table(run: OpenedRun, *, engine: Engine = "auto") -> tuple[WhatIfRow, ...]:
    """Predicts the usual changes; one that a run does not admit states why."""
    return tuple(_row(run, *change, engine=engine) for change in USUAL_CHANGES)


def _row(
    run: OpenedRun, words: str, option: str, named: dict[str, Any], *, engine: Engine
) -> WhatIfRow:
    try:
        result = predict_change(run, parse_changes(**named), engine=engine).result
    except AuguryError as error:
        return WhatIfRow(change=words, option=option, trouble=str(error))
    return WhatIfRow(
        change=words,
        option=option,
        predicted_step_ns=result.predicted_step_ns,
        interval_ns=result.interval_ns,
        gain_pct=result.gain_pct,
    )
