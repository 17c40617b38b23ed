"""How a run was measured: ranks, hosts, clocks, steps, and the time that is not explained."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.run_page import RunPage
from augury.core.trace.trace import Trace
from augury.core.units import format_count, format_ns, format_percent
from augury.report.page.tables import (
    Cell,
    Column,
    Section,
    TableView,
    count_cell,
    name_cell,
    ns_cell,
)
from augury.report.phrases import interval_words
from augury.report.safe_text import safe
from augury.report.selection import spans


@dataclass(frozen=True, kw_only=True)
class Measurement:
    facts: list[tuple[str, str]]
    clocks: TableView | None


def measurement_section(page: RunPage) -> Section:
    facts = _replay_facts(page)
    clocks = None
    if page.trace is not None:
        facts = [*_trace_facts(page.trace), *facts]
        clocks = _clocks(page.trace)
    return Section(
        id="measurement",
        title="How it was measured",
        template="measurement.html",
        content=Measurement(facts=facts, clocks=clocks),
        tables=[clocks] if clocks else [],
    )


def _trace_facts(trace: Trace) -> list[tuple[str, str]]:
    frameworks = sorted({one.framework for one in trace.ranks if one.framework})
    hosts = {one.host for one in trace.ranks}
    command = next((one.command for one in trace.ranks if one.command), [])
    facts = [
        ("Ranks", f"{len(trace.ranks):,} of {trace.world_size:,} recorded"),
        ("Hosts", format_count(len(hosts), "host")),
        ("Events", f"{len(trace.events):,}"),
    ]
    numbers = [one.rank for one in trace.ranks]
    if numbers != list(range(len(numbers))):
        facts.append(("Recorded ranks", f"{spans(numbers)}; this page numbers them from 0"))
    if frameworks:
        facts.append(("Framework", safe(", ".join(frameworks))))
    if command:
        facts.append(("Command", safe(" ".join(command), max_chars=300)))
    troubles = [one for one in trace.ranks if one.trouble]
    if troubles:
        facts.append(
            (
                "Trouble",
                f"rank {troubles[0].rank}: {safe(troubles[0].trouble or '')}"
                + (f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""),
            )
        )
    if trace.calibration:
        facts.append(
            ("Network", format_count(len(trace.calibration), "calibration", "calibrations"))
        )
    return facts


def _replay_facts(page: RunPage) -> list[tuple[str, str]]:
    replay, measured = page.replay, page.measured
    facts = []
    if measured is not None:
        words = (
            f"{format_ns(measured.step_ns)}, median of {format_count(measured.num_steps, 'step')},"
            f" {interval_words((measured.low_ns, measured.high_ns))}"
        )
        facts.append(("Measured step", words))
        facts.append(("Drift within the run", format_percent(measured.drift_pct)))
        if measured.delay_pct is not None:
            facts.append(("Threads without a core", format_percent(measured.delay_pct)))
        if measured.other_load is not None:
            facts.append(("Cores used by others", f"{measured.other_load:.1f}"))
    if replay.unexplained_pct is not None:
        facts.append(("Unexplained time", format_percent(replay.unexplained_pct)))
    steps = sorted(set(page.timeline.graph.ops.step.tolist()) - {-1})
    if steps:
        facts.append(("Replayed steps", spans(steps)))
    facts.append(
        (
            "Replay",
            f"{format_count(replay.num_ops, 'operation')}, {replay.num_simulated_ops:,} simulated",
        )
    )
    return facts


def _clocks(trace: Trace) -> TableView:
    return TableView(
        id="clock-table",
        caption="Clocks of the ranks",
        columns=[
            Column("rank", is_number=True),
            Column("host"),
            Column("aligned by"),
            Column("offset", is_number=True),
            Column("error", is_number=True),
        ],
        rows=[
            [
                count_cell(one.rank),
                name_cell(one.host),
                Cell(safe(one.clock.source)),
                ns_cell(one.clock.offset_ns),
                ns_cell(one.clock.residual_ns),
            ]
            for one in trace.ranks[:4_096]
        ],
        shown=8,
    )
