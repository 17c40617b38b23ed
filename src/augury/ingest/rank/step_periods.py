"""Finds the steps of a trace without annotations: periods of its sequence of operations.

An operation that occurs once in each step divides the sequence into parts that contain the same
operations. An operation of a loop within the step does not: the parts that contain the rest of the
step differ from the others. The division with the most similar parts is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8

MIN_SIMILARITY = 0.75
"""Mean share of operations that a part has in common with the typical part."""
MIN_TAIL_SIMILARITY = 0.9
"""Share from which the operations after the last occurrence of the marker are a whole step."""
MIN_COVERED = 0.5
"""Share of all operations that the periods contain."""
TIE = 0.04
"""Difference in similarity that is ignored in favour of more periods."""
MIN_KINDS = 3
"""Number of different operations in a step: fewer, repeated, are a loop within one."""
MAX_PERIODS = 10_000
MAX_CANDIDATES = 64
_COUNTER = re.compile(r"\d+\Z")


def step_periods(names: Iterable[str], start_ns: I8, end_ns: I8) -> list[tuple[int, int]]:
    """Returns start and end of each whole step, from operations in order of their starts; none if
    the sequence does not repeat."""
    tokens = _tokens(names)
    marks, tail = _divide(tokens)
    if not len(marks):
        return []
    bounds = start_ns[marks].tolist()
    if tail:
        bounds.append(int(end_ns[marks[-1] :].max()))
    return [(begin, end) for begin, end in pairwise(bounds) if end > begin]


def _tokens(names: Iterable[str]) -> NDArray[np.int64]:
    """Returns a number for each name. Numbers at the end of a name, which may count steps, do not
    tell names apart."""
    numbers: dict[str, int] = {}
    plain: dict[str, int] = {}
    found = []
    for name in names:
        if name not in numbers:
            numbers[name] = plain.setdefault(_COUNTER.sub("", name), len(plain))
        found.append(numbers[name])
    return np.array(found, dtype=np.int64)


def _divide(tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """Returns the places of the marker, and whether a whole step follows the last one."""
    nothing = np.zeros(0, dtype=np.int64)
    counts = np.bincount(tokens)
    if len(tokens) < 4 or len(counts) < MIN_KINDS:
        return nothing, False
    first = np.full(len(counts), len(tokens))
    np.minimum.at(first, tokens, np.arange(len(tokens)))
    found: list[tuple[float, NDArray[np.int64], bool]] = []
    for count in _candidate_counts(counts):
        # Of the operations that occur equally often, the first one begins the step.
        marker = int(np.flatnonzero(counts == count)[np.argmin(first[counts == count])])
        places = np.flatnonzero(tokens == marker)
        similarity, has_tail = _similarity(tokens, places, len(counts))
        covered = (len(tokens) if has_tail else int(places[-1])) - int(places[0])
        if similarity < MIN_SIMILARITY or covered < MIN_COVERED * len(tokens):
            continue
        if count > 2 or has_tail:
            found.append((similarity, places, has_tail))
    best = max((similarity for similarity, _, _ in found), default=0.0)
    # Parts of several steps are at least as similar as those of one.
    alike = [one for one in found if one[0] >= best - TIE]
    _, places, has_tail = max(alike, key=lambda one: len(one[1]), default=(0.0, nothing, False))
    return places, has_tail


def _candidate_counts(counts: NDArray[np.int64]) -> list[int]:
    """Returns numbers of occurrences that several operations have in common, the most common
    first: a step has many operations that occur once in it."""
    values, weights = np.unique(counts[(counts >= 2) & (counts <= MAX_PERIODS)], return_counts=True)
    order = np.argsort(-weights, kind="stable")[:MAX_CANDIDATES]
    return [int(value) for value in values[order]]


def _similarity(
    tokens: NDArray[np.int64], places: NDArray[np.int64], num_tokens: int
) -> tuple[float, bool]:
    """Returns how similar the parts between marks are, and whether the rest after the last mark is
    a part like them. Only one part compares with nothing: then the rest is compared with it."""
    part = np.searchsorted(places, np.arange(len(tokens)), side="right") - 1
    inside = part >= 0
    histogram = np.zeros((len(places), num_tokens))
    np.add.at(histogram, (part[inside], tokens[inside]), 1)
    whole, rest = histogram[:-1], histogram[-1]
    typical = np.median(whole, axis=0)
    tail = _overlap(rest, typical)
    if len(whole) == 1:
        return (tail, tail >= MIN_TAIL_SIMILARITY)
    overlaps = [_overlap(own, typical) for own in whole]
    # Long parts count more: the part around a loop is the longest, and unlike the others.
    return float(np.average(overlaps, weights=whole.sum(axis=1))), tail >= MIN_TAIL_SIMILARITY


def _overlap(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    union = np.maximum(one, other).sum()
    return float(np.minimum(one, other).sum() / union) if union else 0.0
