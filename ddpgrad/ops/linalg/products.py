"""Products of vectors and matrices that are made of `matmul` and elementwise products."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from ...core.tensor import Tensor
from ..creation.factories import as_element
from ..dispatch.tensor_function import tensor_function
from ..elementwise import binary, conversion
from ..elementwise.arithmetic import factors_first
from ..reduction import reduce
from ..reduction.reduce import wrap_dim
from ..shape import shape
from . import matrix
from .adjoint import conj
from .matrix import nothing_of

F = TypeVar("F", bound=Callable[..., Tensor])


def _require_one_dtype(name: str, first: Tensor, second: Tensor) -> None:
    if first.dtype is not second.dtype:
        found = f"{first.dtype.scalar_type} and {second.dtype.scalar_type}"
        raise RuntimeError(f"{name} : expected both vectors to have same dtype, but found {found}")


def _require_dims(name: str, *expected: tuple[str, Tensor, int]) -> None:
    """`RuntimeError` unless each tensor, given with its argument's name, has its number of dimensions."""
    words = {1: "a vector (1-D)", 2: "a matrix (2-D)", 3: "a 3D tensor"}
    for argument, tensor, ndim in expected:
        if tensor.ndim != ndim:
            raise RuntimeError(
                f"{name}(): {argument} must be {words[ndim]}, but it has shape {list(tensor.shape)}"
            )


# -- plain products --------------------------------------------------------------------------


@tensor_function(out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, (n, k) @ (k, m)."""
    _require_dims("mm", ("self", input, 2), ("mat2", mat2, 2))
    return matrix.matmul(input, mat2)


@tensor_function(out=True)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two equally long batches of matrices, (b, n, k) @ (b, k, m)."""
    _require_dims("bmm", ("batch1", input, 3), ("batch2", mat2, 3))
    if mat2.shape[:2] != (input.shape[0], input.shape[2]):
        raise RuntimeError(
            f"bmm(): Expected size for first two dimensions of batch2 tensor to be: "
            f"[{input.shape[0]}, {input.shape[2]}] but got: {list(mat2.shape[:2])}."
        )
    return matrix.matmul(input, mat2)


@tensor_function(out=True)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Matrix times vector, (n, k) @ (k)."""
    _require_dims("mv", ("self", input, 2), ("vec", vec, 1))
    return matrix.matmul(input, vec)


@tensor_function(out=True)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors, neither of them conjugated."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    _require_one_dtype("dot", input, tensor)
    if input.shape != tensor.shape:
        raise RuntimeError(
            f"dot(): inconsistent tensor size, expected tensor {list(input.shape)} and src {list(tensor.shape)} to "
            f"have the same number of elements, but got {input.numel()} and {tensor.numel()} elements respectively"
        )
    return matrix.matmul(input, tensor)


@tensor_function(out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two vectors, the first conjugated."""
    return dot(conj(input), other)


@tensor_function(out=True, method=False)
def linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The inner products along `dim`, `x` conjugated, with broadcasting."""
    if x.dtype.category < 2 or y.dtype.category < 2:
        wrong = x if x.dtype.category < 2 else y
        raise RuntimeError(
            f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {wrong.dtype.name}"
        )
    _require_one_dtype("linalg.vecdot", x, y)
    return reduce.sum(conj(x) * y, dim)


@tensor_function(out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The products of the vectors along the last dimension of both; for a number, the product."""
    if not input.ndim or not other.ndim:
        return binary.mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@tensor_function(out=True, aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of one vector with one of the other."""
    for argument, vector in (("self", input), ("vec2", vec2)):
        if vector.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {argument}, but got {vector.ndim}-D")
    return shape.unsqueeze(input, 1) * vec2


@tensor_function(out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of `input` times the whole of `other`, dimension by dimension."""
    ndim = max(input.ndim, other.ndim)
    left = (1,) * (ndim - input.ndim) + tuple(input.shape)
    right = (1,) * (ndim - other.ndim) + tuple(other.shape)
    spread = shape.reshape(input, [n for size in left for n in (size, 1)])
    tiles = shape.reshape(other, [n for size in right for n in (1, size)])
    return shape.reshape(spread * tiles, [a * b for a, b in zip(left, right, strict=True)])


@tensor_function(method=False, out=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The sum of products over `dims`: so many last of `a` and first of `b`, or a list of them for each."""
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.ndim else int(dims.item())
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(
                f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} for shapes {list(a.shape)} and "
                f"{list(b.shape)}"
            )
        dims = (range(a.ndim - dims, a.ndim), range(dims))
    first, second = (
        [d] if isinstance(d, int) else [int(i) for i in (d.tolist() if isinstance(d, Tensor) else d)]
        for d in dims
    )
    if len(first) != len(second):
        raise RuntimeError(f"both dimension lists should have same length, got {first} and {second}")
    first = [wrap_dim("tensordot", d, a.ndim) for d in first]
    second = [wrap_dim("tensordot", d, b.ndim) for d in second]
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has "
                f"size {b.shape[j]} in dim {j}"
            )
        # A dimension of length 1 meets every index of the other.
        if a.shape[i] != b.shape[j]:
            if b.shape[j] == 1:
                a = reduce.sum(a, i, True, a.dtype)
            else:
                b = reduce.sum(b, j, True, b.dtype)
    keep_a = [i for i in range(a.ndim) if i not in first]
    keep_b = [i for i in range(b.ndim) if i not in second]
    size = math.prod(a.shape[i] for i in first)
    rows, columns = [a.shape[i] for i in keep_a], [b.shape[i] for i in keep_b]
    left = shape.reshape(shape.permute(a, (*keep_a, *first)), (math.prod(rows), size))
    right = shape.reshape(shape.permute(b, (*second, *keep_b)), (size, math.prod(columns)))
    return shape.reshape(matrix.matmul(left, right), rows + columns)


# -- products added to something ---------------------------------------------------------------


def _factor(name: str, like: Tensor, factor: Any) -> Any:
    """`factor` for the dtype of `like`: cut to an integer for integers, as PyTorch does; a bool for bools."""
    category = like.dtype.category
    if isinstance(factor, Tensor) and not factor.ndim:
        factor = factor.item()
    if not isinstance(factor, (bool, int, float, complex)) and not hasattr(factor, "__array__"):
        raise TypeError(f"{name}(): beta and alpha must be Numbers, not {type(factor).__name__}")
    if category == 0:
        return bool(factor)
    return as_element(factor, like.dtype)  # which refuses what does not fit


def _weighted(name: str, input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * product. With beta 0, what `input` holds does not matter, be it nan."""
    alpha, beta = _factor(name, product, alpha), _factor(name, product, beta)
    if beta == 0:
        input = nothing_of(input)
    elif beta != 1:
        input = input * beta
    return input + (product if alpha == 1 else product * alpha)


def _added(name: str, input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """`_weighted`, where dtypes must agree and only `input` is broadcast."""
    if input.dtype is not product.dtype:
        raise RuntimeError(
            f"{name}(): self and mat2 must have the same dtype, but got {input.dtype.name} and {product.dtype.name}"
        )
    own, wanted = input._array.shape, product._array.shape
    if own != wanted[len(wanted) - len(own) :]:
        input = shape.expand(input, wanted)
    if alpha == 0 and name != "baddbmm":  # as in BLAS, infinities do not matter then
        product = nothing_of(product)
    return _weighted(name, input, product, beta, alpha)


def _rounded_once(function: F) -> F:
    """`function`, which computes in float32 where all of its tensors have one type of 16 bits."""

    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Tensor:
        if len(args) > 3:
            args, named = factors_first(function.__name__, args, named)
        if len(args) != 3:  # some are given by name
            bound = signature.bind(*args, **named)
            args, named = bound.args, bound.kwargs
        input, left, right = args
        kind = input.dtype
        if kind.itemsize != 2 or kind.category != 2 or not kind is left.dtype is right.dtype:
            return function(input, left, right, **named)
        wide = map(conversion.wide, (input, left, right))
        return conversion.to(function(*wide, **named), kind)

    return call  # type: ignore[return-value]


@tensor_function(inplace=True, out=True)
@_rounded_once
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat1 @ mat2."""
    _require_dims("addmm", ("mat1", mat1, 2), ("mat2", mat2, 2))
    return _added("addmm", input, matrix.matmul(mat1, mat2), beta, alpha)


@tensor_function(inplace=True, out=True)
@_rounded_once
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * mat @ vec."""
    return _added("addmv", input, mv(mat, vec), beta, alpha)


@tensor_function(inplace=True, out=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the outer product of two vectors."""
    _require_dims("addr", ("vec1", vec1, 1), ("vec2", vec2, 1))
    product = outer(vec1, vec2)
    category = max(input.dtype.category, product.dtype.category)
    for factor, value in (("beta", beta), ("alpha", alpha)):
        if isinstance(value, bool) and category:
            raise RuntimeError(f"Boolean {factor} only supported for Boolean results.")
        if isinstance(value, (float, complex)) and category < 2:
            raise RuntimeError(
                f"For integral input tensors, argument {factor} must not be a floating point number."
            )
    return _weighted("addr", shape.expand(input, *product.shape), product, beta, alpha)


@tensor_function(inplace=True, out=True)
@_rounded_once
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2, matrix by matrix."""
    return _added("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@tensor_function(inplace=True, out=True)
@_rounded_once
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the sum over the batch of batch1 @ batch2."""
    _require_dims("addbmm", ("batch1", batch1, 3), ("batch2", batch2, 3))
    if batch2.shape[:2] != (batch1.shape[0], batch1.shape[2]):
        raise RuntimeError(
            f"addbmm(): Expected size for first two dimensions of batch2 tensor to be: "
            f"[{batch1.shape[0]}, {batch1.shape[2]}] but got: {list(batch2.shape[:2])}."
        )
    # The sum over the batch is part of one large product.
    return _added("addbmm", input, tensordot(batch1, batch2, ([0, 2], [0, 1])), beta, alpha)


# -- chains of products ------------------------------------------------------------------------


@tensor_function(method=False)
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, in the cheapest order."""
    tensors = matrices[0] if len(matrices) == 1 and not isinstance(matrices[0], Tensor) else matrices
    for tensor in tensors:
        _require_dims("chain_matmul", ("every argument", tensor, 2))
    if len(tensors) == 1:
        return tensors[0]
    return linalg_multi_dot(tensors, out=out)


@tensor_function(method=False, out=True)
def linalg_multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the cheapest order; the first and the last may be vectors."""
    tensors = list(tensors)
    count = len(tensors)
    if count < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {count}")
    for i, tensor in enumerate(tensors):
        if tensor.ndim != 2 and (tensor.ndim != 1 or 0 < i < count - 1):
            inner, outer = f"tensor {i} must be 2D", f"the {'last' if i else 'first'} tensor must be 1D or 2D"
            raise RuntimeError(f"multi_dot(): {inner if 0 < i < count - 1 else outer} but got {tensor.ndim}D")
        if tensor.dtype is not tensors[0].dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {tensors[0].dtype.name} and "
                f"tensor {i} is {tensor.dtype.name}"
            )
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    tensors[0] = shape.unsqueeze(tensors[0], 0) if first else tensors[0]
    tensors[-1] = shape.unsqueeze(tensors[-1], 1) if last else tensors[-1]
    for i, (a, b) in enumerate(pairwise(tensors)):
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a.shape)} and {list(b.shape)} cannot be "
                "multiplied"
            )
    split = _cheapest_splits([t.shape[0] for t in tensors] + [tensors[-1].shape[1]])
    result = _chain(tensors, split, 0, count - 1)
    result = shape.squeeze(result, 1) if last else result
    return shape.squeeze(result, 0) if first else result


def _chain(tensors: list[Tensor], split: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    """The product of matrices i..j, each part of which is split as `split` says."""
    if i == j:
        return tensors[i]
    k = split[i, j]
    return matrix.matmul(_chain(tensors, split, i, k), _chain(tensors, split, k + 1, j))


def _cheapest_splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split matrices i..j, matrix k being sizes[k] x sizes[k + 1], so that multiplying costs least.

    Cormen, Leiserson, Rivest, Stein: Introduction to Algorithms, matrix-chain order.
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            costs = {
                k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)
            }
            split[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[split[i, j]]
    return split


# -- cross products ----------------------------------------------------------------------------


@tensor_function(out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along `dim` of length 3, by default the first such dimension."""
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"cross(): no dimension of size 3 in input {list(input.shape)}")
    return linalg_cross(input, other, dim=dim)


@tensor_function(method=False, out=True)
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product along `dim` of length 3, with broadcasting of the other dimensions."""
    if input.ndim != other.ndim:
        raise RuntimeError(
            f"linalg.cross: inputs must have the same number of dimensions, got {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    _require_one_dtype("linalg.cross", input, other)
    along = wrap_dim("linalg.cross", dim, input.ndim)
    if (sizes := (input.shape[along], other.shape[along])) != (3, 3):
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {sizes[0]} and {sizes[1]}"
        )
    first, second = (shape.roll(input, -1, dim), shape.roll(input, -2, dim))
    return first * shape.roll(other, -2, dim) - second * shape.roll(other, -1, dim)


__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "cross", "dot", "inner", "kron",
    "linalg_cross", "linalg_multi_dot", "linalg_vecdot", "mm", "mv", "outer", "tensordot", "vdot",
]  # fmt: skip
