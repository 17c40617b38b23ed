"""All passes, by name."""

from __future__ import annotations

from typing import Any

from augury.core.errors import UsageError
from augury.passes.bandwidth import BANDWIDTH, LINK_BANDWIDTH
from augury.passes.buckets import BUCKETS
from augury.passes.communication_order import COMMUNICATION_ORDER
from augury.passes.compute_scale import COMPUTE_SCALE
from augury.passes.expand_collectives import EXPAND_COLLECTIVES
from augury.passes.latency import LATENCY
from augury.passes.no_stragglers import NO_STRAGGLERS
from augury.passes.perfect_overlap import PERFECT_OVERLAP
from augury.passes.protocol import Pass
from augury.passes.ranks import CHANGE_RANKS
from augury.passes.removals.balanced_ranks import BALANCED_RANKS
from augury.passes.removals.even_servers import EVEN_SERVERS, FREE_SERVERS
from augury.passes.removals.fast_host import FAST_HOST
from augury.passes.removals.free_communication import FREE_COMMUNICATION
from augury.passes.removals.independent_ranks import INDEPENDENT_RANKS
from augury.passes.removals.level_links import LEVEL_LINKS
from augury.passes.removals.level_ranks import LEVEL_RANKS
from augury.passes.removals.no_gaps import NO_GAPS
from augury.passes.removals.no_input_wait import NO_INPUT_WAIT
from augury.passes.removals.no_pauses import NO_PAUSES
from augury.passes.removals.no_synchronization import NO_SYNCHRONIZATION

PASSES: tuple[Pass[Any], ...] = (
    CHANGE_RANKS,
    BUCKETS,
    COMMUNICATION_ORDER,
    BANDWIDTH,
    LINK_BANDWIDTH,
    LEVEL_LINKS,
    LATENCY,
    NO_PAUSES,
    NO_INPUT_WAIT,
    NO_GAPS,
    NO_STRAGGLERS,
    LEVEL_RANKS,
    BALANCED_RANKS,
    EVEN_SERVERS,
    FREE_SERVERS,
    COMPUTE_SCALE,
    PERFECT_OVERLAP,
    FREE_COMMUNICATION,
    INDEPENDENT_RANKS,
    NO_SYNCHRONIZATION,
    FAST_HOST,
    EXPAND_COLLECTIVES,
)
"""In the order in which they are applied together: ranks before the buckets chosen for them,
collectives expanded last."""


def find_pass(name: str) -> Pass[Any]:
    """Returns the pass of this name."""
    for one in PASSES:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in PASSES)
    raise UsageError(f"there is no pass {name!r}", remedy=f"choose one of {known}")
