"""Runtime overhead of following an order, compared with stock DDP."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import HALF_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOverhead:
    """Time of the main thread in Python, measured with one core per rank and caches full of layers
    rather than the interpreter."""

    per_gradient_ns: int = 20_000
    """Time of the hook that assigns a gradient to its pieces, without the copy."""
    per_piece_ns: int = 100_000
    """Time to send a piece, wait for it, and call the optimizer once more."""
    half_message_bytes: int | None = HALF_MESSAGE_BYTES
    """Size of messages of reduce-scatters and all-gathers; None means whole pieces."""

    def messages(self, size_bytes: int) -> list[int]:
        """Returns the sizes of the messages of one reduce-scatter or all-gather."""
        if self.half_message_bytes is None:
            return [size_bytes]
        whole, rest = divmod(size_bytes, self.half_message_bytes)
        return [self.half_message_bytes] * whole + ([rest] if rest else [])


NO_OVERHEAD = RuntimeOverhead(per_gradient_ns=0, per_piece_ns=0, half_message_bytes=None)
"""Overhead of stock DDP."""
