"""What to say about a name that a module does not have: the names that are spelt most like it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?`, or nothing when no public name is like `name`."""
    public = [k for k in known if not k.startswith("_")]
    lower = {k.lower(): k for k in reversed(public)}
    near = difflib.get_close_matches(name.lower(), lower, n=4, cutoff=0.6)
    return f"; did you mean {', '.join(lower[k] for k in near)}?" if near else ""


def missing(module: Mapping[str, Any], name: str) -> AttributeError:
    """The error for `name`, which a module with these globals was asked for."""
    return AttributeError(f"module '{module['__name__']}' has no attribute '{name}'{nearest(name, module)}")
