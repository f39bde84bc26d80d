"""`torch.range`: evenly spaced numbers, the last one included. PyTorch has deprecated it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.errors import warn_program
from .factories import factory, number


@factory
def _range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """start, start + step, … up to `end`, which is among them; deprecated, with a warning. The default dtype is a float."""
    warn_program(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
    )
    start, end, step = number(start), number(end), number(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    kind = dtypes.of(dtype or dtypes.get_default_dtype())
    if kind.category in (0, 3):
        raise NotImplementedError(f"range(): not implemented for {kind.name}")
    if kind.category == 1:
        start, end, step = int(start), int(end), int(step)
    return (start + xp.arange(math.floor((end - start) / step) + 1) * step).astype(kind.numpy)
