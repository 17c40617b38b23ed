"""Being told of every backward of the program's: that it ended, and how.

Autograd's own callbacks come too early to set up a mode, for it takes back what they change in
the thread's state, and do not come at all when something fails. So the function that
``Tensor.backward`` calls is replaced, as long as a plan is followed.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import torch


class Told(Protocol):
    def before_backward(self) -> None: ...

    def after_backward(self) -> None: ...

    def failed_backward(self) -> None: ...


class TellOfBackward:
    """Of the outermost ones only: recomputation has some of its own."""

    def __init__(self, told: Told) -> None:
        self._is_on = True
        was = torch.autograd.backward

        @functools.wraps(was)
        def backward(*args: Any, **options: Any) -> None:
            if not self._is_on or torch._C._current_graph_task_id() != -1:
                was(*args, **options)
                return
            told.before_backward()
            try:
                was(*args, **options)
            except Exception:
                told.failed_backward()
                raise
            told.after_backward()

        self._was, self._new = was, backward
        torch.autograd.backward = backward

    def remove(self) -> None:
        """Where somebody else has wrapped it since, it only tells nothing any more."""
        self._is_on = False
        if torch.autograd.backward is self._new:
            torch.autograd.backward = self._was
