"""Constants fitted to the published figure (the default), and lookup of constants by name.

Reproduced by ``augury validate oracle --measured paradl_fig2.csv --fit paradl_fig2.csv
--fit-model ResNet50``.
"""

from __future__ import annotations

from pathlib import Path

from augury.oracle.fitting.corrections import BARE, Constants, load_constants

PUBLISHED = Constants(
    compute_ratio=0.968,
    filter_redundancy=1.454,
    channel_redundancy=0.7644,
    group_redundancy=0.9156,
    spatial_redundancy=0.3427,
    piece_s=4.558e-05,
    node_contention=0.3048,
    filter_contention=0.2378,
    channel_contention=0.8533,
    gradient_contention=1.968,
    staging_s_per_byte=1.217e-09,
    crossing_s=0.02482,
    group_messages=0.8147,
    spatial_messages=1.023,
    memory_reuse=1.0,
    spread={
        "data": 0.04513,
        "filter": 0.06749,
        "channel": 0.1271,
        "data_filter": 0.122,
        "data_spatial": 0.09406,
    },
    unseen_spread=0.9532,
    beyond_spread=0.1496,
    max_devices={
        "data": 1024.0,
        "filter": 64.0,
        "channel": 64.0,
        "data_filter": 1024.0,
        "data_spatial": 1024.0,
    },
    layer_shares={
        "convolution": 0.7248,
        "elementwise": 0.1433,
        "linear": 0.00032,
        "normalisation": 0.1231,
        "pooling": 0.0084,
    },
    device="V100",
    cluster="abci",
    fitted_on="30 measurements of ResNet50 on abci",
)


def find_constants(name: str) -> Constants:
    """Returns the constants ``published`` or ``bare``, or loads a JSON file."""
    if name == "bare":
        return BARE
    return PUBLISHED if name == "published" else load_constants(Path(name))
