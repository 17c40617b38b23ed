"""Constants as they come out of the published figure: the default, where nothing better is known.

augury validate oracle --measured paradl_fig2.csv --fit paradl_fig2.csv --fit-model ResNet50
"""

from __future__ import annotations

from augury.oracle.fit_constants import Constants

PUBLISHED = Constants(
    compute_ratio=0.9631,
    filter_redundancy=1.462,
    channel_redundancy=0.7689,
    group_redundancy=0.9219,
    spatial_redundancy=0.3462,
    piece_s=4.552e-05,
    node_contention=0.3054,
    filter_contention=0.238,
    channel_contention=0.8532,
    gradient_contention=2.031,
    staging_s_per_byte=1.211e-09,
    crossing_s=0.02477,
    group_messages=0.8127,
    spatial_messages=1.023,
    memory_reuse=1.0,
    spread={
        "data": 0.04524,
        "filter": 0.06809,
        "channel": 0.1282,
        "data_filter": 0.1225,
        "data_spatial": 0.09426,
    },
    fitted_on="30 measurements of ResNet50 on abci",
)
