"""The objects of some classes that are there at the moment."""

from __future__ import annotations

import gc
from typing import Any


def living(kinds: tuple[type, ...]) -> list[Any]:
    """All objects of these classes. Their type is asked, not `__class__`, which may be a property; and each type once."""
    known: dict[type, bool] = {}
    found = []
    for one in gc.get_objects():
        kind = type(one)
        wanted = known.get(kind)
        if wanted is None:
            wanted = known[kind] = issubclass(kind, kinds)
        if wanted:
            found.append(one)
    return found
