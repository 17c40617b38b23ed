"""The clock of a device behind that of its host: kernels seem to start before their launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.ledger import Ledger, Severity
from augury.core.units import format_ns
from augury.ingest.trace_builder import MutableEvents

EARLY_SHARE = 0.01
"""Share of kernels that may start before their launches for other reasons than the clock."""
MAX_BEHIND_NS = 1_000_000


def correct_device_clock(
    events: MutableEvents,
    is_on_device: NDArray[np.bool_],
    launched: NDArray[np.integer],
    launch_ns: I8,
    ledger: Ledger,
) -> None:
    """Moves all events of devices so that all but a few of the ``launched`` kernels start after
    their launches. Durations stay: a kernel that is only cut at its launch would lose its own."""
    if not len(launched):
        return
    behind_ns = -int(np.quantile(events.start_ns[launched] - launch_ns, EARLY_SHARE))
    if not 0 < behind_ns <= MAX_BEHIND_NS:
        return
    events.start_ns[is_on_device] += behind_ns
    events.arrival_ns[is_on_device] += behind_ns
    ledger.note(
        "device-clock-behind",
        "the clock of a device is behind its host's; its events are moved",
        severity=Severity.INFO,
        example=f"by {format_ns(behind_ns)}",
    )
