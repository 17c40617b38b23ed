"""The numbers are part of the file format."""

from __future__ import annotations

from enum import IntEnum

import pytest

from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind, Role
from augury.core.timeline import Reason


@pytest.mark.parametrize("kinds", [OpKind, ResourceKind, Discipline, Role, MemoryKind, Reason])
def test_numbers_fit_their_byte(kinds: type[IntEnum]):
    assert all(0 <= kind < 256 for kind in kinds)


@pytest.mark.parametrize("kinds", [OpKind, ResourceKind, Role, MemoryKind, Reason])
def test_labels_are_what_people_read(kinds: type[IntEnum]):
    labels = [kind.label for kind in kinds]
    assert labels == [kind.name.lower() for kind in kinds]
    assert len(set(labels)) == len(labels)


def test_numbers_have_not_moved():
    assert (OpKind.FORWARD, OpKind.ALL_REDUCE, OpKind.PULL, OpKind.UNEXPLAINED) == (1, 16, 26, 50)
    assert (ResourceKind.COMPUTE, ResourceKind.SERVER) == (1, 6)
    assert (Discipline.FIFO, Role.SERVER, MemoryKind.WORKSPACE) == (1, 1, 6)


def test_communication_is_what_runs_between_ranks():
    communication = {kind for kind in OpKind if kind.is_communication}
    assert {OpKind.ALL_REDUCE, OpKind.BARRIER, OpKind.SEND, OpKind.PUSH} <= communication
    assert not communication & {OpKind.FORWARD, OpKind.SERVER_SUM, OpKind.MARK, OpKind.SYNC}
