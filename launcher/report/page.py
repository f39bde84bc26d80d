"""The page of a report, from folders to HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddpgrad.core.errors import LaunchError

from . import run_data, sections, traced_sections
from .markup import document, tag
from .run_data import Run


def read(folders: Sequence[Path], traces: Sequence[Path], logs: Sequence[Path]) -> list[Run]:
    """The runs in `folders`, with names that differ. traces, logs: further folders of each, in the same order, or fewer."""
    for option, given in (("--trace", traces), ("--logs", logs)):
        if len(given) > len(folders):
            raise LaunchError(f"{option} is given {len(given)} times for {len(folders)} runs")
    return [
        run_data.read(folder, name, *(given[i] if i < len(given) else None for given in (traces, logs)))
        for i, (folder, name) in enumerate(zip(folders, _names(folders), strict=True))
    ]


def _names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path; as much of all as it takes to tell them apart."""
    whole = [folder.resolve().parts for folder in folders]
    if len(set(whole)) < len(whole):
        raise LaunchError("a folder is given twice")
    length = next(
        n for n in range(1, 1 + max(map(len, whole))) if len({parts[-n:] for parts in whole}) == len(whole)
    )
    return ["/".join(parts[-length:]) for parts in whole]


def render(runs: Sequence[Run], skip: int = 1, steps: Sequence[int] = (), version: str | None = None) -> str:
    """The HTML. skip: steps that medians leave out; steps: those to draw, or none for a usual one and the longest.

    version: of a page that is served.
    """
    charts = sections.Charts()
    title = f"Report: {', '.join(run.name for run in runs)}"
    parts = [
        sections.finals(runs),
        sections.curves(runs, charts),
        *traced_sections.sections(runs, charts, skip, steps),
        sections.failures(runs),
        sections.environment(runs),
    ]
    places = {"finals": "Results", "curves": "Curves", "steps": "Steps", "timeline": "Timeline", "buckets": "Buckets",
              "memory": "Memory", "failures": "Failures", "environment": "Environment"}  # fmt: skip
    links = [tag("a", name, href=f"#{ident}") for ident, name in places.items()]
    live = () if version is None else (tag("small", "live", id="live", role="status"),)
    top = tag("header", tag("h1", title), tag("nav", *links, *live, aria_label="Sections"))
    body = tag("main", sections.notes(runs), *parts)
    return document(title, (top, body), charts.data, version)
