"""The order of the dimensions in memory: what an array has, and arrays that are to have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

Array = Any
Dims = tuple[int, ...]

CHANNELS_LAST: dict[int, Dims] = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""By the number of dimensions: those of images in channels_last, outermost first."""

# Ops of several operands, whose results lie as the first operand that has an order does.
_OF_OPERANDS = frozenset({
    "add", "atan2", "div", "eq", "floor_divide", "fmod", "ge", "gt", "le", "lerp", "logical_and", "logical_or", "lt",
    "maximum", "minimum", "mul", "ne", "pow", "remainder", "sub", "where",
})  # fmt: skip
# Ops on images whose results lie in channels_last if the input or the weight does. Kernels compute contiguous ones.
_OF_IMAGES = frozenset({
    "batch_norm_train", "constant_pad", "convolution", "convolution_input", "group_norm", "max_pool", "resample",
})  # fmt: skip
# Reductions, whose results lie in order of the dimensions whatever the input does; the kernels of "sum" and extremes see
# to it themselves.
_OF_REDUCTIONS = frozenset({
    "all", "any", "count_nonzero", "nansum", "prod", "std", "std_mean", "var", "var_mean", "vector_norm",
})  # fmt: skip
# Other ops of which the same is true.
_IN_ORDER = frozenset({
    "kthvalue_values", "median_values", "mode_values", "nanmedian_values", "repeat", "scatter_add", "scatter_reduce_by",
    "scatter_src", "topk_values", "tril", "triu",
})  # fmt: skip
# Factors and solutions, which lie column by column, as LAPACK writes them.
_IN_COLUMNS = frozenset({
    "cholesky_factor", "cholesky_solve", "complete_qr", "eig_factor", "eigh_factor", "geqrf_pair", "inv", "ldl_factor",
    "ldl_solve", "lstsq_solution", "lu_factor", "qr_factor", "solve", "solve_triangular", "svd_factor",
})  # fmt: skip
# Ops whose results lie as their input does.
_AS_INPUT = frozenset({"argsort", "flip", "sort_values"})


def memory_order(array: Array) -> Dims:
    """The dimensions, the one with the longest stride first; those that repeat their elements keep their places."""
    if 0 in array.strides:
        return _order_of_operands(array.shape, [array.strides])
    return tuple(sorted(range(array.ndim), key=lambda d: -array.strides[d]))


def in_order(array: Array, dims: Sequence[int]) -> Array:
    """A copy whose memory runs through `dims`, outermost first."""
    out = empty_in_order(array, array.shape, array.dtype, dims)
    out[...] = array
    return out


def reduced_in_order(result: Array, ndim: int) -> Array:
    """What a library's reduction of `ndim` dimensions returned, in order of the dimensions that are left."""
    return result if ndim < 3 or result.flags.c_contiguous else in_order(result, range(result.ndim))


def in_own_order(array: Array, dtype: Any) -> Array:
    """A copy of an array that repeats elements, which NumPy would put innermost, as PyTorch places it."""
    out = empty_in_order(array, array.shape, dtype, memory_order(array))
    out[...] = array
    return out


def empty_in_order(like: Array, shape: Sequence[int], dtype: Any, dims: Sequence[int]) -> Array:
    """A new array of the library of `like` whose memory runs through `dims`."""
    size = [shape[d] for d in dims]
    dense = (
        np.empty(size, dtype)
        if isinstance(like, np.ndarray)
        else np.empty_like(like, dtype=dtype, shape=size, order="C")
    )
    return dense.transpose([dims.index(d) for d in range(len(shape))])


def shaped_like_leaf(flat: Array, leaf: Array) -> Array:
    """A view of flat memory in the shape of `leaf`, and in its order of memory if it has no gaps."""
    dims, shape = order_of_leaf(leaf), leaf.shape
    if dims is None:
        return flat.reshape(shape)
    return flat.reshape([shape[d] for d in dims]).transpose([dims.index(d) for d in range(len(shape))])


def is_in_order(array: Array, dims: Sequence[int]) -> bool:
    """Whether memory runs through `dims` without gaps."""
    step = array.itemsize
    for d in reversed(dims):
        if array.shape[d] != 1:
            if array.strides[d] != step:
                return False
            step *= array.shape[d]
    return True


def lies_like_leaf(grad: Array, leaf: Array) -> bool:
    """Whether `grad` may become the gradient of `leaf` as it lies: see `room_for_gradient`."""
    dims = order_of_leaf(leaf)
    return bool(grad.flags.c_contiguous) if dims is None else is_in_order(grad, dims)


def room_for_gradient(leaf: Array, grad: Array) -> Array:
    """An empty array for the gradient of `leaf`: in its order of memory if it has no gaps, else contiguous."""
    dims = order_of_leaf(leaf) if leaf.shape == grad.shape else None
    return empty_in_order(grad, grad.shape, grad.dtype, range(grad.ndim) if dims is None else dims)


def order_of_leaf(leaf: Array) -> Dims | None:
    """The order that a gradient, or an optimizer's state, has in memory; None for that of the dimensions."""
    if leaf.flags.c_contiguous:
        return None
    dims = memory_order(leaf)
    return dims if is_in_order(leaf, dims) else None


def order_of_images(array: Array) -> Dims | None:
    """The order of channels_last for images that lie in it, be it with gaps; None for all else."""
    shape, strides = array.shape, array.strides
    if len(shape) not in CHANNELS_LAST or strides[1] != array.itemsize or 0 in shape:
        return None
    dims, least = CHANNELS_LAST[len(shape)], 0
    for d in reversed(dims):
        # Of images of one channel and one pixel both orders are true, and they count as contiguous.
        if strides[d] < least or (d == 0 and least == strides[1]):
            return None
        least = strides[d] * max(shape[d], 1)
    return dims


class _Use:
    """Whether the program has asked for an order of memory; `started` is called when it first does."""

    begun = False
    started: Callable[[], None] | None = None


use = _Use()


def begin_use() -> None:
    """From here on results of mixed operands lie as in PyTorch; NumPy prefers the order of the dimensions."""
    if not use.begun:
        use.begun = True
        if use.started is not None:
            use.started()


def lies_in(array: Array, memory_format: Any) -> bool:
    """Whether memory runs through the dimensions in order, or in that of `memory_format`, without gaps."""
    if memory_format is None or memory_format.rank is None:
        return bool(array.flags.c_contiguous)
    return array.ndim == memory_format.rank and is_in_order(array, memory_format.order(array.ndim))


def order_like(array: Array, memory_format: Any) -> Dims | None:
    """The order that the memory of a new array like `array` has; None for that of the dimensions."""
    if memory_format is not None and memory_format.order is not None:
        return None if memory_format.rank is None else memory_format.order(array.ndim)
    return None if array.flags.c_contiguous else memory_order(array)


def placed(
    make: Callable[..., Any], size: tuple[int, ...], order: tuple[int, ...] | None, *args: Any, **options: Any
) -> Any:
    """The tensor `make(size, *args, **options)` with the dimensions of its memory in `order`."""
    if order is None:
        return make(size, *args, **options)
    out = make(tuple([size[d] for d in order]), *args, **options)
    out._array = out._array.transpose([order.index(d) for d in range(len(order))])
    return out


def placing(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of the op `name`, with its results in memory as PyTorch's, at no cost where none can differ."""
    if name in _OF_IMAGES:
        return _of_images(kernel, name.startswith("convolution"))
    if name == "index_by":
        return _of_rows(kernel)
    if name in _OF_REDUCTIONS:
        return _ordered(kernel, 3)
    if name in _IN_ORDER:
        return _ordered(kernel, 2)
    if name in _AS_INPUT:
        return _as_input(kernel)
    if name in _IN_COLUMNS:
        return _in_columns(kernel)
    return _of_operands(kernel) if use.begun and name in _OF_OPERANDS else kernel


def _of_images(kernel: Callable[..., Any], weighted: bool) -> Callable[..., Any]:
    @wraps(kernel)
    def placed(*args: Any) -> Any:
        result = kernel(*args)
        dims = order_of_images(args[0])
        if dims is None and weighted:
            dims = order_of_images(args[1])
        if dims is None:
            return result
        if not isinstance(result, tuple):
            return in_order(result, dims)
        return tuple([in_order(x, dims) if getattr(x, "ndim", 0) == len(dims) else x for x in result])

    return placed


def _ordered(kernel: Callable[..., Any], fewest: int) -> Callable[..., Any]:
    """The kernel with results in order of the dimensions; they are for inputs of less than `fewest` dimensions."""

    @wraps(kernel)
    def placed(array: Any, *args: Any) -> Any:
        result = kernel(array, *args)
        if array.ndim < fewest or result is array:
            return result
        if isinstance(result, tuple):
            return tuple([x if x.flags.c_contiguous else in_order(x, range(x.ndim)) for x in result])
        return result if result.flags.c_contiguous else in_order(result, range(result.ndim))

    return placed


def _in_columns(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def place(matrices: Any, ndim: int) -> Any:
        if getattr(matrices, "ndim", 0) != ndim:  # such as singular values
            return matrices
        if isinstance(matrices, np.ndarray):
            return np.ascontiguousarray(matrices.swapaxes(-1, -2)).swapaxes(-1, -2)
        return in_order(matrices, (*range(ndim - 2), ndim - 1, ndim - 2))

    @wraps(kernel)
    def placed(matrices: Any, *args: Any) -> Any:
        result = kernel(matrices, *args)
        ndim = max(matrices.ndim, getattr(args[0], "ndim", 0)) if args else matrices.ndim
        if isinstance(result, tuple):
            return tuple([place(x, ndim) for x in result])
        return place(result, ndim)

    return placed


def _as_input(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def placed(array: Any, *args: Any) -> Any:
        result = kernel(array, *args)
        if array.flags.c_contiguous:
            return result
        dims = memory_order(array)
        return (
            tuple([in_order(x, dims) for x in result])
            if isinstance(result, tuple)
            else in_order(result, dims)
        )

    return placed


def _of_rows(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def placed(array: Any, index: Any) -> Any:
        result = kernel(array, index)
        rows = index[0] if isinstance(index, tuple) and index else index
        # Images that are chosen lie as before; other indices give arrays in order.
        if getattr(rows, "ndim", 0) != 1 or result.ndim not in CHANNELS_LAST or result.ndim != array.ndim:
            return result
        others = index[1:] if isinstance(index, tuple) else ()
        alone = all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in others)
        dims = order_of_images(array) if alone else None
        return result if dims is None else in_order(result, dims)

    return placed


def _of_operands(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def placed(*args: Any, **kwargs: Any) -> Any:
        result = kernel(*args, **kwargs)
        if kwargs:
            return result  # which lies in what was given for it
        if any(hasattr(x, "nnz") for x in (result, *args)):
            return result  # a sparse array has no order
        strides = {x.strides if x.shape == result.shape else None for x in args if hasattr(x, "strides")}
        if len(strides) == 1 or result.ndim < 2:
            return result  # the library keeps what all have
        operands = [np.broadcast_to(x, result.shape) for x in args if hasattr(x, "strides")]
        dims = _order_of_operands(result.shape, [x.strides for x in operands])
        return result if is_in_order(result, dims) else in_order(result, dims)

    placed.__dict__["nin"] = getattr(kernel, "nin", 0)  # by which ops in place know NumPy's ufuncs
    return placed


def _order_of_operands(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Dims:
    """The order of a result: for each two dimensions the first operand that repeats neither decides."""

    def comes_out(inner: int, outer: int) -> int:
        """1 if the dimension `inner` belongs outside of `outer`, -1 if not, 0 if nothing says so."""
        for steps in strides:
            if steps[inner] and steps[outer]:
                if steps[inner] != steps[outer]:
                    return 1 if steps[inner] > steps[outer] else -1
                if shape[inner] > shape[outer]:
                    return 1
        return 0

    order = list(reversed(range(len(shape))))  # the innermost first
    for i in range(1, len(order)):
        at = i
        for below in reversed(range(i)):
            said = comes_out(order[below], order[at])
            if said > 0:
                order[below], order[at] = order[at], order[below]
                at = below
            elif said < 0:
                break
    return tuple(reversed(order))


def beside(dtype: Any, first: Array, *others: Array) -> tuple[Array, Array, list[Array]]:
    """A new array that lies as `first` does, it as a vector, and all arrays as vectors with elements in that order."""
    if first.flags.c_contiguous:
        out = np.empty(first.shape, dtype)
        return out, out.reshape(-1), [x.ravel() for x in (first, *others)]
    dims = memory_order(first)
    out = empty_in_order(first, first.shape, dtype, dims)
    vectors = [np.ascontiguousarray(x.transpose(dims)).reshape(-1) for x in (first, *others)]
    return out, out.transpose(dims).reshape(-1), vectors
