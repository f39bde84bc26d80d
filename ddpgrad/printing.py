"""How a tensor prints: as in PyTorch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend import dtype as dtypes

if TYPE_CHECKING:
    from ._tensor import Tensor

_THRESHOLD, _EDGE, _WIDTH, _PRECISION = 1000, 3, 80, 4


def format_tensor(tensor: Tensor) -> str:
    """`tensor([1., 2.], grad_fn=<MulBackward0>)`, with device and dtype where they are not the default."""
    array: Any = tensor._array
    if tensor.is_cuda:
        array = array.get()
    prefix = "Parameter containing:\n" if type(tensor).__name__ == "Parameter" else ""
    head = "tensor("
    if array.size == 0 and array.ndim != 1:
        body = f"[], size={tuple(array.shape)}"
    else:
        body = _elements(array, len(head))
    parts = [body]
    if tensor.is_cuda:
        parts.append(f"device='{tensor.device}'")
    default = (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool_, dtypes.complex64)
    if tensor.dtype not in default or (array.size == 0 and tensor.dtype is dtypes.int64):
        parts.append(f"dtype={tensor.dtype!r}")
    if tensor._grad_fn is not None:
        parts.append(f"grad_fn=<{tensor._grad_fn.name()}>")
    elif tensor._requires_grad:
        parts.append("requires_grad=True")
    return f"{prefix}{head}{', '.join(parts)})"


def _elements(array: np.ndarray, indent: int) -> str:
    shown = _shown(array)
    formatter = _formatter(shown)
    if array.ndim == 0:
        return formatter(array[()]).strip()
    return _nested(array, formatter, indent, array.size > _THRESHOLD)


def _shown(array: np.ndarray) -> np.ndarray:
    """The elements that will be printed, flat: long dimensions show their ends only."""
    if array.size > _THRESHOLD:
        for axis, n in enumerate(array.shape):
            if n > 2 * _EDGE:
                array = np.take(array, [*range(_EDGE), *range(n - _EDGE, n)], axis=axis)
    return array.reshape(-1)


def _formatter(values: np.ndarray) -> Any:
    """One number -> text, all of one width, by the range of the values shown."""
    if values.dtype == dtypes.bfloat16.numpy:
        values = values.astype(np.float32)
    if values.dtype.kind in "biu":
        width = max((len(str(v)) for v in values.tolist()), default=0)
        return lambda v: str(v.item() if hasattr(v, "item") else v).rjust(width)
    if values.dtype.kind == "c":
        return lambda v: f"{v.real:.4f}{v.imag:+.4f}j"
    counted = values[np.isfinite(values) & (values != 0)]  # only these decide format and width
    finite = np.abs(counted.astype(np.float64))
    if not finite.size:
        text = _plain
    else:
        low, high = finite.min(), finite.max()
        if (np.ceil(finite) == finite).all():
            text = _scientific if (high / low > 1000.0 and high > 1.0e8) or high > 1.0e8 else _plain
        else:
            text = _scientific if high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4 else _fixed
    width = max((len(text(float(v))) for v in counted), default=0)
    return lambda v: text(float(v)).rjust(width)


def _plain(v: float) -> str:
    return f"{v:.0f}." if math.isfinite(v) else str(v)


def _fixed(v: float) -> str:
    return f"{v:.{_PRECISION}f}"


def _scientific(v: float) -> str:
    return f"{v:.{_PRECISION}e}"


def _nested(array: np.ndarray, formatter: Any, indent: int, summarize: bool) -> str:
    n = array.shape[0]
    cut = summarize and n > 2 * _EDGE
    if array.ndim == 1:
        items = [formatter(v) for v in (array[:_EDGE] if cut else array)]
        if cut:
            items += [" ..."] + [formatter(v) for v in array[-_EDGE:]]
        per_line = max(1, (_WIDTH - indent) // (max((len(i) for i in items), default=1) + 2))
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_nested(row, formatter, indent + 1, summarize) for row in (array[:_EDGE] if cut else array)]
    if cut:
        rows += ["..."] + [_nested(row, formatter, indent + 1, summarize) for row in array[-_EDGE:]]
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(rows) + "]"
