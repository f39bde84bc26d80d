"""Modules constructed without initial values (`skip_init`)."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ...random import fork_rng
from ..modules.module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """`module_cls(*args, **kwargs)` whose parameters hold nothing yet, for those who will load or draw them.

    The random stream stays where it is. The class must take the keyword `device`.
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with fork_rng():
        return module_cls(*args, **kwargs)
