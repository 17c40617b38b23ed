"""Calls of torch.distributed from Python: time, kind, group, bytes.

All of them pass through methods of ProcessGroup, whichever function the program imported, so these
methods are replaced while a window is open. Calls from C++, such as those of DDP's reducer and of
functional collectives, are not seen.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

MAX_CALLS = 200_000
MAX_PENDING = 1_000
"""Most works that are tracked until the program waits for them: each keeps its tensors alive."""

KINDS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}


class CallRecorder:
    """Numbers collectives per group, and messages per group, sender and receiver, from the first
    window on: all ranks open it after the same step, so the numbers match."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._pending: dict[int, tuple[Any, list[Any]]] = {}
        self._replaced: list[tuple[type, str, Any]] = []

    def start(self) -> None:
        try:
            from torch._C._distributed_c10d import ProcessGroup, Work
        except ImportError:  # a torch built without torch.distributed
            return
        for method, kind in KINDS.items():
            self._replace(ProcessGroup, method, partial(self._noting, kind))
        self._replace(Work, "wait", self._noting_end)

    def stop(self) -> None:
        # The original class attributes: values read through the class would not bind to instances.
        for owner, method, was in self._replaced:
            setattr(owner, method, was)
        self._replaced.clear()
        self._pending.clear()

    def forget(self, begin_ns: int, end_ns: int) -> None:
        """Removes calls that began in this interval. The numbers of all others do not change."""
        self.calls[:] = [call for call in self.calls if not begin_ns <= call[0] < end_ns]

    def _replace(self, owner: type, method: str, by: Callable[[Any], Any]) -> None:
        was = vars(owner).get(method)
        if was is not None:
            self._replaced.append((owner, method, was))
            setattr(owner, method, by(getattr(owner, method)))

    def _noting(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(group: Any, *args: Any, **options: Any) -> Any:
            start_ns = time.time_ns()
            work = call(group, *args, **options)
            end_ns = time.time_ns()
            with suppress(Exception):  # the call was made, it is only not recorded
                self._note(start_ns, end_ns, kind, group, args, work)
            return work

        return noted

    def _note(
        self, start_ns: int, end_ns: int, kind: str, group: Any, args: tuple[Any, ...], work: Any
    ) -> None:
        if len(self.calls) >= MAX_CALLS:
            return
        name = group.group_name
        size_bytes = max((tensor_bytes(arg) for arg in args[:2]), default=0)
        peer = -1
        between: tuple[Any, ...] = (name,)
        if kind in ("send", "recv"):
            if len(args) > 2:  # tensors, rank in the group, tag
                peer = _global_rank(group, args[1])
            between = (name, kind, peer)
        elif kind in ("gather", "scatter") and size_bytes == tensor_bytes(args[:1]):
            size_bytes *= group.size()  # every rank but the root passes one part
        call = [start_ns, end_ns, kind, name, self._counts[between], size_bytes, peer, 0, 0]
        self._counts[between] += 1
        self.calls.append(call)
        if work is not None and len(self._pending) < MAX_PENDING:
            self._pending[id(work)] = work, call

    def _noting_end(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """A message ends when the program has waited for it. For a collective, only the time of
        the wait is added."""

        def noted(work: Any, *args: Any, **options: Any) -> Any:
            start_ns = time.time_ns()
            result = wait(work, *args, **options)
            pending = self._pending.pop(id(work), None)
            if pending is not None:
                call, end_ns = pending[1], time.time_ns()
                call[-2:] = start_ns, end_ns
                if call[2] in ("send", "recv"):
                    call[1] = end_ns
            return result

        return noted


def tensor_bytes(value: Any) -> int:
    """Returns the bytes of a tensor, or of all tensors in a (nested) list."""
    if isinstance(value, list | tuple):
        return sum(tensor_bytes(item) for item in value)
    return int(getattr(value, "nbytes", 0))


def _global_rank(group: Any, rank: int) -> int:
    from torch.distributed import get_global_rank

    return int(get_global_rank(group, rank))
