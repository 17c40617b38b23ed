"""Process groups of the runtime, separate from those of the program.

Gloo's groups have two threads each, so two collectives share the link; a group here has one thread
per lane. Torch has no option for it, only the class of the group does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d

_GATHER = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
_numbers = count(1)
"""Ranks create groups together, so a number means the same group on all of them."""


class ControlGroup:
    """All ranks of the job. It is created directly, not by ``new_group``, so it is not one of the
    program's groups and does not end with them. Only the main thread uses it. Calls return
    works."""

    def __init__(self, model: Any) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        store = distributed.PrefixStore(f"augury/{next(_numbers)}", default_store())
        kind = distributed_c10d.ProcessGroupGloo
        self._backend: Any = kind(store, self.rank, self.size, _options(1, _timeout(model)))
        self._summed = _summed()

    def all_reduce(self, tensor: Any) -> Any:
        return self._backend.allreduce([tensor], self._summed)

    def broadcast(self, tensor: Any) -> Any:
        """Broadcasts from rank 0."""
        return self._backend.broadcast([tensor], distributed.BroadcastOptions())

    def abandon(self) -> None:
        """Abandons the group while an operation is pending that will never complete."""
        _keep_for_ever(self._backend)


class PieceGroup:
    """Carries the pieces of plans; gloo's threads issue some of them. It is a group of torch, so
    that its profiler and the recorder see the pieces."""

    def __init__(self, model: Any, num_threads: int) -> None:
        """In DDP's own group broadcasts would queue behind gradients."""
        with _threads(num_threads):
            self._group: Any = distributed.new_group(backend="gloo", timeout=_timeout(model))
        self.rank, self.size = self._group.rank(), self._group.size()
        self.name = str(self._group.group_name)
        self._store = distributed.PrefixStore(f"augury/{next(_numbers)}", default_store())
        self._summed = _summed()

    def all_reduce(self, tensor: Any) -> Any:
        # The call behind distributed.all_reduce, at half the cost.
        return self._group.allreduce([tensor], self._summed)

    def all_to_all(self, received: Any, sent: Any) -> Any:
        return distributed.all_to_all_single(received, sent, group=self._group, async_op=True)

    def all_gather(self, gathered: Any, own: Any) -> Any:
        return _GATHER(gathered, own, group=self._group, async_op=True)

    def send(self, tensor: Any, to: int, tag: int) -> Any:
        return self._group.send([tensor], to, tag)

    def receive(self, tensor: Any, source: int, tag: int) -> Any:
        return self._group.recv([tensor], source, tag)

    def note_failure(self, reason: str) -> None:
        """Publishes a failure to all ranks before anything that is sent from now on arrives."""
        self._store.set("failed", reason)
        self._store.get("failed")  # returns only after the write above

    def failure(self) -> str | None:
        """Returns the failure that a rank has published."""
        if not self._store.check(["failed"]):
            return None
        return bytes(self._store.get("failed")).decode(errors="replace")

    def close(self, *, is_lost: bool) -> None:
        """Ends the group; ``is_lost``: a pending operation will never complete."""
        if is_lost:
            _keep_for_ever(self._group)
            return
        if distributed.is_initialized():
            with suppress(Exception):  # the program may have ended all groups
                distributed.destroy_process_group(self._group)


def _keep_for_ever(group: Any) -> None:
    """Leaks a group: gloo's destructor waits for pending operations and cannot be cancelled."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def default_store() -> Any:
    return distributed_c10d._get_default_store()


def _summed() -> Any:
    options = distributed.AllreduceOptions()
    options.reduceOp = distributed.ReduceOp.SUM
    return options


def _timeout(model: Any) -> Any:
    """Returns the timeout of the model's own group."""
    with suppress(Exception):
        return model.process_group._get_backend(torch.device("cpu")).options._timeout
    return None


def _options(num_threads: int, timeout: Any) -> Any:
    kind = distributed_c10d.ProcessGroupGloo
    options = kind._Options()
    options._threads = num_threads
    if timeout is not None:
        options._timeout = timeout
    # The devices that torch chooses where no options are given.
    names = os.environ.get("GLOO_SOCKET_IFNAME")
    options._devices = (
        [kind.create_device(interface=name) for name in names.split(",")]
        if names
        else [kind.create_default_device()]
    )
    return options


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Groups created inside the block have that many threads."""
    kind = distributed_c10d.ProcessGroupGloo

    class Threaded(kind):  # type: ignore[misc, valid-type]
        def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
            super().__init__(store, rank, size, _options(number, timeout))

    distributed_c10d.ProcessGroupGloo = Threaded
    try:
        yield
    finally:
        distributed_c10d.ProcessGroupGloo = kind
