"""The runtime's log of recorded steps."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from augury.core.plan import piece_log
from augury.core.plan.piece_log import UNSEEN, PieceLog, PieceNotes
from augury.core.plan.plan_board import board
from augury.runtime.meter import Meter


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> PieceNotes:
    found = PieceNotes(groups=["7"])
    monkeypatch.setattr(board, "pieces", found)
    monkeypatch.setattr(board, "is_recording", True)
    return found


def step(meter: Meter) -> None:
    meter.begin(time.perf_counter_ns())
    arrived = meter.arrivals()
    if arrived is not None:
        meter.note_issue(0)
        arrived(0)
    meter.wait(0, lambda: None)


def told(notes: PieceNotes) -> dict[str, Any]:
    found = notes.told()
    assert found is not None
    return msgspec.to_builtins(found)


def test_recorded_steps_are_logged(notes: PieceNotes) -> None:
    meter = Meter(num_pieces=2, num_gradients=1, every=0, swapped_bytes=(8, 4))
    before_ns = time.time_ns()
    step(meter)
    (one,) = told(notes)["steps"]
    assert before_ns <= one["start_ns"] <= time.time_ns()
    assert told(notes)["orders"] == [[8, 4]]
    issued, arrived, begin, until = (
        one[name][0] for name in ("issued_ns", "arrived_ns", "waited_from_ns", "waited_until_ns")
    )
    assert one["watched_ns"] <= issued <= arrived <= begin <= until
    assert one["issued_ns"][1] == one["waited_until_ns"][1] == UNSEEN
    assert not meter.log  # it is not looked at for the sake of the plan


def test_other_steps_are_not_logged(notes: PieceNotes, monkeypatch: pytest.MonkeyPatch) -> None:
    step(Meter(num_pieces=2, num_gradients=1, every=0))  # collectives, which profilers see
    monkeypatch.setattr(board, "is_recording", False)
    meter = Meter(num_pieces=2, num_gradients=1, every=1, swapped_bytes=(8, 4))
    step(meter)
    assert not told(notes)["steps"]
    assert len(meter.log) == 1


def test_steps_of_dropped_windows_are_removed(notes: PieceNotes) -> None:
    meter = Meter(num_pieces=2, num_gradients=1, every=0, swapped_bytes=(8, 4))
    step(meter)
    between_ns = time.time_ns()
    step(meter)
    notes.forget(0, between_ns)
    assert len(told(notes)["steps"]) == 1
    assert told(notes)["steps"][0]["start_ns"] >= between_ns


def test_the_log_has_a_limited_size(notes: PieceNotes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_log, "MAX_LOGGED", 5)
    meter = Meter(num_pieces=2, num_gradients=1, every=0, swapped_bytes=(8, 4))
    for _ in range(4):
        step(meter)
    assert len(told(notes)["steps"]) == 2


def test_without_a_plan_nothing_is_reported() -> None:
    assert PieceNotes().told() is None
    assert PieceLog().steps == []
