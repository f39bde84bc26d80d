"""Evenly spaced numbers, the last one included: `linspace`, `logspace` and `torch.range`, which PyTorch has deprecated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend import dtype as dtypes
from ...core.errors import warn_program
from ...core.tensor import Tensor
from .factories import evenly, factory, number


@factory
def _range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """start, start + step, … up to `end`, which is among them; deprecated, with a warning. The default dtype is a float."""
    warn_program(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end)."
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
        raise NotImplementedError(f"range(): not implemented for '{kind.scalar_type}'")
    if kind.category == 1:
        start, end, step = int(start), int(end), int(step)
    wide = np.dtype(np.float64 if isinstance(start, float) or isinstance(step, float) else np.int64)
    out = xp.empty(math.floor((end - start) / step) + 1, kind.numpy)
    return evenly(out, start, step, wide, xp)


# A step is rounded to the dtype, a value only once, as by PyTorch's fused multiply-add: the same bits.
_WIDER: dict[str, Any] = {"float32": np.float64, "float64": np.longdouble}


def _steps(name: str, start: Any, end: Any, steps: Any, dtype: Any, xp: Any, rounded: bool) -> Any:
    """(evenly spaced values, each half counted from its own end; the dtype asked for, which they have if `rounded`)."""
    if any(isinstance(value, Tensor) and value.ndim for value in (start, end)):
        raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
    start, end, count = map(number, (start, end, steps))
    if not isinstance(count, int) or isinstance(steps, bool):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(count).__name__}")
    if count < 0:
        raise RuntimeError(f"{name}(): number of steps must be non-negative")
    number_kind = dtypes.complex64 if isinstance(start, complex) or isinstance(end, complex) else None
    kind = dtypes.numpy_of(dtype or number_kind or dtypes.get_default_dtype())
    if kind.kind in "iu":
        start, end = math.trunc(start), math.trunc(end)  # type: ignore[arg-type]
    wider = _WIDER.get(kind.name)
    if wider is not None:
        start, end = kind.type(start), kind.type(end)
    with np.errstate(over="ignore", invalid="ignore"):
        step = (end - start) / type(end)(count - 1) if count > 1 else 0
        if wider is not None:
            start, end, step = wider(start), wider(end), wider(step)
            if wider is np.longdouble and not hasattr(xp, "longdouble"):  # CuPy has none: made on the host
                xp = np
        wide = np.result_type(*[np.asarray(x).dtype for x in (start, end, step)], np.int64)
        out, half = xp.empty(count, kind if rounded else wide), min(max(count // 2, 1), count)
        evenly(out[:half], start, step, wide, xp)
        evenly(out[half:], end, step, wide, xp, half + 1 - count)
        out[-1:] += 0  # no step from an end of 0 may be -0
    return out, kind


@factory
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """`steps` evenly spaced values from start to end, both included."""
    values, kind = _steps("linspace", start, end, steps, dtype, xp, True)
    if kind.kind == "b":
        raise NotImplementedError("linspace(): not implemented for bool")
    return values


@factory
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, xp: Any = np
) -> np.ndarray:
    """`base` to the power of evenly spaced values from start to end."""
    values, kind = _steps("logspace", start, end, steps, dtype, xp, False)
    return np.power(base, values).astype(kind)
