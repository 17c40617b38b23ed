"""When a program waited for its own communication: events of the main thread, each named by the
group and sequence of what it waited for."""

from __future__ import annotations

import numpy as np

from augury.core.enums import OpKind, StreamKind
from augury.core.graph.graph import NONE
from augury.ingest.rank.recorded_rank import RecordedRank
from augury.ingest.rank.steps import step_at
from augury.ingest.trace_builder import Draft, Workshop


def draft_waits(rank: RecordedRank, workshop: Workshop) -> None:
    """After communication has been numbered."""
    waited = [
        (item, item.call)
        for item in rank.collectives
        if item.call is not None
        and item.call.waited_until_ns > item.call.waited_from_ns
        and rank.drafts[item.window].sequence[item.row] != NONE
    ]
    if not waited:
        return
    start = np.array([call.waited_from_ns for _, call in waited], dtype=np.int64)
    end = np.array([call.waited_until_ns for _, call in waited], dtype=np.int64)
    draft = Draft.blank(start, end - start)
    draft.kind[:] = OpKind.SYNC
    draft.name[:] = workshop.strings.number("wait")
    draft.stream[:] = workshop.stream(rank.record.rank, StreamKind.MAIN_THREAD, "main thread")
    draft.step[:] = step_at(rank.record, start)
    for row, (item, _) in enumerate(waited):
        own = rank.drafts[item.window]
        draft.group[row], draft.sequence[row] = own.group[item.row], own.sequence[item.row]
    rank.drafts.append(draft)
