"""Charts: lines as SVG for the report, sparklines for the terminal. Nothing but text is needed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

HEIGHTS: Final = "▁▂▃▄▅▆▇█"
PLAIN_HEIGHTS: Final = "_.-=+*#%"

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 28
_TICKS = 4

Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """One line of a chart: points by second."""

    title: str
    colour: str
    points: Points


def sparkline(values: Sequence[float], heights: str = HEIGHTS) -> str:
    """One sign for each value, the largest the highest."""
    top = max(values, default=0)
    if top <= 0:
        return heights[0] * len(values)
    return "".join(heights[min(len(heights) - 1, int(v * len(heights) / top))] for v in values)


def slices(points: Points, count: int, end: float) -> list[float]:
    """Means over `count` equal pieces of the time from 0 to `end`; what is missing is 0."""
    found: list[list[float]] = [[] for _ in range(count)]
    for second, value in points:
        if end > 0 and 0 <= second <= end:
            found[min(count - 1, int(second * count / end))].append(value)
    return [sum(values) / len(values) if values else 0.0 for values in found]


def rates(points: Points, window: float = 0.5) -> list[tuple[float, float]]:
    """How fast a count grew, over the last `window` seconds at each point."""
    found = []
    first = 0
    for place, (second, value) in enumerate(points):
        while points[first][0] < second - window and first < place:
            first += 1
        before, was = points[first]
        found.append((second, (value - was) / (second - before) if second > before else 0.0))
    return found


def chart(
    title: str,
    unit: str,
    lines: Sequence[Line],
    marks: Sequence[tuple[float, str]] = (),
    by: str = "s",
) -> str:
    """An SVG with axes, a line for each of `lines`, and a vertical one for each of `marks`."""
    ends = [second for line in lines for second, _ in line.points]
    tops = [value for line in lines for _, value in line.points]
    end, top = max(ends, default=1.0) or 1.0, nice(max(tops, default=1.0))

    def x(second: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * second / end

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top

    parts = []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" {_at(y(value))}/>')
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:,.{0 if top >= 8 else 1}f}", "end"))
        second = end * tick / _TICKS
        anchor = "end" if tick == _TICKS else "middle"
        parts.append(
            _text(x(second), HEIGHT - 8, f"{second:.{0 if end >= 40 else 1}f} {by}", anchor)
        )
    for second, text in marks:
        place = f'x1="{x(second):.1f}" x2="{x(second):.1f}"'
        parts.append(f'<line class="mark" {place} y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(_text(x(second) + 4, _TOP + 10, text, "start", "mark"))
    for line in lines:
        path = " ".join(f"{x(second):.1f},{y(value):.1f}" for second, value in line.points)
        parts.append(f'<polyline fill="none" stroke="{line.colour}" points="{path}"/>')
    keys = "".join(
        f'<span><i style="background:{line.colour}"></i>{escape(line.title)}</span>'
        for line in lines
    )
    return (
        f"<figure><figcaption>{escape(title)} <small>{escape(unit)}</small>{keys}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def nice(value: float) -> float:
    """The next number above that is easy to read: 1, 2, 4, 5 or 8 with zeros."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 < value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * step for step in (1, 2, 4, 5, 8, 10, 20) if power * step >= value)


def _at(y: float) -> str:
    return f'y1="{y:.1f}" y2="{y:.1f}"'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'
