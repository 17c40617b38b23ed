"""Renders a replay for the terminal: warnings, where the time goes, then the details."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.results.replay import PathSegment, RankResult, ReplayResult, ResourceResult, Share
from augury.core.units import format_bytes, format_count, format_ns, format_percent
from augury.report.console import BarRow, add_with_bars, columns, make_console, title
from augury.report.phrases import interval_words, print_notes, print_warnings
from augury.report.safe_text import safe, shorten
from augury.report.selection import (
    Alike,
    MergedSegment,
    alike,
    extreme_ranks,
    extreme_resources,
    longest,
    longest_step,
    merged_segments,
    shared_prefix,
    spans,
)

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_TOP = 10
_STARTED_AFTER = {
    "start": "start",
    "data": "earlier op",
    "resource": "busy resource",
    "gang": "last rank",
    "slowed": "slowed",
}
"""Event after which an operation of the critical path started, by its reason."""
_MAX_SHARES = 6
_MAX_HOLDERS = 4


def render(result: ReplayResult, file: TextIO, *, name: str, top: int = DEFAULT_TOP) -> None:
    """``top`` limits the lines of each list."""
    console = make_console(file)
    with console.capture() as capture:
        _header(console, result, name)
        print_warnings(console, result.ledger)
        _summary(console, result)
        _path(console, result, top)
        _ranks(console, result, top)
        _resources(console, result, top)
        _memory(console, result)
        print_notes(console, result.ledger)
    # Columns are padded to the right; files and pastes should not have the padding.
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _header(console: Console, result: ReplayResult, name: str) -> None:
    from rich.text import Text

    counts = [format_count(result.num_ranks, "rank")]
    if result.num_servers:
        counts.append(format_count(result.num_servers, "server"))
    counts += [format_count(result.num_ops, "operation"), format_count(result.num_steps, "step")]
    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(f"  {', '.join(counts)}", style="not bold dim")
    console.print(line)
    line = Text("step  ")
    line.append(f"predicted {format_ns(result.predicted_step_ns)}", style="bold cyan")
    if result.interval_ns:
        line.append(f"   {interval_words(result.interval_ns)}")
    if result.measured_step_ns is not None:
        line.append("\n      ")
        line.append(f"measured {format_ns(result.measured_step_ns)}", style="bold")
    if result.error_pct is not None:
        error = format_percent(result.error_pct, signed=True)
        line.append(f"   error {error}", style=_error_style(result.error_pct))
    if result.unexplained_pct is not None:
        line.append(f"   unexplained {format_percent(result.unexplained_pct)}")
    console.print(line)


def _summary(console: Console, result: ReplayResult) -> None:
    path = result.critical_path_summary
    title(console, "Where the time goes", f"critical path of {format_ns(path.dur_ns)}")
    table = columns("", ">", ">", "")
    shares = path.by_kind[:_MAX_SHARES]
    rest = path.by_kind[_MAX_SHARES:]
    if rest:
        shares.append(
            Share(
                name=format_count(len(rest), "other"),
                dur_ns=sum(s.dur_ns for s in rest),
                share_pct=sum(s.share_pct for s in rest),
                num_segments=0,
            )
        )
    rows: list[BarRow] = [
        ([s.name, format_ns(s.dur_ns), f"{s.share_pct:.0f} %"], [(s.share_pct, "cyan")], [])
        for s in shares
    ]
    add_with_bars(console, table, rows)
    console.print(table)
    console.print(f"on             {_listed(path.by_rank)}")
    named = [share for share in path.by_reason if share.name not in ("start", "slowed")]
    if named:
        console.print(f"started after  {_listed(named, _STARTED_AFTER)}")
    for share in path.by_reason:
        if share.name == "slowed":
            console.print(
                f"slowed         {share.share_pct:.0f} %, by shared links or interference"
            )


def _listed(shares: list[Share], words: dict[str, str] | None = None) -> str:
    words = words or {}
    notable = [share for share in shares if share.share_pct >= 0.5][:_MAX_SHARES]
    shown = [f"{words.get(s.name, s.name)} {s.share_pct:.0f} %" for s in notable]
    if len(shares) > len(notable):
        shown.append(format_count(len(shares) - len(notable), "other"))
    return ", ".join(shown)


def _path(console: Console, result: ReplayResult, top: int) -> None:
    step = longest_step(result.critical_path)
    steps = {segment.step for segment in result.critical_path}
    part = [s for s in result.critical_path if s.step == step] if len(steps) > 1 else None
    found = merged_segments(result.critical_path if part is None else part)
    shown = longest(found, top)
    total = sum(s.dur_ns for s in found)
    notes = [] if part is None else [f"step {step}, {format_ns(total)}"]
    if len(shown) < len(found):
        notes.append(f"the {len(shown)} longest of {len(found):,} segments")
    title(console, "Critical path", ", ".join(notes))
    is_slowed = any(segment.slowed_ns for segment in shown)
    headers = [">at", ">time", *([">slowed"] if is_slowed else []), ">rank", "kind", "~operations"]
    table = columns(*headers, "started after")
    kind_width = max((len(s.first.kind) for s in shown), default=0)
    why_width = max((len(_STARTED_AFTER[s.reason]) for s in shown), default=0)
    room = max(16, console.width - 28 - kind_width - max(why_width, 13) - 8 * is_slowed)
    for segment in shown:
        slowed = [f"{100 * segment.slowed_ns / segment.dur_ns:.0f} %"] if is_slowed else []
        table.add_row(
            format_ns(segment.first.start_ns),
            format_ns(segment.dur_ns),
            *slowed,
            str(segment.first.rank),
            segment.first.kind,
            _operations(segment, room),
            _STARTED_AFTER[segment.reason],
        )
    console.print(table)
    if len(shown) < len(found):
        rest = total - sum(s.dur_ns for s in shown)
        shorter = format_count(len(found) - len(shown), "shorter segment")
        console.print(f"{shorter}: {format_ns(rest)}", style="dim")


def _operations(merged: MergedSegment, room: int) -> str:
    """Several operations are named by their layers, which are shorter; the kind is in a column."""
    if merged.num_ops == 1:
        return safe(_name(merged.first), max_chars=room)
    count = f" ({merged.num_ops:,})"
    room -= len(count)
    has_layers = all(segment.layer for segment in merged.segments)
    ends = [s.layer if has_layers else _name(s) for s in (merged.first, merged.last)]
    first, last = ends
    if first == last:
        return safe(first, max_chars=room) + count
    last = last[shared_prefix(first, last) :]
    half = max(5, (room - 4) // 2)
    first, last = safe(first), safe(last)
    last = shorten(last, max(half, room - 4 - len(first)))
    return f"{shorten(first, max(half, room - 4 - len(last)))} .. {last}{count}"


def _name(segment: PathSegment) -> str:
    return segment.name or segment.layer or f"op {segment.op}"


def _ranks(console: Console, result: ReplayResult, top: int) -> None:
    has_hosts = any(rank.host for rank in result.ranks)
    has_measured = any(rank.measured_step_ns is not None for rank in result.ranks)
    groups = alike(result.ranks, lambda rank: tuple(_rank_figures(rank, has_measured)))
    shown = extreme_ranks(groups, top)
    left_out = len(result.ranks) - sum(len(group.members) for group in shown)
    title(console, "Ranks", f"{left_out:,} less extreme ones are left out" if left_out else "")
    headers = ["rank", "role", *(["~host"] if has_hosts else []), ">predicted"]
    headers += [">measured", ">error"] if has_measured else []
    table = columns(*headers, ">peak memory", "~")
    for group in shown:
        role, *figures = _rank_figures(group.first, has_measured)
        hosts = [_hosts(group)] if has_hosts else []
        name = spans(rank.rank for rank in group.members)
        table.add_row(name, role, *hosts, *figures, ", ".join(group.notes))
    console.print(table)


def _rank_figures(rank: RankResult, has_measured: bool) -> list[str]:
    error, peak = rank.error_pct, rank.peak_memory_bytes
    figures = [rank.role, _time(rank.predicted_step_ns)]
    if has_measured:
        figures.append(_time(rank.measured_step_ns))
        figures.append("-" if error is None else format_percent(error, signed=True))
    return [*figures, "-" if peak is None else format_bytes(peak)]


def _hosts(group: Alike[RankResult]) -> str:
    hosts = {rank.host for rank in group.members}
    return safe(group.first.host, max_chars=16) if len(hosts) == 1 else f"{len(hosts):,} hosts"


def _resources(console: Console, result: ReplayResult, top: int) -> None:
    used = [use for use in result.resources if use.num_ops]
    shown = extreme_resources(alike(used, lambda use: tuple(_use_figures(use))), top)
    if not shown:
        return
    left_out = len(used) - sum(len(group.members) for group in shown)
    note = "shares of the time: busy, waiting for other ranks, idle"
    title(console, "Resources", f"{note}; {left_out:,} left out" if left_out else note)
    table = columns("rank", "resource", "kind", ">ops", "", ">busy", ">waiting")
    rows: list[BarRow] = []
    for group in shown:
        use = group.first
        parts = [(use.busy_pct, "green"), (use.waiting_pct, "yellow"), (use.idle_pct, "dim")]
        name, kind, *figures = _use_figures(use)
        ranks = spans(member.rank for member in group.members if member.rank is not None)
        rows.append(([ranks or "-", name, kind, f"{use.num_ops:,}"], parts, figures))
    add_with_bars(console, table, rows)
    console.print(table)


def _use_figures(use: ResourceResult) -> list[str]:
    name = safe(use.name, max_chars=20)
    return [name, use.kind, f"{use.busy_pct:.0f} %", f"{use.waiting_pct:.0f} %"]


def _memory(console: Console, result: ReplayResult) -> None:
    known = [rank for rank in result.ranks if rank.peak_memory_bytes]
    if not known:
        return
    rank = max(known, key=lambda r: (r.peak_memory_bytes or 0, -r.rank))
    peak = max(1, rank.peak_memory_bytes or 0)
    when = f"{_time(rank.peak_memory_at_ns)} into the window"
    title(console, "Memory", f"rank {rank.rank} peaks at {format_bytes(peak)}, {when}")
    table = columns("", ">", ">", "")
    rows: list[BarRow] = [
        (
            [kind, format_bytes(size), f"{100 * size / peak:.0f} %"],
            [(100 * size / peak, "magenta")],
            [],
        )
        for kind, size in rank.peak_memory_by_kind.items()
    ]
    add_with_bars(console, table, rows)
    console.print(table)
    largest = [
        f"{safe(holder.layer, max_chars=32)} {holder.kind} {format_bytes(holder.size_bytes)}"
        for holder in rank.peak_memory_holders[:_MAX_HOLDERS]
        if holder.layer
    ]
    for row, text in enumerate(_lines(largest, console.width - 9)):
        console.print(f"{'' if row else 'largest:':<8} {text}")


def _lines(items: list[str], width: int) -> list[str]:
    """Joins items with commas into lines; an item is never broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def _time(value_ns: int | None) -> str:
    return "-" if value_ns is None else format_ns(value_ns)


def _error_style(error_pct: float) -> str:
    return "green" if abs(error_pct) <= 5 else "yellow" if abs(error_pct) <= 10 else "red"
