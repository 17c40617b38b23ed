"""The what-if table: the predicted step after usual changes."""

from __future__ import annotations

from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableContent,
    TableView,
    interval_cell,
    ns_cell,
    single_bar,
    table_section,
)
from augury.report.phrases import gain_words
from augury.report.safe_text import safe


def what_if_section(page: RunPage) -> Section | None:
    if not page.what_ifs:
        return None
    now_ns = page.replay.predicted_step_ns
    longest = max([now_ns, *(one.predicted_step_ns or 0 for one in page.what_ifs)], default=1)
    rows = [
        [
            Cell("as recorded"),
            ns_cell(now_ns),
            Cell(""),
            Cell(""),
            single_bar(now_ns, longest, "total"),
            Cell(""),
        ]
    ]
    for one in page.what_ifs:
        if one.predicted_step_ns is None:
            trouble = Cell(f"cannot be predicted: {safe(one.trouble or '')}")
            rows.append(
                [
                    Cell(one.change),
                    Cell("", -1),
                    Cell("", -1e9),
                    trouble,
                    Cell(""),
                    Cell(one.option),
                ]
            )
            continue
        gain = one.gain_pct or 0.0
        rows.append(
            [
                Cell(one.change),
                ns_cell(one.predicted_step_ns),
                Cell(gain_words(gain), gain),
                interval_cell(one.interval_ns),
                single_bar(one.predicted_step_ns, longest, "after" if gain >= 0 else "added"),
                Cell(one.option),
            ]
        )
    table = TableView(
        id="what-if-table",
        caption="Predicted step after usual changes",
        columns=[
            Column("change"),
            Column("step", is_number=True),
            Column("gain", is_number=True),
            Column("90 % interval", is_short=True),
            Column("", is_bar=True),
            Column("option of augury whatif"),
        ],
        rows=rows,
    )
    about = "Each change alone, predicted by replay. `augury whatif` predicts others."
    return table_section(
        "what-if", "What if", TableContent(about=about.replace("`", ""), table=table)
    )
