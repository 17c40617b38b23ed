"""Being told of every backward of the program's: that it ended, and how.

Autograd's own callbacks come too early to set up a mode, for it takes back what they change in
the thread's state, and do not come at all when something fails. So the functions that programs
call are replaced, as long as a plan is followed. Both of them: where the program has a mode of
its own, ``Tensor.backward`` is a call that the mode has taken itself off for.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import torch

_PLACES = ((torch.Tensor, "backward"), (torch.autograd, "backward"))


class Told(Protocol):
    def before_backward(self) -> None: ...

    def after_backward(self) -> None: ...

    def failed_backward(self) -> None: ...


class TellOfBackward:
    """Of the outermost calls only: recomputation has some of its own."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._is_on = True
        self._is_inside = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for owner, name in _PLACES:
            was = getattr(owner, name)
            new = self._telling(was)
            setattr(owner, name, new)
            self._replaced.append((owner, name, was, new))

    def _telling(self, was: Any) -> Any:
        @functools.wraps(was)
        def backward(*args: Any, **options: Any) -> Any:
            if not self._is_on or self._is_inside or torch._C._current_graph_task_id() != -1:
                return was(*args, **options)
            self._is_inside = True
            self._told.before_backward()
            try:
                result = was(*args, **options)
            except BaseException:  # an interrupt as well
                self._told.failed_backward()
                raise
            finally:
                self._is_inside = False
            self._told.after_backward()
            return result

        return backward

    def remove(self) -> None:
        """Where somebody else has wrapped them since, they only tell nothing any more."""
        self._is_on = False
        for owner, name, was, new in self._replaced:
            if getattr(owner, name) is new:
                setattr(owner, name, was)
