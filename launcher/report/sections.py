"""The sections of a report, each from what the runs have recorded; where they have not, a line says what would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .chart import COLOURS, DASHES, Series, data, line_chart
from .markup import Markup, folded, join, number, table, tag
from .run_data import Run

_LOSSES = ("loss", "validation", "val", "nll")
_RATES = ("per_s", "per_sec", "per_second", "throughput")
_MOST_METRICS = 24
_MOST_EVENTS = 100


class Charts:
    """Draws the charts of one page, and keeps their numbers for its script."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def next(self) -> str:
        """An identifier for another drawing."""
        ident = f"chart{len(self.data)}"
        self.data[ident] = []
        return ident

    def draw(self, title: str, unit: str, series: Sequence[Series], x_label: str = "step") -> Markup:
        """See `line_chart`."""
        ident = self.next()
        self.data[ident] = data(series)
        return line_chart(ident, title, unit, series, x_label)


def section(ident: str, title: str, *content: object) -> Markup:
    """A part of the page with its heading."""
    return tag("section", tag("h2", title), *content, id=ident)


def nothing(text: str) -> Markup:
    """The line in place of a section's content."""
    return tag("p", text, class_="absent")


def notes(runs: Sequence[Run]) -> Markup:
    """What was damaged or odd."""
    rows = [tag("li", tag("b", run.name), f": {note}") for run in runs for note in run.notes]
    return (
        tag("ul", *rows, class_="notes", role="note", aria_label="What is damaged or missing")
        if rows
        else Markup("")
    )


def finals(runs: Sequence[Run]) -> Markup:
    """How each run was made and came out."""
    rows: list[list[object]] = [["started", *(run.config.get("started") for run in runs)]]
    for key in ("ranks", "processes"):
        rows.append([key, *(run.part("world").get(key) for run in runs)])
    rows.append(["hosts", *(", ".join(map(str, run.part("hosts"))) or None for run in runs)])
    rows.append(["last step", *(max((c[-1][0] for c in run.metrics.values()), default=None) for run in runs)])
    for key in _keys(runs):
        curves = [run.metrics.get(key) for run in runs]
        rows.append([f"{key}, last", *(_spelt(curve[-1][1]) if curve else None for curve in curves)])
        if _is_loss(key):
            rows.append([f"{key}, least", *(_least(curve) if curve else None for curve in curves)])
    rows.append(["checkpoints", *(", ".join(run.checkpoints) or "none" for run in runs)])
    rows.append(["failures", *(_failed(run) for run in runs)])
    shown = [[row[0], *("-" if cell is None else _cell(cell) for cell in row[1:])] for row in rows]
    return section("finals", "Results", table(("", *(run.name for run in runs)), shown, "Results by run"))


def curves(runs: Sequence[Run], charts: Charts) -> Markup:
    """The metrics over the steps, those of all runs on the same axes."""
    keys = _keys(runs)
    if not keys:
        return section("curves", "Curves", nothing(
            'No numbers: a program writes them to metrics.jsonl in its run folder, a line such as {"step": 10, "loss": 2.5} each.'
        ))  # fmt: skip
    losses = [key for key in keys if _is_loss(key)]
    groups = [losses] if losses else []
    rates = [key for key in keys if key.endswith(_RATES)]
    groups += [
        [key] for key in sorted(set(keys) - set(losses), key=lambda key: (key not in rates, keys.index(key)))
    ]
    drawn = []
    for group in groups[:_MOST_METRICS]:
        series = []
        for n, run in enumerate(runs):
            for m, key in enumerate(group):
                if key in run.metrics:
                    name = key if len(runs) == 1 else f"{run.name}: {key}"
                    colour, dash = (m, 0) if len(runs) == 1 else (n, m)
                    series.append(Series(name, run.metrics[key], colour % COLOURS, dash % DASHES))
        drawn.append(charts.draw(", ".join(group), "", series))
    lines = []
    if not rates:
        lines.append(nothing('No throughput: rows of metrics.jsonl have none, such as "tokens_per_s".'))
    if len(groups) > _MOST_METRICS:
        lines.append(nothing(f"{len(groups) - _MOST_METRICS} other metrics are not drawn."))
    return section("curves", "Curves", tag("div", *drawn, class_="charts"), *lines)


def failures(runs: Sequence[Run]) -> Markup:
    """What failed, what was started again, and who was slow."""
    parts: list[Markup] = []
    for run in runs:
        parts.append(tag("h3", run.name))
        if run.log_folder is None:
            why = run.absent.get("log_dir")
            parts.append(
                nothing(
                    f"Nothing is known{f': {why}' if why else ''}. ddprun --log-dir DIR keeps failures and restarts."
                )
            )
            continue
        said = [(str(event.get("time", "")), str(event.get("text", ""))) for event in run.events]
        before = sum(map(run.earlier, run.events))
        if before:
            said.insert(
                before,
                (str(run.config["started"]), "The job of this report was started; what is above is older."),
            )
        for time, text in said[:_MOST_EVENTS]:
            head, _, rest = text.strip().partition("\n")
            # What a failure says ends with its cause.
            summary = rest.strip().rpartition("\n")[2] or head
            parts.append(
                folded(f"{time}  {summary}", tag("pre", text)) if rest else tag("p", f"{time}  {head}")
            )
        if len(said) > _MOST_EVENTS:
            parts.append(nothing(f"{len(said) - _MOST_EVENTS} later lines are not shown."))
        if run.failure is not None:
            parts.append(_report(run.failure))
        elif not said:
            parts.append(nothing("No failure, no restart, no slow rank."))
    return section("failures", "Failures, restarts, stragglers", *parts)


def _report(failure: Any) -> Markup:
    """failure.json, of the last failure in the log folder."""
    rows, texts = [], []
    listed = failure.get("failures")
    for each in listed if isinstance(listed, list) else [failure.get("first")]:
        if isinstance(each, dict):
            who = ", ".join(map(str, each["ranks"])) if isinstance(each.get("ranks"), list) else ""
            names = ("reason", "error", "where", "phase", "step", "collective")
            rows.append((f"rank {who}", *(str(each.get(name) or "") for name in names)))
            texts.append(folded(f"Text of rank {who}", tag("pre", str(each.get("text", "")))))
    heads = ("rank", "reason", "error", "line", "phase", "step", "last collective")
    caption = f"The last failure: exit code {failure.get('exit_code')}, after {failure.get('restart_count')} restarts"
    return join((table(heads, rows, caption), *texts))


def environment(runs: Sequence[Run]) -> Markup:
    """How the runs were started; what differs between them is marked."""
    if not any(run.config for run in runs):
        return section("environment", "Settings and environment", nothing(
            "No config.json: launcher.write_config(folder, **settings) writes it, and ddprun with --log-dir or --trace."
        ))  # fmt: skip
    parts = []
    for title, name in (("Settings", "settings"), ("Versions", "versions"), ("Options of ddprun", "options")):
        keys = list(dict.fromkeys(key for run in runs for key in run.part(name)))
        parts.append(_compared(title, runs, keys, lambda run, key, name=name: run.part(name).get(key, "")))
    keys = ["command", "folder", "script", "world", "hosts"]
    parts.insert(0, _compared("Start", runs, keys, lambda run, key: run.config.get(key, "")))
    return section("environment", "Settings and environment", *parts)


def _compared(title: str, runs: Sequence[Run], keys: Sequence[str], value: Any) -> Markup:
    rows, differ = [], 0
    for key in keys:
        cells = [_plain(value(run, key)) for run in runs]
        if len(set(cells)) > 1:
            differ += 1
            rows.insert(differ - 1, [tag("strong", f"{key} ≠"), *cells])
        else:
            rows.append([key, *cells])
    if not rows:
        return Markup("")
    count = f"{title} ({differ} differ)" if differ else title
    content = table(("", *(run.name for run in runs)), rows, title)
    return tag("details", tag("summary", count), content, **({"open": ""} if differ else {}))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    return "-" if value is None else str(value)


def _keys(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.metrics))


def _is_loss(key: str) -> bool:
    parts = key.lower().replace("/", "_").replace(".", "_").split("_")
    return "loss" in parts or parts[-1] in _LOSSES


def _least(curve: Sequence[tuple[float, float]]) -> str | None:
    finite = [(y, x) for x, y in curve if y == y]
    return f"{number(min(finite)[0])} at step {number(min(finite)[1])}" if finite else None


def _spelt(value: float) -> object:
    return value if value == value else "not a number"


def _cell(value: object) -> str:
    return (
        str(int(value)) if isinstance(value, float) and value.is_integer() and value < 1e4 else number(value)
    )


def _failed(run: Run) -> str | None:
    if run.log_folder is None:
        return None
    events = [event for event in run.events if not run.earlier(event)]
    restarts = sum("restarting in" in str(event.get("text")) for event in events)
    # Each failure is an event, where ddprun has written them.
    failed = run.failure.get("exit_code") if run.failure and (events or not run.events) else None
    parts = [f"the last with exit code {failed}"] if failed is not None else []
    parts += [f"{restarts} restart{'s' * (restarts != 1)}"] if restarts else []
    parts += ["ended well"] if parts and events and events[-1].get("exit_code") == 0 else []
    return ", ".join(parts) or "none"
