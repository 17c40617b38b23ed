"""What following an order takes besides what the order says: stock DDP's C++ has no part of it."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import HALF_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOverhead:
    """On the main thread, in Python, measured where a rank has one core to itself and its caches
    hold layers rather than the interpreter."""

    per_gradient_ns: int = 20_000
    """Told of it, and putting it into its pieces, without the copy."""
    per_piece_ns: int = 100_000
    """Sending, waiting, and another call of the optimizer."""
    half_message_bytes: int | None = HALF_MESSAGE_BYTES
    """Exchanges in halves go in messages of this size."""

    def messages(self, size_bytes: int) -> list[int]:
        """In which a half goes."""
        if self.half_message_bytes is None:
            return [size_bytes]
        whole, rest = divmod(size_bytes, self.half_message_bytes)
        return [self.half_message_bytes] * whole + ([rest] if rest else [])


NO_OVERHEAD = RuntimeOverhead(per_gradient_ns=0, per_piece_ns=0, half_message_bytes=None)
"""Of stock DDP."""
