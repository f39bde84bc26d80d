"""A step of all ranks: what each program did, and below it what was on its way to other ranks."""

from __future__ import annotations

from collections.abc import Sequence

from ddpgrad.core.spans import COMMUNICATION, Span

from .chart import WIDTH, frame
from .markup import Markup, folded, number, table, tag

KINDS = {
    "loader": "loader",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "user": "labelled by the program",
    "communication": "on its way",
    "waiting": "the program stands still for it",
    "ready": "bucket ready",
}
"""The kinds of spans, in the order in which they are drawn."""
# Pixels: of a mark above a bar, of a bar, of a lane below it, and between ranks.
_MARK, _BAR, _LANE, _GAP = 7, 16, 9, 8
_MOST_LANES = 6
_MOST_SPANS = 400
_MOST_ROWS = 300


def timeline(ident: str, title: str, spans: Sequence[Span], low: float, high: float) -> Markup:
    """The `spans` between the moments `low` and `high`, in milliseconds since `low`."""
    within = [span for span in spans if span.kind in KINDS and span.ended > low and span.began < high]
    ranks = sorted({span.rank or 0 for span in within})
    bars: list[Markup] = []
    labels: list[Markup] = []
    shown: list[Span] = []
    top = 0
    for rank in ranks:
        mine = [span for span in within if (span.rank or 0) == rank]
        # What a program labels may be any number: the longest are shown.
        kept = sorted(mine, key=lambda span: (span.kind == "user", span.began - span.ended))[:_MOST_SPANS]
        kept.sort(key=lambda span: span.began)
        shown += kept
        lanes = _lanes(kept)
        top += _MARK
        labels.append(tag("text", f"rank {rank}", x=-6, y=top + 12, class_="y"))
        count = max(lanes) + 1
        if count:
            labels.append(tag("text", "on its way", x=-6, y=top + _BAR + 11, class_="y small"))
        for span, lane in sorted(
            zip(kept, lanes, strict=True), key=lambda pair: list(KINDS).index(pair[0].kind)
        ):
            bars.append(_bar(span, top, lane, low, high))
        top += _BAR + 2 + count * _LANE + _GAP
    swatches = [
        tag("span", tag("i", class_=f"k-{kind}", aria_hidden="true"), text)
        for kind, text in KINDS.items()
        if any(span.kind == kind for span in shown)
    ]
    about = f"{len(ranks)} ranks over {_ms(high - low)} ms; the table below has what is drawn"
    drawing = frame(ident, title, about, top, (0.0, (high - low) * 1e3), "ms", labels, bars, ())
    rows = [
        (span.rank or 0, KINDS[span.kind], _name(span), _ms(span.began - low), _ms(span.ended - span.began))
        for span in shown[:_MOST_ROWS]
    ]
    caption = f"{title}: {len(rows):,} of {len(within):,} spans"
    numbers = table(("rank", "kind", "name", "begins, ms", "takes, ms"), rows, caption)
    legend = tag("div", *swatches, class_="legend")
    return tag(
        "figure", tag("figcaption", title), drawing, legend, folded("Numbers", numbers), class_="chart"
    )


def _lanes(spans: Sequence[Span]) -> list[int]:
    """The lane of each collective, so that those which are on their way together do not hide one another; -1 for others."""
    ends: list[float] = []
    found = [-1] * len(spans)
    for i, span in enumerate(spans):
        if span.track == COMMUNICATION:
            free = next((lane for lane, end in enumerate(ends) if end <= span.began), len(ends))
            lane = min(free, _MOST_LANES - 1)
            ends[lane : lane + 1] = [span.ended]
            found[i] = lane
    return found


def _bar(span: Span, top: int, lane: int, low: float, high: float) -> Markup:
    """The rectangle of a span of the rank whose bar begins at `top`."""
    places = {"ready": (top - _MARK, _MARK - 1), "waiting": (top + _BAR // 2, _BAR // 2)}
    y, height = places.get(span.kind, (top, _BAR))
    if lane >= 0:
        y, height = top + _BAR + 2 + lane * _LANE, _LANE - 2
    scale = WIDTH / (high - low)
    began, ended = max(span.began, low) - low, min(span.ended, high) - low
    least = 2.0 if span.kind == "ready" else 0.6  # what is thinner would not be seen
    times = f"{_ms(span.began - low)} to {_ms(span.ended - low)} ms, {_ms(span.ended - span.began)} ms"
    said = tag("title", f"rank {span.rank or 0}, {_name(span)}: {times}")
    width = max(round((ended - began) * scale, 3), least)
    x = round(began * scale, 3)
    return tag("rect", said, x=x, y=y, width=width, height=height, class_=f"k-{span.kind}")


def _name(span: Span) -> str:
    details = span.details or {}
    what = details.get("what") or details.get("parameters")
    nbytes = details.get("bytes")
    size = f", {number(nbytes)} bytes" if isinstance(nbytes, int) and nbytes else ""
    return f"{span.name}{size}{f' ({what})' if what else ''}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
