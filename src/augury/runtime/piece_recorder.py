"""Tells the recorder of this process which pieces travel where."""

from __future__ import annotations

from contextlib import suppress

from augury.core.plan.plan import CommunicationSection, is_swapped
from augury.core.plan.plan_board import board
from augury.runtime.meter import Meter
from augury.runtime.torch.groups import PieceGroup


def announce(meter: Meter, section: CommunicationSection, group: PieceGroup) -> None:
    """A plan is about to be followed, in that process group."""
    if is_swapped(section.order, group.size):
        meter.swapped_bytes = tuple(piece.size_bytes for piece in section.order.pieces)
    with suppress(Exception):  # a recording may do without
        board.pieces.add_group(group.name)
