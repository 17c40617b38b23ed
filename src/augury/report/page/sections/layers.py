"""The time of each layer by kind of work."""

from __future__ import annotations

from augury.core.run_page import RunPage
from augury.report.page.tables import (
    Column,
    Section,
    TableContent,
    TableView,
    bytes_cell,
    count_cell,
    longest_of,
    name_cell,
    ns_cell,
    stacked,
    table_section,
)


def layer_section(page: RunPage) -> Section | None:
    layers = page.breakdown.layers
    if not layers:
        return None
    rows = []
    kinds = ("forward", "backward", "update", "other", "communication")
    totals = [sum(getattr(one, f"{kind}_ns") for kind in kinds) for one in layers]
    used = [kind for kind in kinds if any(getattr(one, f"{kind}_ns") for one in layers)]
    sizes = any(one.size_bytes for one in layers)
    for one, total_ns in zip(layers, totals, strict=True):
        parts = [(kind, getattr(one, f"{kind}_ns")) for kind in used]
        rows.append(
            [
                name_cell(one.layer),
                ns_cell(total_ns),
                *(ns_cell(value) for _, value in parts),
                stacked(parts, max(totals)),
                ns_cell(one.critical_ns),
                *([bytes_cell(one.size_bytes)] if sizes else []),
                count_cell(one.num_ranks),
            ]
        )
    table = TableView(
        id="layer-table",
        caption="Time of each layer",
        columns=[
            Column("layer"),
            Column("total", is_number=True),
            *(Column(kind, is_number=True) for kind in used),
            Column("share", is_bar=True),
            Column("on critical path", is_number=True),
            *([Column("communicated", is_number=True)] if sizes else []),
            Column("ranks", is_number=True),
        ],
        rows=rows,
        note=longest_of(len(rows), page.breakdown.num_layers, "layers"),
    )
    return table_section(
        "layers",
        "Layers",
        TableContent(
            about="Replayed time per step, as the mean over the ranks that have the layer. Work"
            " that the recording assigns to no layer is not listed.",
            table=table,
            key=[(kind, kind) for kind in used],
        ),
    )
