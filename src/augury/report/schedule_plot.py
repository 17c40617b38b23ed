"""Release and transfer as pictures: SVG written by hand, with nothing to fetch from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from augury.core.results.schedule import Curve, PieceResult, PolicyResult, ScheduleResult
from augury.core.units import format_bytes, format_ns
from augury.report.safe_text import safe

WIDTH, LEFT, RIGHT, TOP = 960, 74, 150, 46
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = 420
ROW = 14
MAX_ROWS = 400
COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bb5566",
    "#004488",
    "#997700",
    "#777777",
)
"""Told apart by people who see colours differently, too."""
RELEASED = "#000000"


def stepwise_svg(result: ScheduleResult) -> str:
    """Bytes that backward has released and bytes that have arrived, of every policy."""
    end_ns = max([one.evaluated_step_ns for one in result.policies] + [1])
    lines = [
        _curve(result.released, result.size_bytes, end_ns, RELEASED, width=2.5),
        *(
            _curve(one.transferred, result.size_bytes, end_ns, _colour(i))
            for i, one in enumerate(result.policies)
        ),
    ]
    legend = [("released", RELEASED)] + [
        (one.policy, _colour(i)) for i, one in enumerate(result.policies)
    ]
    ends = [_ending(one, end_ns, _colour(i)) for i, one in enumerate(result.policies)]
    body = [*_axes(end_ns, HEIGHT), *_levels(result.size_bytes), *_phases(result, end_ns, HEIGHT)]
    body += [*lines, *ends, *_legend(legend)]
    return _document("Gradients released and arrived", body, HEIGHT + TOP + 50)


def pieces_svg(result: ScheduleResult, policy: str) -> str:
    """One line a piece: when backward had made it, when it went over its link, when it is needed
    by a forward that never waits."""
    pieces = result.pieces[:MAX_ROWS]
    height = max(ROW * len(pieces), 4 * ROW)
    latest = [max(piece.arrive_ns, piece.need_ns) for piece in pieces]
    end_ns = max([*latest, result.backward_ns, 1])
    body = [*_axes(end_ns, height), *_phases(result, end_ns, height)]
    for row, piece in enumerate(pieces):
        body += _piece(piece, TOP + row * ROW, end_ns)
    body += _legend([("released", RELEASED), ("transfer", COLOURS[0]), ("needed", COLOURS[1])])
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
        f' fill="{COLOURS[0]}"><title>{_text(about)}</title></rect>'
    )
    yield _label(LEFT - 6, y + ROW - 3, format_bytes(piece.size_bytes), anchor="end")
    yield _line(x + width, middle, tail, middle, COLOURS[0])
    released = _x(piece.release_ns, end_ns)
    yield _line(released, y + 1, released, y + ROW - 1, RELEASED, width=2)
    needed = _x(piece.need_ns, end_ns)
    yield _line(needed, y + 1, needed, y + ROW - 1, COLOURS[1], width=2)


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
    return f'<path d="M{x:.1f},{y}l-4,8h8z" fill="{colour}"><title>{_text(about)}</title></path>'


def _axes(end_ns: int, height: int) -> Iterator[str]:
    bottom = TOP + height
    yield _line(LEFT, bottom, LEFT + PLOT, bottom, "#333333")
    yield _line(LEFT, TOP, LEFT, bottom, "#333333")
    for tick in range(6):
        at_ns = end_ns * tick / 5
        x = _x(at_ns, end_ns)
        yield _line(x, bottom, x, bottom + 4, "#333333")
        yield _label(x, bottom + 24, format_ns(at_ns), anchor="middle")


def _levels(size_bytes: int) -> Iterator[str]:
    for tick in range(1, 5):
        y = _y(size_bytes * tick / 4, size_bytes)
        yield _line(LEFT, y, LEFT + PLOT, y, "#dddddd")
        yield _label(LEFT - 6, y + 4, format_bytes(size_bytes * tick / 4), anchor="end")


def _phases(result: ScheduleResult, end_ns: int, height: int) -> Iterator[str]:
    x = _x(min(result.backward_ns, end_ns), end_ns)
    yield (
        f'<rect x="{LEFT}" y="{TOP}" width="{x - LEFT:.1f}" height="{height}"'
        ' fill="#4477aa" fill-opacity="0.06"/>'
    )
    yield _label(LEFT + 4, TOP - 6, "backward")
    yield _label(x + 4, TOP - 6, "update, forward")


def _legend(entries: list[tuple[str, str]]) -> Iterator[str]:
    for row, (name, colour) in enumerate(entries):
        y = TOP + 12 + 18 * row
        yield _line(LEFT + PLOT + 14, y - 4, LEFT + PLOT + 34, y - 4, colour, width=3)
        yield _label(LEFT + PLOT + 40, y, name)


def _document(title: str, body: list[str], height: int) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
            f"<title>{_text(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{LEFT}" y="20" font-size="15" fill="#111111">{_text(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}"/>'
    )


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333333">{_text(text)}</text>'
    )


def _text(text: str) -> str:
    """Names come from files."""
    return escape(safe(text, max_chars=300))


def _x(at_ns: float, end_ns: int) -> float:
    return LEFT + PLOT * at_ns / end_ns


def _y(held: float, size_bytes: int) -> float:
    return TOP + HEIGHT * (1 - held / max(1, size_bytes))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
