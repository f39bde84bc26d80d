"""Drawings in SVG that are as wide as the page: what stretches is a view of its own, and text keeps its size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .markup import Markup, folded, join, number, table, tag

COLOURS = 8
DASHES = 4
"""Classes `c0` ... and `d0` ... of page.css."""
WIDTH = 1000
"""Units of the view from left to right."""
_HEIGHT = 200
_LEAST = 1e-290  # an extent below that is none: its ticks would not be numbers
_MOST_POINTS = 1200
_MOST_DOTS = 60
_MOST_ROWS = 400


@dataclass(frozen=True)
class Series:
    """A line of a chart; a NaN interrupts it."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    dash: int = 0

    def drawn(self) -> Sequence[tuple[float, float]]:
        """The points, or of very many the least and the greatest of each stretch."""
        size = -(-2 * len(self.points) // _MOST_POINTS)
        if size <= 2:
            return self.points
        kept: list[tuple[float, float]] = []
        for start in range(0, len(self.points), size):
            part = self.points[start : start + size]
            finite = [point for point in part if not math.isnan(point[1])]
            ends = {choose(finite, key=lambda point: point[1]) for choose in (min, max) if finite}
            gap = next((point for point in part if math.isnan(point[1])), None)
            kept += sorted({*ends, gap} if gap else ends)
        return kept


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from `low` to `high`."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, first + about * 3) if i * step <= high + step * 1e-9]


def spread(values: Iterable[float], margin: float = 0.0) -> tuple[float, float]:
    """From the least to the greatest of the finite `values`, and never nothing."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    size = max(abs(low), abs(high))
    if high - low <= max(size * 1e-12, _LEAST):
        half = size / 2 if size > 1e9 * _LEAST else 0.5
        low, high = low - half, high + half
    room = margin * (high - low)
    return low - room, high + room


def line_chart(ident: str, title: str, unit: str, series: Sequence[Series], x_label: str = "step") -> Markup:
    """Lines over `x_label`, with a legend to switch them, and their numbers as a table."""
    low, high = spread(x for one in series for x, _ in one.points)
    bottom, top = spread((y for one in series for _, y in one.points), 0.04)

    def across(x: float) -> float:
        return (x - low) / (high - low)

    def down(y: float) -> float:
        return (top - y) / (top - bottom) * _HEIGHT

    lines, dots = [], []
    for index, one in enumerate(series):
        path, pen = [], "M"
        points = one.drawn()
        for x, y in points:
            if math.isnan(y):
                pen = "M"
                continue
            path.append(f"{pen}{across(x) * WIDTH:.2f} {down(y):.2f}" + ("h0" if pen == "M" else ""))
            pen = "L"
        lines.append(
            tag("path", d="".join(path), class_=f"line c{one.colour} d{one.dash}", data_series=index)
        )
        for x, y in (
            points if len(points) <= _MOST_DOTS else [p for p in points if math.isnan(p[1])][:_MOST_DOTS]
        ):
            said = tag("title", f"{one.name}, {x_label} {number(x)}: {_spelt(y)}")
            place = {"data_x": x, "data_series": index}
            at = f"{across(x):.3%}"
            if math.isnan(y):
                dots.append(tag("text", "\u00d7", said, x=at, y=12, class_="bad", **place))
            else:
                dots.append(
                    tag("circle", said, cx=at, cy=f"{down(y):.1f}", r=2.5, class_=f"c{one.colour}", **place)
                )
    grid = []
    for y in ticks(bottom, top, 5):
        grid.append(tag("line", x1=0, x2="100%", y1=f"{down(y):.1f}", y2=f"{down(y):.1f}", class_="grid"))
        grid.append(tag("text", number(y), x=-6, y=f"{down(y) + 4:.1f}", class_="y"))
    about = "; ".join(_described(one) for one in series)
    head = tag("figcaption", title, tag("small", f" {unit}" if unit else ""))
    drawing = frame(ident, title, about, _HEIGHT, (low, high), x_label, grid, lines, dots)
    return tag("figure", head, drawing, _legend(series), _numbers(title, series, x_label), class_="chart")


def frame(
    ident: str, title: str, about: str, height: int, x: tuple[float, float], x_label: str,
    behind: Iterable[Markup], inside: Iterable[Markup], over: Iterable[Markup],
) -> Markup:  # fmt: skip
    """A drawing with an axis from x[0] to x[1], which page.js enlarges.

    inside: in a view of `WIDTH` by `height` units, which is stretched. behind, over: by percentages of the width; what has
    `data-x` is moved.
    """
    low, high = x
    axis = []
    for tick in ticks(low, high, 4):
        at = f"{(tick - low) / (high - low):.3%}"
        axis.append(tag("line", x1=at, x2=at, y1=0, y2=height, class_="grid"))
        axis.append(tag("text", number(tick), x=at, y=height + 16, class_="x"))
    view = tag(
        "svg", *inside, class_="view", viewBox=f"0 0 {WIDTH} {height}", preserveAspectRatio="none",
        width="100%", height=height,
    )  # fmt: skip
    svg = tag(
        "svg", tag("desc", about, id=f"{ident}-about"), tag("g", *axis, class_="axis"), *behind, view, *over,
        tag("line", class_="cursor", y1=0, y2=height), width="100%", height=height + 22, class_="frame", role="img",
        aria_label=title, aria_describedby=f"{ident}-about",
    )  # fmt: skip
    keys = f"{title}: the arrow keys read values, + and - enlarge and reduce, 0 shows all"
    return join(
        (
            tag(
                "div", svg, id=ident, class_="plot", tabindex=0, role="group", aria_label=keys, data_from=low, data_to=high,
                data_height=height, data_unit=x_label,
            ),
            tag("output", x_label, class_="readout", for_=ident),
        )
    )  # fmt: skip


def data(series: Sequence[Series]) -> list[dict[str, Any]]:
    """What page.js reads of the lines of a chart; JSON has no NaN."""
    return [
        {"name": one.name, "points": [[x, None if math.isnan(y) else y] for x, y in one.drawn()]}
        for one in series
    ]


def _spelt(y: float) -> str:
    return "not a number" if math.isnan(y) else number(y)


def _described(one: Series) -> str:
    finite = [y for _, y in one.points if not math.isnan(y)]
    if not finite:
        return f"{one.name}: no finite number"
    extent = f"from {number(min(finite))} to {number(max(finite))}"
    return f"{one.name}: {len(one.points)} values {extent}, the last {_spelt(one.points[-1][1])}"


def _legend(series: Sequence[Series]) -> Markup:
    entries = []
    for index, one in enumerate(series):
        stroke = tag("line", x1=0, x2=24, y1=5, y2=5, class_=f"line c{one.colour} d{one.dash}")
        swatch = tag("svg", stroke, width=24, height=10, aria_hidden="true")
        entries.append(tag("button", swatch, one.name, type="button", aria_pressed="true", data_series=index))
    return tag("div", *entries, class_="legend")


def _numbers(title: str, series: Sequence[Series], x_label: str) -> Markup:
    steps = sorted({x for one in series for x, _ in one.points})
    by_step = [dict(one.points) for one in series]
    shown = steps if len(steps) <= _MOST_ROWS else steps[:: -(-len(steps) // _MOST_ROWS)]
    rows = [
        (
            number(x),
            *(
                ""
                if x not in one
                else "not a number"
                if math.isnan(one[x])
                else repr(one[x]).removesuffix(".0")
                for one in by_step
            ),
        )
        for x in shown
    ]
    left_out = f", {len(shown):,} of {len(steps):,} steps" if len(shown) < len(steps) else ""
    return folded("Numbers", table((x_label, *(one.name for one in series)), rows, f"{title}{left_out}"))
