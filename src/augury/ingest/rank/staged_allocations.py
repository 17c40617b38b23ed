"""Allocations of one rank of an import, in a temporary file until all ranks are matched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from augury.core.columns import I4
from augury.core.enums import Phase
from augury.core.files import new_file
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Allocations, Clock
from augury.ingest.clocks.rank_clocks import to_common
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.trace_builder import MutableEvents


@dataclass(frozen=True, kw_only=True)
class StagedAllocations:
    """Allocations on the rank's own clock, with its own numbers."""

    file: Path
    """Missing if there are none."""
    num_rows: int

    @classmethod
    def store(cls, file: Path, table: Allocations) -> Self:
        """Writes the table to the new ``file``."""
        if len(table):
            with new_file(file) as out:
                for _, values in table.columns():
                    out.write(values.tobytes())
        return cls(file=file, num_rows=len(table))

    def finished(
        self, rank: int, clock: Clock, *, string: I4, stream: I4, first_row: int
    ) -> Allocations:
        """Returns the allocations on the common clock, with numbers of the whole trace: ``string``
        and ``stream`` have them by numbers of the rank. The first allocation will be row
        ``first_row``. Removes the file."""
        own = self._load()
        return Allocations(
            **dict(own.columns())
            | {
                "rank": np.full(self.num_rows, rank),
                "at_ns": to_common(clock, own.at_ns),
                "pair": np.where(own.pair == NONE, NONE, own.pair + first_row),
                "stream": stream[own.stream],
                "name": string[own.name],
                "layer": string[own.layer],
            }
        )

    def _load(self) -> Allocations:
        if not self.num_rows:
            return Allocations.empty()
        columns: dict[str, Any] = {}
        with self.file.open("rb") as file:
            for name, dtype in Allocations.schema():
                columns[name] = np.fromfile(file, dtype=dtype, count=self.num_rows)
        self.file.unlink()
        return Allocations(**columns)


def allocations_of(trace: KinetoTrace, events: MutableEvents) -> Allocations:
    """Ties each allocation to the operation around it. Between operations it belongs to the phase
    of the one before. The rank is not known yet."""
    own, around, before = trace.allocations, trace.around_allocation, trace.before_allocation
    is_inside, has_phase = around != NONE, np.maximum(around, before) != NONE
    first = np.searchsorted(trace.thread, own.thread)
    place = np.where(is_inside, around, before)
    return Allocations(
        rank=np.full(len(own), NONE),
        at_ns=own.at_ns,
        change_bytes=own.change_bytes,
        allocated_bytes=own.allocated_bytes,
        reserved_bytes=own.reserved_bytes,
        pair=own.pair,
        stream=np.where(own.thread == NONE, NONE, events.stream[first]),
        name=np.where(is_inside, events.name[around], NONE),
        phase=np.where(has_phase, events.phase[place], Phase.NONE),
        layer=np.where(is_inside, events.layer[around], NONE),
    )
