"""Every kind of order."""

from __future__ import annotations

from tests.runtime.trainings import (
    compare,
    train,
)


def urgent_slices() -> None:
    compare(train)


def urgent_slices_behind_a_barrier() -> None:
    compare(train, plan={"has_barrier": True})


def whole_gradients() -> None:
    compare(train, plan={"kind": "release"})


def whole_gradients_behind_a_barrier() -> None:
    compare(train, plan={"kind": "release", "has_barrier": True})


def halves() -> None:
    compare(train, plan={"kind": "halves"})


def halves_behind_a_barrier() -> None:
    compare(train, plan={"kind": "halves", "has_barrier": True})


def slices_of_odd_sizes() -> None:
    compare(train, plan={"slice_bytes": 104})


def bytes_of_one_slice() -> None:
    compare(train, plan={"slice_bytes": 1 << 20})
