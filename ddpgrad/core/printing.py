"""Tensors as text, as PyTorch prints them, and the options for it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import dtype as dtypes
from ..backend.device import CPU
from ..backend.registry import SparseArray, to_device

if TYPE_CHECKING:
    from .tensor import Tensor


@dataclasses.dataclass
class PrintOptions:
    """precision: digits after the point. threshold: tensors of more elements are shortened. edgeitems: what is then
    shown of each end of a dimension. linewidth: characters a line. sci_mode: scientific notation, None to decide."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_options = PrintOptions()
_PROFILES = {"default": (4, 1000, 3), "short": (2, 1000, 2), "full": (4, math.inf, 3)}


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Change how tensors print: a profile ('default', 'short', 'full') first, then what else is given."""
    if profile is not None:
        _options.precision, _options.threshold, _options.edgeitems = _PROFILES[profile]
        _options.linewidth = 80
    for name, value in (
        ("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems), ("linewidth", linewidth),
    ):  # fmt: skip
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in use, as `set_printoptions` takes them."""
    return dataclasses.asdict(_options)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions` for a block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


def format_tensor(tensor: Tensor, contents: str | None = None) -> str:
    """`tensor([1., 2.], grad_fn=<MulBackward0>)`, with device and dtype where they are not the default.

    contents: what stands for the elements of a tensor that has none itself.
    """
    array: Any = tensor._array
    if isinstance(array, SparseArray):
        return _sparse(tensor, to_device(array, CPU))
    place = tensor.device.type
    if place == "cuda":
        array = array.get()
    name = type(tensor).__name__
    prefix = "Parameter containing:\n" if name == "Parameter" else ""
    head = "tensor(" if name in ("Tensor", "Parameter") else f"{name}("
    shown = tensor.dtype not in _kinds()
    parts = []
    if place != "cpu":
        parts.append(f"device='{tensor.device}'")
    if contents is not None:
        body = contents
    elif place == "meta":
        body = "..."
        parts.append(f"size={tuple(array.shape)}")
        shown = tensor.dtype is not dtypes.get_default_dtype()
    elif not array.size:
        body = "[]"
        if array.ndim != 1:
            parts.append(f"size={tuple(array.shape)}")
        shown = tensor.dtype is not dtypes.get_default_dtype()
    else:
        body = _elements(array, len(head))
    if shown:
        parts.append(f"dtype={tensor.dtype!r}")
    node = _node_name(tensor)
    if node is not None:
        parts.append(f"grad_fn=<{node}>")
    elif tensor._requires_grad:
        parts.append("requires_grad=True")
    whole = prefix + _with_parts(head + body, parts, len(head))
    return f"Parameter({whole})" if getattr(tensor, "_is_param", False) else whole


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements of a tensor, as its text has them after `indent` characters."""
    array = to_device(self.detach()._array, CPU)
    return _elements(array, indent) if array.size else "[]"


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The elements with what is said besides, and the bracket that closes. force_newline: on a line of its own."""
    if not force_newline or not suffixes:
        return _with_parts(tensor_str, suffixes, indent)
    return _with_parts(f"{tensor_str},\n{' ' * indent}{suffixes[0]}", suffixes[1:], indent)


PRINT_OPTS = _options


def _sparse(tensor: Tensor, array: Any) -> str:
    """A sparse tensor: its indices and its values, on lines of their own."""
    lines = []
    for name, part in array.parts().items():
        head = f"{name}=tensor("
        body = _elements(part, len(head)) if part.size else "[]"
        size = f", size={tuple(part.shape)}" if not part.size else ""
        lines.append(textwrap.indent(f"{head}{body}{size})", " " * 7).lstrip())
    rest = [f"size={tuple(array.shape)}", f"nnz={array.nnz}"]
    if tensor.device.type != "cpu":
        rest.insert(0, f"device='{tensor.device}'")
    if tensor.dtype not in _kinds() or (not array.nnz and tensor.dtype is not dtypes.get_default_dtype()):
        rest.append(f"dtype={tensor.dtype!r}")
    rest.append(f"layout=torch.{array.layout}")
    node = _node_name(tensor)
    if node is not None:
        rest.append(f"grad_fn=<{node}>")
    elif tensor._requires_grad:
        rest.append("requires_grad=True")
    prefix = "Parameter containing:\n" if type(tensor).__name__ == "Parameter" else ""
    text = f"{prefix}tensor(" + ",\n       ".join(lines)
    if array.layout != "sparse_coo":
        return _with_parts(text, rest, 7)
    return _with_parts(f"{text},\n       {rest[0]}", rest[1:], 7)


def _kinds() -> tuple[dtypes.DType, ...]:
    """The dtypes that are not said: those that Python's numbers become."""
    default = dtypes.get_default_dtype()
    wide = default is dtypes.float64
    return default, dtypes.complex128 if wide else dtypes.complex64, dtypes.int64, dtypes.bool_


def _node_name(tensor: Tensor) -> str | None:
    """The name of the node that made `tensor`, as it is printed; None for a leaf."""
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view whose base was changed since, in a way that its history cannot follow
        return "Invalid"
    return None if node is None else node.name().rpartition("::")[2]


def _with_parts(text: str, parts: list[str], indent: int) -> str:
    """What is said besides the elements follows them, on a line of its own where the line would be too long."""
    length = len(text) - text.rfind("\n") + 1
    for part in parts:
        if length + len(part) + 2 > _options.linewidth:
            text += f",\n{' ' * indent}{part}"
            length = indent + len(part)
        else:
            text += f", {part}"
            length += len(part) + 2
    return text + ")"


def _elements(array: np.ndarray, indent: int) -> str:
    if array.dtype == dtypes.NARROW[1]:
        array = array.astype(np.float32)
    shown: Any = _shown(array)
    if array.dtype.kind == "c":
        real, imag = _Numbers(shown.real), _Numbers(shown.imag)
        return _nested(array, lambda v: _complex(v, real, imag), real.width + imag.width + 1, indent)
    numbers = _Numbers(shown)
    return _nested(array, numbers.text, numbers.width, indent)


def _complex(value: complex, real: _Numbers, imag: _Numbers) -> str:
    part = imag.text(value.imag).lstrip() + "j"
    return real.text(value.real) + ("" if part[0] in "+-" else "+") + part


def _shown(array: np.ndarray) -> np.ndarray:
    """The elements that will be printed, flat: long dimensions show their ends only."""
    edge = _options.edgeitems
    if array.size > _options.threshold:
        for axis, n in enumerate(array.shape):
            if n > 2 * edge:
                array = np.take(array, [*range(edge), *range(n - edge, n)], axis=axis)
    return array.reshape(-1)


class _Numbers:
    """How real numbers are written: all in one format and of one width, by the range of the values shown."""

    def __init__(self, values: np.ndarray) -> None:
        if values.dtype.kind in "biu":
            self._write: Callable[[Any], str] = str
            self.width = max((len(str(v)) for v in values.tolist()), default=1)
            return
        counted = values[np.isfinite(values) & (values != 0)]  # only these decide format and width
        sizes = np.abs(counted.astype(np.float64))
        whole = bool((np.ceil(sizes) == sizes).all())
        scientific = _options.sci_mode and sizes.size > 0
        if _options.sci_mode is None and sizes.size:
            low, high = sizes.min(), sizes.max()
            scientific = bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)
        self._write = _scientific if scientific else _whole if whole else _fixed
        self.width = max((len(self._write(v)) for v in counted.tolist()), default=1)

    def text(self, value: Any) -> str:
        return self._write(value).rjust(self.width)


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else str(value)


def _fixed(value: float) -> str:
    return f"{value:.{_options.precision}f}"


def _scientific(value: float) -> str:
    return f"{value:.{_options.precision}e}"


def _nested(array: np.ndarray, text: Callable[[Any], str], width: int, indent: int) -> str:
    """Nested brackets; `width`: of one element. Shortened when the whole tensor has too many elements."""
    return _brackets(array, text, width, indent, array.size > _options.threshold)


def _brackets(array: np.ndarray, text: Callable[[Any], str], width: int, indent: int, shorten: bool) -> str:
    if not array.ndim:
        return text(array.item()) if array.dtype.kind == "c" else text(array.item()).strip()
    edge = _options.edgeitems
    cut = shorten and len(array) > 2 * edge
    ends = ([array[:edge], array[len(array) - edge :]]) if cut else [array]
    if array.ndim == 1:
        items = [text(v) for v in ends[0].tolist()]
        if cut:
            items += [" ...", *(text(v) for v in ends[1].tolist())] if edge else ["..."]
        per_line = max(1, (_options.linewidth - indent) // (width + 2))
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_brackets(row, text, width, indent + 1, shorten) for row in ends[0]]
    if cut:
        rows += ["...", *(_brackets(row, text, width, indent + 1, shorten) for row in ends[1])]
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(rows) + "]"
