"""Makes a failing program smaller, field by field, as long as it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from tests.runtime.fuzz.campaign import Campaign
from tests.runtime.fuzz.program import Program, Step, text_of

STANDSTILL_S = 15.0
KEPT = ("seed", "num_ranks", "kind", "name", "number")
KEPT_BY_MANY = (*KEPT, "dtype")
"""With more than two ranks, results are compared in float64."""


def shrink(program: Program) -> int:
    campaign = Campaign(STANDSTILL_S)
    try:
        first = campaign.run(program)
        if first.is_fine:
            print("it does not fail")
            return 0
        why, tried = first, {program}
        while smaller := _first_untried(program, tried):
            result = campaign.run(smaller)
            # What stock DDP cannot do is another failure.
            if not result.is_fine and not _is_stock(result):
                program, why = smaller, result
                print(f"{len(program.steps)} steps, {len(program.blocks)} blocks", flush=True)
    finally:
        campaign.end()
    print(text_of(program))
    print(why.hung, *why.differences, sep="\n")
    for rank, report in enumerate(why.reports):
        print(f"rank {rank} said: {report.get('said', '')}")
    return 5


def _first_untried(program: Program, tried: set[Program]) -> Program | None:
    for smaller in smaller_programs(program):
        if smaller not in tried:
            tried.add(smaller)
            return smaller
    return None


def _is_stock(result: Any) -> bool:
    return any(report.get("stock_error") for report in result.reports) or "stock, " in result.hung


def smaller_programs(program: Program) -> Iterator[Program]:
    """Each differs in one thing; large changes come first."""
    if len(program.blocks) > 1:
        yield replace(program, blocks=program.blocks[:1])
    for count in (len(program.steps) // 2, 1):
        for start in range(0, len(program.steps), max(1, count)):
            steps = program.steps[:start] + program.steps[start + count :]
            if steps and count:
                yield replace(program, steps=steps)
    for number, step in enumerate(program.steps):
        if step != Step():
            plain = (*program.steps[:number], Step(), *program.steps[number + 1 :])
            yield replace(program, steps=plain)
    yield from _simpler(program, KEPT if program.num_ranks == 2 else KEPT_BY_MANY)


def _simpler(value: Any, kept: tuple[str, ...]) -> Iterator[Any]:
    """A dataclass with a field at its default, or with a simpler field."""
    for one in fields(value):
        now = getattr(value, one.name)
        if one.name in kept:
            continue
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        if default is not MISSING and now != default:
            yield replace(value, **{one.name: default})
        if isinstance(now, tuple):
            for number, item in enumerate(now):
                if one.name not in ("plans", "steps"):
                    yield replace(value, **{one.name: now[:number] + now[number + 1 :]})
                if is_dataclass(item):
                    for simpler in _simpler(item, kept):
                        changed = (*now[:number], simpler, *now[number + 1 :])
                        yield replace(value, **{one.name: changed})
        elif is_dataclass(now):
            for simpler in _simpler(now, kept):
                yield replace(value, **{one.name: simpler})
