"""Turns the exception of a kernel into an error that names the op, the shapes and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.registry import SparseArray, backend_for
from ...core.errors import (
    DdpgradError,
    DeviceError,
    LinAlgError,
    NoElementsError,
    OutOfMemoryError,
    must_be_tensor,
    out_of_memory,
)
from ...core.tensor import Tensor

if TYPE_CHECKING:
    from .declare import Op


_NOT_BOOL = (
    "on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or `logical_not()` operator "
    "instead."
)
NEGATED_BOOL = f"Negation, the `-` operator, {_NOT_BOOL}"
BOOL_MINUS = f"Subtraction, the `-` operator, {_NOT_BOOL.replace('on a', 'with a', 1)}"
BOOLS_MINUS = (
    "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator "
    "instead."
)


# What users call the ops that are parts of a public function.
_SAID = {
    "slice_by": "getitem", "index_by": "getitem", "scatter_src": "scatter", "scatter_reduce_by": "scatter_reduce",
    "strided": "as_strided", "attention": "scaled_dot_product_attention", "embedding_rows": "embedding",
    "cross_entropy_rows": "cross_entropy", "nll_loss_rows": "nll_loss",
}  # fmt: skip


def said(op: Op) -> str:
    """What users call `op`, for messages."""
    return _SAID.get(op.name, op.name)


# What NumPy and CuPy say of dtypes that a function is not made for.
_NO_LOOP = ("not supported for the input types", "did not contain a loop", "Wrong type")


def _dtypes_of(tensors: Sequence[Tensor]) -> str:
    return " and ".join(dict.fromkeys(f"'{t.dtype.scalar_type}'" for t in tensors)) or "these arguments"


def explain(op: Op, args: Sequence[Any], error: Exception) -> Exception:
    """The exception to raise instead of `error`: same kind where PyTorch has the same kind."""
    if isinstance(error, MemoryError) and type(error).__module__.startswith("cupy"):
        return OutOfMemoryError(f"{said(op)}(): CUDA out of memory. {error}")
    if isinstance(error, MemoryError):
        return out_of_memory(said(op), error)
    tensors = [a for a in _flatten(args) if isinstance(a, Tensor)]
    sparse = any(isinstance(t._array, SparseArray) for t in tensors)
    if sparse and op.name in _SAID and type(error) is NotImplementedError:
        return NotImplementedError(str(error).replace(op.name, said(op)))
    if sparse and isinstance(error, (TypeError, AttributeError)):
        return NotImplementedError(
            f"Could not run 'aten::{said(op)}' with arguments from the 'SparseCPU' backend: {said(op)} is not defined for "
            f"sparse tensors here. Call to_dense() first. ({error})"
        )
    if isinstance(error, (DdpgradError, NotImplementedError)) and not isinstance(error, NoElementsError):
        return error
    for withheld in (t._array for t in tensors if hasattr(t._array, "why")):  # no kernel may take it
        return NotImplementedError(f"{said(op)}: {withheld.why}")
    if isinstance(error, (TypeError, AttributeError)) and not op.sequence and len(args) == len(op.params):
        require_tensors(op, args)
    if len({t.device for t in tensors}) > 1:
        return different_devices(op.name, [t._array for t in tensors])
    if isinstance(error, NoElementsError):
        return NoElementsError(f"{said(op)}(): {error}")
    shapes = ", ".join(f"{list(t.shape)} {t.dtype.name}" for t in tensors)
    called = f"{said(op)}({shapes})"
    hint = (
        _index_hint(args, str(error))
        if isinstance(error, IndexError)
        else _hint(op, args, tensors, str(error))
    )
    if hint is None and isinstance(error, TypeError) and any(part in str(error) for part in _NO_LOOP):
        return NotImplementedError(f"{called}: not implemented for {_dtypes_of(tensors)}")
    text = f"{called}: {hint or _in_our_words(str(error))}"
    if "slice indices" in text:
        return TypeError(text)
    if isinstance(error, IndexError):
        return IndexError(text)
    if isinstance(error, np.linalg.LinAlgError):
        return LinAlgError(text)
    # A TypeError too is about dtypes here, which is a RuntimeError in PyTorch.
    return RuntimeError(text)


def require_tensors(op: Op, args: Sequence[Any]) -> None:
    """`TypeError` when an argument of `op` that must be a Tensor is a number or something else."""
    for i in op.tensors:
        value = args[i]
        if isinstance(value, (Tensor, np.ndarray)) or value is op.defaults[i]:
            continue
        if i not in op.numbers or not isinstance(value, (bool, int, float, complex, np.generic)):
            raise must_be_tensor(said(op), op.params[i], i, value)


def no_rule(what: str) -> Callable[[Any, Any], Any]:
    """The gradient rule of what has none: it raises PyTorch's error. what: "op: parameter"."""

    def rule(F: Any, g: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{what}' is not implemented.")

    return rule


def require_integers(name: str, *operands: Any) -> None:
    """`NotImplementedError`, as PyTorch has it, unless all operands are integers or bools."""
    for x in operands:
        if not isinstance(x, (bool, int, np.integer, np.bool_)) and not (
            isinstance(x, Tensor) and x.dtype.category < 2
        ):
            kind = x.dtype.scalar_type if isinstance(x, Tensor) else type(x).__name__
            raise NotImplementedError(f"{name}(): not implemented for '{kind}'; expected integers or bools")


def different_devices(name: str, arrays: Sequence[Any]) -> DeviceError:
    """The error for raw arrays that lie on different devices."""
    devices = sorted({str(backend_for(a).device_of(a)) for a in arrays})
    return DeviceError(
        f"{name}(): expected all tensors to be on the same device, but found at least two devices, "
        f"{' and '.join(devices)}. Move them with Tensor.to(device) first."
    )


def require_one_kind(name: str, *arrays: Any) -> None:
    """`DeviceError` for raw arrays of which some are on the CPU and some on GPUs."""
    if (
        any(a.__class__ is not arrays[0].__class__ for a in arrays)
        and len({backend_for(a).kind for a in arrays}) > 1
    ):
        raise different_devices(name, arrays)


def _flatten(args: Sequence[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]


def _index_hint(args: Sequence[Any], text: str) -> str | None:
    """What is wrong with an index, args[1], of args[0], where NumPy said `text`; in PyTorch's words."""
    if len(args) < 2:
        return None
    parts = args[1] if isinstance(args[1], tuple) else (args[1],)
    if "boolean index did not match" in text:
        dim = int(text.partition(";")[0].rpartition(" ")[2])
        mask = next(list(p.shape) for p in parts if getattr(p, "dtype", None) == np.bool_)
        return (
            f"The shape of the mask {mask} at index {dim if len(mask) > 1 else 0} does not match the shape of the indexed tensor "
            f"{list(args[0].shape)} at index {dim}"
        )
    if "too many indices" in text:
        return f"too many indices for tensor of dimension {args[0].ndim}"
    if "are valid indices" in text:
        wrong = [
            type(p).__name__
            for p in parts
            if not isinstance(p, (int, slice, np.ndarray, type(None), type(...)))
        ]
        return (
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got "
            f"{wrong[0] if wrong else 'others'})"
        )
    return None


def _in_our_words(text: str) -> str:
    """NumPy's message with PyTorch's terms."""
    shapes = r"array (?:from|of) shape (\(.*?\))\s+(?:could not be broadcast to indexing result of|into) shape (\(.*?\))"
    if found := re.search(shapes, text):
        value, into = ([int(n) for n in re.findall(r"\d+", part)] for part in found.groups())
        hint = broadcast_hint(into, value) or f"{len(value)} dimensions are too many"
        return f"shape mismatch: value tensor of shape {value} cannot be broadcast to indexing result of shape {into}: {hint}"
    text = (
        text.replace("along axis", "along dimension")
        .replace("for axis", "for dimension")
        .replace("numpy ", "")
    )
    return text.replace("arrays", "tensors").replace("array", "tensor")


def _hint(op: Op, args: Sequence[Any], tensors: Sequence[Tensor], text: str) -> str | None:
    """What is wrong, where it is known; `text` is what the kernel says."""
    if op.name == "cat":
        return _cat_hint(tensors, args[1])
    if op.name == "neg" and tensors[0].dtype.category == 0:
        return NEGATED_BOOL
    shapes = [tuple(t.shape) for t in tensors]
    if op.promotion is not None or op.name == "masked_fill" or "be broadcast together" in text:
        return broadcast_hint(*shapes)
    if op.name == "matmul" and len(shapes) == 2:
        return broadcast_hint(shapes[0][:-2], shapes[1][:-2])
    return None


def _cat_hint(tensors: Sequence[Tensor], dim: int) -> str | None:
    """Which tensor of a list has another shape than the first."""
    first = tensors[0].shape
    for i, t in enumerate(tensors):
        if t.ndim != len(first):
            return f"Tensors must have same number of dimensions: got {len(first)} and {t.ndim} (tensor number {i})"
        for d, (n, m) in enumerate(zip(first, t.shape, strict=True)):
            if n != m and d != dim:
                return (
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but got size {m} for "
                    f"tensor number {i} in the list."
                )
    return None


def broadcast_hint(*shapes: Sequence[int]) -> str | None:
    """For shapes that do not broadcast: which dimension of the first such two disagrees, as PyTorch says it."""
    for b, a in ((b, a) for i, b in enumerate(shapes) for a in shapes[:i]):
        for back in range(1, min(len(a), len(b)) + 1):
            if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
                return (
                    f"The size of tensor a ({a[-back]}) must match the size of tensor b ({b[-back]}) at "
                    f"non-singleton dimension {max(len(a), len(b)) - back}"
                )
    return None
