"""Registry of the strategies, in the order in which they are reported."""

from __future__ import annotations

from augury.core.errors import UsageError
from augury.oracle.strategies.data import Data
from augury.oracle.strategies.hybrid_split import HybridSplit
from augury.oracle.strategies.layer_split import CHANNEL, FILTER
from augury.oracle.strategies.pipeline import Pipeline
from augury.oracle.strategies.pure_split import PureSplit
from augury.oracle.strategies.tile_split import TILES
from augury.oracle.strategies.zero import Zero
from augury.oracle.strategy import Strategy

STRATEGIES: tuple[Strategy, ...] = (
    Data(),
    Zero(1),
    Zero(2),
    Zero(3),
    PureSplit(TILES, "spatial"),
    Pipeline(),
    PureSplit(FILTER, "filter"),
    PureSplit(CHANNEL, "channel"),
    HybridSplit(FILTER, "data_filter"),
    HybridSplit(TILES, "data_spatial"),
)

ALIASES = {
    "df": "data_filter",
    "ds": "data_spatial",
    "data+filter": "data_filter",
    "data+spatial": "data_spatial",
    "layer": "pipeline",
    "fsdp": "zero3",
}


def find_strategy(name: str) -> Strategy:
    wanted = name.strip().lower().replace("-", "_")
    wanted = ALIASES.get(wanted, wanted)
    for strategy in STRATEGIES:
        if strategy.name == wanted:
            return strategy
    known = ", ".join(strategy.name for strategy in STRATEGIES)
    raise UsageError(f"there is no strategy {name[:80]!r}", remedy=f"choose one of {known}")
