"""The error for a name that a module does not have, with the names that are spelt most like it."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?`, or nothing when no public name is like `name`, or it is private: tools probe for such."""
    if name.startswith("_"):
        return ""
    import difflib  # here, since few programs misspell a name

    public = [k for k in known if not k.startswith("_")]
    lower = {k.lower(): k for k in reversed(public)}
    near = difflib.get_close_matches(name.lower(), lower, n=4, cutoff=0.6)
    return f"; did you mean {', '.join(lower[k] for k in near)}?" if near else ""


def missing(module: str, known: Iterable[str], name: str) -> AttributeError:
    """The error for `name`, which the module of that name, which has the names `known`, was asked for."""
    return AttributeError(f"module '{module}' has no attribute '{name}'{nearest(name, known)}")
