"""Functions composed of shape ops: dimensions moved, added, removed or repeated; and their in-place forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from ...autograd.accumulate import edge_of, set_history
from ...autograd.grad_mode import mode
from ...autograd.views import check_writable
from ...backend import dtype as dtypes
from ...core.errors import warn_program
from ...core.size import as_ints
from ...core.tensor import Tensor, wrap
from ..creation.data import elements_of
from ..creation.factories import from_numpy
from ..dispatch.signatures import in_place
from ..dispatch.tensor_function import tensor_function
from ..dispatch.views import owned
from ..elementwise import unary
from ..indexing.gather import index_select
from ..reduction.reduce import wrap_dim
from . import shape, strided

Ints = Sequence[int]


@tensor_function()
def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return shape.transpose(input, 0, 1) if input.ndim == 2 else strided.view(input, input.shape)


@tensor_function(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the places `destination`; a view."""
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({sources} dims) should contain the same number of dims "
            f"as destination ({targets} dims)"
        )
    given = sources, targets
    sources, targets = ([wrap_dim("movedim", d, input.ndim) for d in dims] for dims in given)
    for name, dims, said in zip(("source", "destination"), (sources, targets), given, strict=True):
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({said})")
    if not input.ndim:
        return strided.view(input, ())
    rest = iter(d for d in range(input.ndim) if d not in sources)
    dims = [sources[targets.index(i)] if i in targets else next(rest) for i in range(input.ndim)]
    return shape.permute(input, dims)


moveaxis = movedim


def _reversed(input: Tensor) -> Tensor:
    """All dimensions in reverse order: `Tensor.T`."""
    if not input._array.ndim:
        return _of_a_number("T", input)
    if input._array.ndim != 2:
        warn_program(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an "
            "error in a future release. Consider `x.mT` to transpose batches of matrices or "
            "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    return shape.permute(input, tuple(range(input._array.ndim - 1, -1, -1)))


def _of_a_number(name: str, input: Tensor) -> Tensor:
    conjugated = name not in ("T", "mT")
    instead = "Consider using x.conj()." if conjugated else "This function is the identity in these cases."
    warn_program(f"Tensor.{name} is deprecated on 0-D tensors. {instead}")
    return input.conj() if conjugated and input.dtype.is_complex else strided.view(input, ())


def _matrix_transpose(name: str) -> Any:
    def transposed(input: Tensor) -> Tensor:
        if not input.ndim:
            return _of_a_number(name, input)
        if input.ndim < 2:
            raise RuntimeError(
                f"tensor.{name} is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor."
            )
        out = shape.transpose(input, -2, -1)
        return out.conj() if name in ("mH", "H", "adjoint()") and input.dtype.is_complex else out

    return transposed


def _h(input: Tensor) -> Tensor:
    if input.ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor."
        )
    return _matrix_transpose("H")(input)


@tensor_function()
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, complex numbers conjugated."""
    return _matrix_transpose("adjoint()")(input)


PROPERTIES = {"T": _reversed, "mT": _matrix_transpose("mT"), "H": _h, "mH": _matrix_transpose("mH")}
"""Attributes of Tensor that are views."""


@tensor_function()
def ravel(input: Tensor) -> Tensor:
    """The elements as one dimension, in order; a view where they lie so."""
    return shape.reshape(contiguous(input), -1)


@tensor_function()
def unflatten(input: Tensor, dim: int, sizes: Ints) -> Tensor:
    """Dimension `dim` as several, of the given `sizes`; one may be -1."""
    dim = wrap_dim("unflatten", dim, input.ndim)
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    length = input.shape[dim] if input.ndim else 1
    known = 1
    for n in sizes:
        known *= n if n != -1 else 1
    if not (known and length % known == 0 if -1 in sizes else known == length):
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({length}) in the input "
            "tensor"
        )
    sizes = tuple([n if n != -1 else length // known for n in sizes])  # else an empty tensor could not say
    return strided.view(input, (*input.shape[:dim], *sizes, *input.shape[dim + 1 :]))


@tensor_function(method=False)
def broadcast_to(input: Tensor, size: Any, *more: int) -> Tensor:
    """`input` expanded to `size`; a view."""
    return shape.expand(input, size, *more)


@tensor_function()
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`input` expanded to the shape of `other`; a view."""
    return shape.expand(input, other.shape)


@tensor_function()
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The same memory in the shape of `other`."""
    return strided.view(input, other.shape)


@tensor_function()
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The same elements in the shape of `other`."""
    return shape.reshape(input, other.shape)


@tensor_function(out=True)
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow` in new memory."""
    return unary.clone(shape.narrow(input, dim, start, length))


@tensor_function()
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself when its elements lie in order, or in that of `memory_format`, else a copy where they do."""
    if memory_format is not None and memory_format.rank is not None:
        return input if input.is_contiguous(memory_format) else unary.clone(input, memory_format)
    return input if input._array.flags.c_contiguous else shape.to_contiguous(input)


@tensor_function()
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """The same as `transpose`."""
    return shape.transpose(input, axis0, axis1)


@tensor_function()
def tile(input: Tensor, *dims: Any) -> Tensor:
    """The tensor repeated `dims` times, missing leading dimensions taken as 1."""
    strided.require_given("tile", "dims", dims)
    times = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return shape.repeat(input, (1,) * (input.ndim - len(times)) + tuple(times))


@tensor_function()
def repeat_interleave(
    input: Any = None, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (of `dim`, or of all as one dimension) repeated; `repeats` is a number or one for each."""
    if repeats is None or input is None:  # repeat_interleave(repeats): how often each index comes
        input = repeats if input is None else input
        if input.ndim != 1 or input.dtype.name not in ("int32", "int64"):
            raise RuntimeError(
                f"repeats must be a vector of int32 or int64, got {input.ndim} dimensions of {input.dtype.name}"
            )
        counts = Tensor.numpy(input, force=True)
        return from_numpy(_repeated(counts).astype(counts.dtype)).to(input.device)
    if dim is None:
        input, dim = shape.flatten(input) if input.ndim != 1 else input, 0
    dim = wrap_dim("repeat_interleave", dim, input.ndim)
    if not input.ndim:
        raise IndexError("repeat_interleave(): a tensor without dimensions has no dimension to repeat along")
    if type(repeats) is int and repeats >= 0 and output_size is None and dim + 1 == input.ndim:
        return _each_times(input, repeats)  # elements; whole rows are copied faster by their numbers
    length = input.shape[dim]
    if isinstance(repeats, Tensor) and repeats.is_meta:
        if output_size is None:
            raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
        return index_select(input, dim, repeats.new_empty((output_size,), dtype=dtypes.int64))
    counts = elements_of(repeats)
    if counts.dtype.kind not in "iu":
        raise NotImplementedError(f"repeat_interleave(): not implemented for repeats of {counts.dtype}")
    if counts.ndim > 1:
        raise RuntimeError(f"repeats must be 0-dim or 1-dim tensor of int32 or int64, got {counts.dtype}")
    if (counts < 0).any():
        raise RuntimeError("repeats can not be negative")
    if counts.size == 1:
        counts = counts.reshape(1).repeat(length)
    if counts.size != length:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.size} and "
            f"input.size({dim}) = {length}"
        )
    chosen = _repeated(counts)
    if output_size is not None and output_size != chosen.size:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {chosen.size} but got {output_size}"
        )
    return index_select(input, dim, from_numpy(chosen).to(input.device))


def _each_times(input: Tensor, repeats: int) -> Tensor:
    """Each element as often as `repeats` says along the last dimension, in new memory."""
    *outer, last = input.shape
    stretched = shape.repeat(shape.unsqueeze(input, -1), (1,) * input.ndim + (repeats,))
    return shape.reshape(stretched, [*outer, last * repeats])


def _repeated(counts: np.ndarray) -> np.ndarray:
    """Each index as often as `counts` says."""
    return np.arange(counts.size).repeat(counts)


@tensor_function()
def rot90(input: Tensor, k: int = 1, dims: Ints = (0, 1)) -> Tensor:
    """The plane of two dimensions turned by k times 90 degrees, from the first towards the second."""
    (k,) = as_ints("rot90", (k,))
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    first, second = (wrap_dim("rot90", d, input.ndim) for d in dims)
    if first == second:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turns = k % 4
    if turns == 1:
        return owned(shape.transpose(shape.flip(input, second), first, second))
    if turns == 2:
        return shape.flip(input, first, second)
    if turns == 3:
        return shape.flip(shape.transpose(input, first, second), second)
    return unary.clone(input)


@tensor_function()
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return shape.flip(input, 1)


@tensor_function()
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return shape.flip(input, 0)


# -- in place: the tensor keeps its memory and gets another shape -----------------------------


def become(name: str, tensor: Tensor, view: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Make `tensor` itself the view `view(tensor, …)` of its memory, history included."""
    check_writable(name, tensor, None)  # nothing is written
    alias = tensor
    if tensor._view is None:
        alias = wrap(tensor._array)
        alias._versions = tensor._versions
        if tensor._requires_grad and mode.enabled:
            alias._grad_fn, alias._output_nr = edge_of(tensor)
            alias._requires_grad = True
    tensor._versions[0] += 1
    try:
        out = view(alias, *args, **kwargs)
    except Exception:
        tensor._versions[0] -= 1
        raise
    tensor._array = out._array
    before = tensor._view
    if before is None:
        tensor._reshaped = True
    else:
        tensor._view = out._view
        if not mode.enabled and not isinstance(before.root, int) and out._view is not None:
            # It is still a recorded view, whose history is made again when it is next used.
            tensor._view = out._view._replace(root=None)
    if out._requires_grad and out._grad_fn is not None:
        set_history(tensor, out._grad_fn, out._output_nr)
    return tensor


def _in_place(name: str, view: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return become(name, input, view, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{name[:-1]}` in place: the tensor itself gets the other shape."
    method.__module__ = view.__module__
    method.__dict__["__signature__"] = in_place(signature(view))
    return method


IN_PLACE = {
    f"{name}_": _in_place(f"{name}_", view)
    for name, view in (
        ("squeeze", shape.squeeze), ("unsqueeze", shape.unsqueeze), ("transpose", shape.transpose), ("t", t),
        ("swapaxes", swapaxes), ("swapdims", shape.transpose), ("as_strided", strided.as_strided),
    )
}  # fmt: skip
"""Methods of Tensor that change its shape in place."""
