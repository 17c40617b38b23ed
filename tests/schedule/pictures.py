"""Timelines for ``docs/scheduling.md``: ``python -m tests.schedule.pictures`` draws them anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from augury.core.enums import OpKind
from augury.core.plan.plan import Order
from augury.core.plan.problem import Gradient, Network, Problem
from augury.schedule.evaluate import Outcome, evaluate
from augury.schedule.lower_bound import lower_bound
from augury.schedule.policies.policy import Policy
from augury.schedule.policies.registry import POLICIES

DOCUMENT = Path(__file__).parents[2] / "docs/scheduling.md"
MS = 1_000_000
COLUMN_NS = 2 * MS
ROWS = {
    OpKind.ALL_REDUCE: "all-reduce",
    OpKind.REDUCE_SCATTER: "scatter",
    OpKind.ALL_GATHER: "gather",
}

EXAMPLE = Problem(
    gradients=tuple(
        Gradient(
            name=f"layer{place}",
            size_bytes=megabytes * 1_000_000,
            release_ns=release_ms * MS,
            need_ns=4 * place * MS,
        )
        for place, (megabytes, release_ms) in enumerate(
            [(2, 48), (6, 48), (8, 32), (12, 32), (16, 16), (20, 16)]
        )
    ),
    backward_ns=48 * MS,
    forward_ns=24 * MS,
    network=Network(ns_per_byte=1.0, overhead_ns=MS // 20),
)
"""Six layers of 64 MB, three bursts 16 ms apart, 1 GB/s and 0.05 ms for every message,
all-reduced."""


def picture(policy: Policy, problem: Problem = EXAMPLE) -> str:
    """A character is 2 ms: which gradient is on the link then, which layer computes; ``[`` is
    where a message starts that is longer than two characters, ``.`` is waiting."""
    order = policy.compile(problem)
    outcome = evaluate(problem, order)
    width = -(-outcome.step_ns // COLUMN_NS)
    lines = [_line("backward", _backward(problem))]
    for op in sorted({piece.op for piece in order.pieces}, key=list(ROWS).index):
        lines.append(_line(ROWS[op], _link(order, outcome, op, width)))
    lines.append(_line("forward", _forward(problem, order, outcome)))
    lines.append(
        f"{policy.name}: {len(order.pieces)} messages, step {outcome.step_ns / MS:.1f} ms,"
        f" waiting {outcome.waiting_ns / MS:.1f} ms"
    )
    return "\n".join(lines)


def _line(name: str, content: str) -> str:
    return f"{name:<11}{content}".rstrip()


def _at(column: int) -> int:
    """Time at the middle of a character."""
    return column * COLUMN_NS + COLUMN_NS // 2


def _backward(problem: Problem) -> str:
    releases = sorted({gradient.release_ns for gradient in problem.gradients})
    content = ""
    for begin_ns, end_ns in zip([0, *releases], releases, strict=False):
        made = [
            str(place)
            for place, gradient in enumerate(problem.gradients)
            if gradient.release_ns == end_ns
        ]
        each = (end_ns - begin_ns) // COLUMN_NS // len(made)
        content += "".join(digit * each for digit in reversed(made))
    return content


def _link(order: Order, outcome: Outcome, op: OpKind, width: int) -> str:
    content = [" "] * width
    for nth, piece in enumerate(order.pieces):
        if piece.op is not op:
            continue
        start_ns, end_ns = int(outcome.start_ns[nth]), int(outcome.end_ns[nth])
        columns = [column for column in range(width) if start_ns <= _at(column) < end_ns]
        for column in columns:
            done_bytes = piece.size_bytes * (_at(column) - start_ns) / (end_ns - start_ns)
            for part in piece.slices:
                done_bytes -= part.size_bytes
                if done_bytes < 0:
                    content[column] = str(part.gradient)
                    break
        if len(columns) > 2:
            content[columns[0]] = "["
    return "".join(content)


def _forward(problem: Problem, order: Order, outcome: Outcome) -> str:
    needs_ns = [gradient.need_ns for gradient in problem.gradients]
    now_ns = problem.backward_ns
    if order.has_barrier:
        now_ns = outcome.step_ns - problem.forward_ns
    content = " " * (problem.backward_ns // COLUMN_NS)
    for place, begin_ns in enumerate(needs_ns):
        now_ns = max(now_ns, int(outcome.arrived_ns[place]))
        content += "." * (-(-now_ns // COLUMN_NS) - len(content))
        end_ns = needs_ns[place + 1] if place + 1 < len(needs_ns) else problem.forward_ns
        now_ns += end_ns - begin_ns
        content += str(place) * (-(-now_ns // COLUMN_NS) - len(content))
    return content


def illustrated(document: str, policies: Sequence[Policy]) -> str:
    """Returns the document with pictures of the present orders of these policies."""
    for policy in policies:
        heading = re.escape(f"### `{policy.name}`\n")
        document, count = re.subn(
            rf"({heading}[^#]*?```\n).*?(\n```)",
            lambda found, policy=policy: found[1] + picture(policy) + found[2],
            document,
            flags=re.DOTALL,
        )
        assert count == 1, policy.name
    bound_ms = lower_bound(EXAMPLE) / MS
    return re.sub(r"(faster than )[\d.]+( ms)", rf"\g<1>{bound_ms:.1f}\2", document)


if __name__ == "__main__":
    DOCUMENT.write_text(illustrated(DOCUMENT.read_text("utf-8"), POLICIES), "utf-8")
