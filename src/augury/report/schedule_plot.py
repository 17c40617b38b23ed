"""Plots of release and transfer of gradients as SVG."""

from __future__ import annotations

from collections.abc import Iterator

from augury.core.results.schedule import Curve, PieceResult, PolicyResult, ScheduleResult
from augury.core.units import format_bytes, format_ns
from augury.report import svg

WIDTH, LEFT, RIGHT, TOP = 960, 74, 150, 46
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = 420
ROW = 14
MAX_ROWS = 400
RELEASED = "#000000"


def stepwise_svg(result: ScheduleResult) -> str:
    """Plots the bytes that backward has released and those that have arrived, for each policy."""
    end_ns = max([one.evaluated_step_ns for one in result.policies] + [1])
    lines = [
        _curve(result.released, result.size_bytes, end_ns, RELEASED, width=2.5),
        *(
            _curve(one.transferred, result.size_bytes, end_ns, svg.colour(i))
            for i, one in enumerate(result.policies)
        ),
    ]
    legend = [("released", RELEASED)] + [
        (one.policy, svg.colour(i)) for i, one in enumerate(result.policies)
    ]
    ends = [_ending(one, end_ns, svg.colour(i)) for i, one in enumerate(result.policies)]
    body = [*_axes(end_ns, HEIGHT), *_levels(result.size_bytes), *_phases(result, end_ns, HEIGHT)]
    body += [*lines, *ends, *_legend(legend)]
    return _document("Gradients released and arrived", body, HEIGHT + TOP + 50)


def pieces_svg(result: ScheduleResult, policy: str) -> str:
    """Plots one row per piece: its release by backward, its transfer, and when a forward without
    waiting needs it."""
    pieces = result.pieces[:MAX_ROWS]
    height = max(ROW * len(pieces), 4 * ROW)
    latest = [max(piece.arrive_ns, piece.need_ns) for piece in pieces]
    end_ns = max([*latest, result.backward_ns, 1])
    body = [*_axes(end_ns, height), *_phases(result, end_ns, height)]
    for row, piece in enumerate(pieces):
        body += _piece(piece, TOP + row * ROW, end_ns)
    body += _legend(
        [("released", RELEASED), ("transfer", svg.PALETTE[0]), ("needed", svg.PALETTE[1])]
    )
    title = f"Pieces of {policy}"
    if len(result.pieces) > MAX_ROWS:
        title += f": the first {MAX_ROWS} of {len(result.pieces)}"
    return _document(title, body, height + TOP + 50)


def _piece(piece: PieceResult, y: int, end_ns: int) -> Iterator[str]:
    middle = y + ROW / 2
    x = _x(piece.start_ns, end_ns)
    width = max(1.0, _x(piece.end_ns, end_ns) - x)
    tail = _x(piece.arrive_ns, end_ns)
    about = (
        f"{piece.op}, {format_bytes(piece.size_bytes)} in {piece.num_slices} slices from"
        f" {piece.first_gradient}: {format_ns(piece.start_ns)} to {format_ns(piece.arrive_ns)}"
    )
    yield (
        f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}"'
        f' fill="{svg.PALETTE[0]}"><title>{svg.text(about)}</title></rect>'
    )
    yield svg.label(LEFT - 6, y + ROW - 3, format_bytes(piece.size_bytes), anchor="end")
    yield svg.line(x + width, middle, tail, middle, svg.PALETTE[0])
    released = _x(piece.release_ns, end_ns)
    yield svg.line(released, y + 1, released, y + ROW - 1, RELEASED, width=2)
    needed = _x(piece.need_ns, end_ns)
    yield svg.line(needed, y + 1, needed, y + ROW - 1, svg.PALETTE[1], width=2)


def _curve(curve: Curve, size_bytes: int, end_ns: int, colour: str, width: float = 1.5) -> str:
    y = _y(0, size_bytes)
    path = [f"M{_x(0, end_ns):.1f},{y:.1f}"]
    for at_ns, held in curve:
        x, new = _x(at_ns, end_ns), _y(held, size_bytes)
        path.append(f"H{x:.1f}V{new:.1f}")
    path.append(f"H{_x(end_ns, end_ns):.1f}")
    return f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _ending(one: PolicyResult, end_ns: int, colour: str) -> str:
    x, y = _x(one.evaluated_step_ns, end_ns), TOP + HEIGHT
    about = f"{one.policy}: the step ends at {format_ns(one.evaluated_step_ns)}"
    return f'<path d="M{x:.1f},{y}l-4,8h8z" fill="{colour}"><title>{svg.text(about)}</title></path>'


def _axes(end_ns: int, height: int) -> Iterator[str]:
    bottom = TOP + height
    yield from svg.frame(LEFT, TOP, PLOT, height)
    for tick in range(6):
        at_ns = end_ns * tick / 5
        x = _x(at_ns, end_ns)
        yield svg.line(x, bottom, x, bottom + 4, svg.AXIS)
        yield svg.label(x, bottom + 24, format_ns(at_ns), anchor="middle")


def _levels(size_bytes: int) -> Iterator[str]:
    for tick in range(1, 5):
        y = _y(size_bytes * tick / 4, size_bytes)
        yield svg.line(LEFT, y, LEFT + PLOT, y, svg.GRID)
        yield svg.label(LEFT - 6, y + 4, format_bytes(size_bytes * tick / 4), anchor="end")


def _phases(result: ScheduleResult, end_ns: int, height: int) -> Iterator[str]:
    x = _x(min(result.backward_ns, end_ns), end_ns)
    yield (
        f'<rect x="{LEFT}" y="{TOP}" width="{x - LEFT:.1f}" height="{height}"'
        ' fill="#4477aa" fill-opacity="0.06"/>'
    )
    yield svg.label(LEFT + 4, TOP - 6, "backward")
    yield svg.label(x + 4, TOP - 6, "update, forward")


def _legend(entries: list[tuple[str, str]]) -> Iterator[str]:
    for row, (name, colour) in enumerate(entries):
        y = TOP + 12 + 18 * row
        yield svg.line(LEFT + PLOT + 14, y - 4, LEFT + PLOT + 34, y - 4, colour, width=3)
        yield svg.label(LEFT + PLOT + 40, y, name)


def _document(title: str, body: list[str], height: int) -> str:
    return svg.document(title, body, width=WIDTH, height=height, left=LEFT, title_y=20)


def _x(at_ns: float, end_ns: int) -> float:
    return LEFT + PLOT * at_ns / end_ns


def _y(held: float, size_bytes: int) -> float:
    return TOP + HEIGHT * (1 - held / max(1, size_bytes))
