"""The process group that carries the pieces, in their order, as many at once as the plan says.

Gloo's groups work with two threads each, so that two collectives share the link: what is needed
now would go at half its speed beside what is needed later. Torch offers no option for it, only
the group's own class takes one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d


def own_group(model: Any, num_threads: int) -> Any:
    """Of the same ranks as the model's, and as patient; DDP's own would make its broadcasts queue
    behind gradients."""
    timeout = None
    with suppress(Exception):
        backend = model.process_group._get_backend(torch.device("cpu"))
        timeout = backend.options._timeout
    with _threads(num_threads):
        return distributed.new_group(backend="gloo", timeout=timeout)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Groups made meanwhile have that many."""
    kind = distributed_c10d.ProcessGroupGloo

    class Threaded(kind):  # type: ignore[misc, valid-type]
        def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
            options = kind._Options()
            options._threads = number
            options._timeout = timeout
            # As torch chooses them where no options are given.
            names = os.environ.get("GLOO_SOCKET_IFNAME")
            options._devices = (
                [kind.create_device(interface=name) for name in names.split(",")]
                if names
                else [kind.create_default_device()]
            )
            super().__init__(store, rank, size, options)

    distributed_c10d.ProcessGroupGloo = Threaded
    try:
        yield
    finally:
        distributed_c10d.ProcessGroupGloo = kind
