"""One stride of the recording windows for all ranks: rank 0 says how far apart they are."""

from __future__ import annotations

from augury.capture.rank_record import own_rank
from augury.capture.rendezvous.rendezvous import PATIENCE_S, meet

_SERVICE = "windows/stride"


def agree_on_stride(own: int) -> int | None:
    """To be called by all ranks at the end of the same step. ``own`` is this rank's choice, which
    counts at rank 0. None where ranks cannot agree: windows that only some of them open would be
    of no use."""
    meeting = meet()
    if meeting is None:
        return own if own_rank()[1] == 1 else None
    if meeting.host is not None:
        meeting.host.offer(_SERVICE, lambda call, _rank: call.send_message(stride=own))
        meeting.host.wait_for(_SERVICE, patience_s=PATIENCE_S)
        return own
    with meeting.call(_SERVICE) as call:
        return int(call.receive_message()["stride"])
