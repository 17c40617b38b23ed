"""Writes Horovod timelines as its timeline writer does, of a job with known times."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

EPOCH_US = 1_790_000_000_000_000


@dataclass
class TimelineWriter:
    """Every event replaces the closing bracket of the one before."""

    text: str = ""
    _tensors: dict[str, int] = field(default_factory=dict)

    def event(self, tensor: str, phase: str, at_us: float, name: str = "", args: str = "") -> None:
        if not self.text:
            self.text = (
                '[\n{"name": "process_name", "ph": "M", "pid": 0, "args":'
                f' {{"start_time_since_epoch_in_micros":{EPOCH_US}}}}},\n'
                '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
            )
        else:
            self.text = self.text[:-1] + ","
        if tensor not in self._tensors:
            number = self._tensors[tensor] = len(self._tensors) + 1
            self.text += (
                f'{{"name": "process_name", "ph": "M", "pid": {number}, "args":'
                f' {{"name": "{tensor}"}}}},\n'
                f'{{"name": "process_sort_index", "ph": "M", "pid": {number}, "args":'
                f' {{"sort_index": {number}}}}},\n'
            )
        named = "" if phase == "E" else f', "name": "{name}"'
        duration = ', "dur": 0' if phase == "X" else ""
        more = f', "args": {{{args}}}' if args else ""
        self.text += (
            f'{{"ph": "{phase}"{named}, "ts": {round(at_us)}, "pid": {self._tensors[tensor]}'
            f"{duration}{more}}}]"
        )

    def marker(self, at_us: float) -> None:
        self.text = self.text[:-1] + (
            f',{{"ph": "i", "name": "CYCLE_START", "ts": {round(at_us)}, "s": "g"}}]'
        )


@dataclass(kw_only=True)
class HorovodJob:
    """Each step computes, and then exchanges buffers of tensors that are ready one by one."""

    num_ranks: int = 4
    num_steps: int = 5
    buffers: tuple[tuple[int, ...], ...] = ((1 << 20, 2 << 20), (4 << 20,), (1 << 18,) * 3)
    """Elements of the tensors in each buffer."""
    forward_us: float = 40_000
    backward_us: float = 20_000
    """Time until the next buffer is ready."""
    exchange_us: float = 15_000
    update_us: float = 5_000
    broadcasts: int = 4
    seed: int = 0

    def write(self) -> tuple[str, list[float]]:
        """Returns the timeline and the end of each step's last communication."""
        rng, out, now = random.Random(self.seed), TimelineWriter(), 1_000.0
        for number in range(self.broadcasts):
            self._exchange(out, "BROADCAST", [(f"parameter.{number}", 1024)], now, now + 500, 800)
            now += 2_000
        ends = [now]
        for _ in range(self.num_steps):
            now = ends[-1] + self.update_us + self.forward_us * rng.uniform(0.9, 1.2)
            free = now
            for at, sizes in enumerate(self.buffers):
                now += self.backward_us * rng.uniform(0.8, 1.2)
                tensors = [(f"grad.{at}.{i}", size) for i, size in enumerate(sizes)]
                ready = max(now, free) + rng.uniform(100, 4_000)
                takes = self.exchange_us * rng.uniform(0.9, 1.1)
                free = self._exchange(out, "ALLREDUCE", tensors, now, ready, takes)
                out.marker(free)
            ends.append(free)
        return out.text, ends

    def _exchange(
        self,
        out: TimelineWriter,
        operation: str,
        tensors: list[tuple[str, int]],
        ready_us: float,
        agreed_us: float,
        takes_us: float,
    ) -> float:
        """Negotiates, copies, moves and copies back; returns the end."""
        is_fused = len(tensors) > 1
        for i, (tensor, _) in enumerate(tensors):
            out.event(tensor, "B", ready_us + i, f"NEGOTIATE_{operation}")
            for rank in range(self.num_ranks):
                late = (agreed_us - ready_us) * 0.9 * rank / self.num_ranks
                out.event(tensor, "X", ready_us + i + late, str(rank))
        for tensor, _ in tensors:
            out.event(tensor, "E", agreed_us)
        for i, (tensor, _) in enumerate(tensors):
            out.event(tensor, "B", agreed_us + 10 + i, operation)
        now = agreed_us + 20
        activities = [(f"GLOO_{operation}", takes_us)]
        if is_fused:
            activities = [
                ("MEMCPY_IN_FUSION_BUFFER", 300.0),
                *activities,
                ("MEMCPY_OUT_FUSION_BUFFER", 200.0),
            ]
        for name, dur_us in activities:
            for i, (tensor, _) in enumerate(tensors):
                out.event(tensor, "B", now + i, name)
            now += dur_us
            for i, (tensor, _) in enumerate(tensors):
                out.event(tensor, "E", now + i)
            now += len(tensors)
        for i, (tensor, size) in enumerate(tensors):
            out.event(tensor, "E", now + i, args=f'"dtype": "float32", "shape": "[{size}]"')
        return now
