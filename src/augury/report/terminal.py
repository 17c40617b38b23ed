"""A replay for the eyes: first where the time goes, then the details."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from augury.core.results.replay import PathSegment, RankResult, ReplayResult, ResourceResult, Share
from augury.core.units import format_bytes, format_ns, format_percent
from augury.report.console import BarRow, add_with_bars, columns, make_console, title
from augury.report.safe_text import safe, shorten
from augury.report.selection import (
    Alike,
    Stretch,
    alike,
    extreme_ranks,
    extreme_resources,
    heaviest,
    longest_step,
    shared_prefix,
    spans,
    stretches,
)

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_TOP = 10
_WAITED_FOR = {
    "start": "nothing",
    "data": "a result",
    "resource": "busy resource",
    "gang": "last rank",
    "slowed": "slowed",
}
_SEVERITY_STYLES = {"info": "dim", "warning": "yellow", "error": "red"}
_MAX_SHARES = 6
_MAX_HOLDERS = 4


def render(result: ReplayResult, file: TextIO, *, name: str, top: int = DEFAULT_TOP) -> None:
    """``top`` is how many lines each list may have."""
    console = make_console(file)
    with console.capture() as capture:
        _header(console, result, name)
        _summary(console, result)
        _path(console, result, top)
        _ranks(console, result, top)
        _resources(console, result, top)
        _memory(console, result)
        _ledger(console, result)
    # Columns are padded to the right; nobody wants that in a file or a paste.
    file.writelines(f"{line.rstrip(' ')}\n" for line in capture.get().splitlines())


def _header(console: Console, result: ReplayResult, name: str) -> None:
    from rich.text import Text

    counts = [_count(result.num_ranks, "rank")]
    if result.num_servers:
        counts.append(_count(result.num_servers, "server"))
    counts += [_count(result.num_ops, "operation"), _count(result.num_steps, "step")]
    line = Text(safe(name, max_chars=console.width), style="bold")
    line.append(f"  {', '.join(counts)}", style="not bold dim")
    console.print(line)
    line = Text("step  ")
    line.append(f"predicted {format_ns(result.predicted_step_ns)}", style="bold cyan")
    if result.interval_ns:
        low, high = result.interval_ns
        line.append(f" ({format_ns(low)} to {format_ns(high)})")
    if result.measured_step_ns is not None:
        line.append(f"   measured {format_ns(result.measured_step_ns)}", style="bold")
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
                name=_count(len(rest), "other"),
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
    console.print(f"on          {_listed(path.by_rank)}")
    named = [share for share in path.by_reason if share.name != "start"]
    if named:
        console.print(f"waited for  {_listed(named, _WAITED_FOR)}")


def _listed(shares: list[Share], words: dict[str, str] | None = None) -> str:
    words = words or {}
    notable = [share for share in shares if share.share_pct >= 0.5][:_MAX_SHARES]
    shown = [f"{words.get(s.name, s.name)} {s.share_pct:.0f} %" for s in notable]
    if len(shares) > len(notable):
        shown.append(_count(len(shares) - len(notable), "other"))
    return ", ".join(shown)


def _path(console: Console, result: ReplayResult, top: int) -> None:
    step = longest_step(result.critical_path)
    steps = {segment.step for segment in result.critical_path}
    part = [s for s in result.critical_path if s.step == step] if len(steps) > 1 else None
    found = stretches(result.critical_path if part is None else part)
    shown = heaviest(found, top)
    total = sum(s.dur_ns for s in found)
    notes = [] if part is None else [f"step {step}, {format_ns(total)}"]
    if len(shown) < len(found):
        notes.append(f"the {len(shown)} heaviest of {len(found):,} stretches")
    title(console, "Critical path", ", ".join(notes))
    is_slowed = any(stretch.slowed_ns for stretch in shown)
    headers = [">at", ">time", *([">slowed"] if is_slowed else []), ">rank", "kind", "~what (ops)"]
    table = columns(*headers, "waited for")
    kind_width = max((len(s.first.kind) for s in shown), default=0)
    why_width = max((len(_WAITED_FOR[s.reason]) for s in shown), default=0)
    room = max(16, console.width - 28 - kind_width - max(why_width, 10) - 8 * is_slowed)
    for stretch in shown:
        slowed = [f"{100 * stretch.slowed_ns / stretch.dur_ns:.0f} %"] if is_slowed else []
        table.add_row(
            format_ns(stretch.first.start_ns),
            format_ns(stretch.dur_ns),
            *slowed,
            str(stretch.first.rank),
            stretch.first.kind,
            _what(stretch, room),
            _WAITED_FOR[stretch.reason],
        )
    console.print(table)
    if len(shown) < len(found):
        rest = total - sum(s.dur_ns for s in shown)
        shorter = _count(len(found) - len(shown), "shorter stretch", "es")
        console.print(f"{shorter}: {format_ns(rest)}", style="dim")


def _what(stretch: Stretch, room: int) -> str:
    """Several operations go by their layers, which say more in less room: the kind is known."""
    if stretch.num_ops == 1:
        return safe(_name(stretch.first), max_chars=room)
    count = f" ({stretch.num_ops:,})"
    room -= len(count)
    has_layers = all(segment.layer for segment in stretch.segments)
    ends = [s.layer if has_layers else _name(s) for s in (stretch.first, stretch.last)]
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
    title(console, "Ranks", f"{left_out:,} between these are left out" if left_out else "")
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
    note = "busy, waiting for other ranks, idle"
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
    name = safe(use.name, max_chars=14)
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
    largest = ", ".join(
        f"{safe(holder.layer, max_chars=24)} {holder.kind} {format_bytes(holder.size_bytes)}"
        for holder in rank.peak_memory_holders[:_MAX_HOLDERS]
        if holder.layer
    )
    if largest:
        console.print(f"largest: {largest}")


def _ledger(console: Console, result: ReplayResult) -> None:
    from rich.text import Text

    if not result.ledger:
        return
    title(console, "Warnings")
    for anomaly in result.ledger:
        line = Text(f"{anomaly.severity.value:<9}", _SEVERITY_STYLES[anomaly.severity.value])
        line.append(f"{anomaly.count:,} x {safe(anomaly.name)}: {safe(anomaly.meaning)}", "none")
        if anomaly.example:
            line.append(f"\n         such as {safe(anomaly.example)}", style="dim")
        if anomaly.remedy:
            line.append(f"\n         remedy: {safe(anomaly.remedy)}", style="none")
        console.print(line)


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _time(value_ns: int | None) -> str:
    return "-" if value_ns is None else format_ns(value_ns)


def _error_style(error_pct: float) -> str:
    return "green" if abs(error_pct) <= 5 else "yellow" if abs(error_pct) <= 10 else "red"
