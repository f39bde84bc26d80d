"""HTML by calls: all text is escaped, save what such a call has made."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any


class Markup(str):
    """Text that is HTML already."""


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """An element; an attribute that is None is left out, and `aria_label` or `class_` stand for aria-label and class."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{said}>{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """`parts` one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def table(heads: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Markup:
    """A table whose first column names the rows; it scrolls by itself where the page is too narrow."""
    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)) for first, *rest in rows
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def folded(summary: str, *content: object) -> Markup:
    """What is shown on request."""
    return tag("details", tag("summary", summary), *content)


def number(value: object) -> str:
    """A number as a reader wants it; '-' for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def document(title: str, body: Iterable[object], data: Any, version: str | None = None) -> str:
    """The page, with the style and the script that stand beside this file, and `data` for the script.

    version: of a page that is served, and asks for newer ones (server.py).
    """
    style, script = (Path(__file__).with_name(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The script alone may run, whatever the folders hold; nothing is loaded, and nothing sent but to who serves the page.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    policy += "" if version is None else "; connect-src 'self'"
    served = "" if version is None else f' data-version="{escape(version)}"'
    embedded = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return (
        f'<!DOCTYPE html>\n<html lang="en"{served}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{join(body)}\n"
        f'<script type="application/json" id="data">{embedded}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )
