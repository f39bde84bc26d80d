"""Functions that PyTorch takes apart before anybody is told: the parts that it is told of, as calls of functions here.

Values are those that PyTorch gives; where the parts of a function are not known here, it runs as ever, and the ops that it
is made of are told.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from ...autograd.grad_mode import mode
from ...backend.meta.array import MetaArray
from ...core.dispatching import DisableTorchDispatch, passed, tells
from ...core.size import contiguous_format
from ...core.tensor import Tensor
from ...ops.creation.data import tensor
from ...ops.creation.factories import empty_like
from ...ops.dispatch.vocabulary import VOCABULARY as F
from ...ops.elementwise.conversion import to
from ...ops.reduction.sorting import sort
from .below import OF_OPS, PARTS, below, op_of, parts_of, parts_of_op, told
from .names import Call, trimmed
from .owned import functional


def unsafe_view(input: Tensor, size: Any) -> Tensor:
    """A view of what nobody else has."""
    return told("_unsafe_view", (input, list(size)))


# -- products ---------------------------------------------------------------------------------------


@parts_of_op("matmul")
def _matmul(a: Tensor, b: Tensor) -> Any:
    dims = a.ndim, b.ndim
    if dims in _PRODUCTS:
        return tell_product(_PRODUCTS[dims], a, b)
    if 0 in dims:
        return NotImplemented
    if dims[0] > 2 and dims[1] <= 2:
        rows = _as_rows(a)
        product = tell_product(_PRODUCTS[2, dims[1]], rows, b)
        return unsafe_view(product, (*a.shape[:-1], *b.shape[1:]))
    if dims == (1, 2):
        return F.squeeze(tell_product("mm", F.unsqueeze(a, 0), b), 0)
    if dims[0] == 1:
        return F.squeeze(_matmul(F.unsqueeze(a, 0), b), -2)
    batch = _broadcast(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    n = math.prod(batch)
    left, right = (F.reshape(F.expand(t, (*batch, *t.shape[-2:])), (n, *t.shape[-2:])) for t in (a, b))
    return unsafe_view(tell_product("bmm", left, right), (*batch, a.shape[-2], b.shape[-1]))


def _as_rows(input: Tensor) -> Tensor:
    return F.reshape(input, (math.prod(input.shape[:-1]), input.shape[-1]))


@parts_of("bmm")
def _bmm(input: Tensor, mat2: Tensor) -> Any:
    return tell_product("bmm", input, mat2)


def tell_product(name: str, a: Tensor, b: Tensor) -> Any:
    """Tell of a product of two matrices, a matrix and a vector, two vectors, or batches of matrices."""
    return below(Call(name, (a, b)), lambda: passed(F.matmul, (a, b), {}), op_of("matmul"), (a, b))


_PRODUCTS = {(2, 2): "mm", (2, 1): "mv", (1, 1): "dot"}


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


@parts_of_op("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    if weight.ndim != 2 or not input.ndim:
        return NotImplemented
    if input.ndim == 2:
        rows = input
    elif bias is None and input.ndim > 2:
        return F.matmul(input, _t(weight))
    else:
        rows = _as_rows(input)
    turned = _t(weight)
    call = Call("mm", (rows, turned)) if bias is None else Call("addmm", (bias, rows, turned))
    out = below(
        call, lambda: passed(F.linear, (rows, weight, bias), {}), op_of("linear"), (rows, weight, bias)
    )
    return out if rows is input else F.view(out, (*input.shape[:-1], weight.shape[0]))


def _t(input: Tensor) -> Tensor:
    return PARTS["t"](input)


# -- views ------------------------------------------------------------------------------------------


@parts_of("t")
def _transposed(input: Tensor) -> Any:
    call = Call("t", (input,))
    if input.ndim < 2:
        return below(call, lambda: F.alias(input))
    return below(call, lambda: F.transpose(input, 0, 1), op_of("transpose"), (input, 0, 1))


@parts_of_op("reshape")
def _reshape(input: Tensor, shape: Any) -> Any:
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    if _viewable(input, sizes):
        return F.view(input, tuple(sizes))
    return unsafe_view(F.clone(input, contiguous_format), sizes)


def _viewable(input: Tensor, sizes: list[int]) -> bool:
    """Whether a reshape needs no copy: by a view of an array of the same steps."""
    if input.is_contiguous():
        return True
    array = input._array
    made = MetaArray(array.shape, array.dtype, None, array.strides)
    return made.reshape(tuple(sizes)).base is not None


# -- elementwise ------------------------------------------------------------------------------------


@parts_of_op("div")
def _div(a: Any, b: Any) -> Any:
    return NotImplemented if isinstance(a, Tensor) else F.mul(F.reciprocal(b), a)


@parts_of_op("where")
def _where(condition: Tensor, input: Any, other: Any) -> Any:
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        return NotImplemented
    known = next((t for t in (input, other) if isinstance(t, Tensor)), None)

    def made(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value
        dtype = None if known is None else known.dtype
        kwargs = {"dtype": dtype, "layout": condition.layout, "device": condition.device}
        return told("scalar_tensor", (value,), kwargs)

    return F.where(condition, made(input), made(other))


@parts_of_op("cross_entropy_rows")
def _cross_entropy(
    input: Tensor, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> Any:
    if label_smoothing or input.ndim > 2:
        return NotImplemented
    logarithms = F.log_softmax(input, input.ndim - 1)
    return functional().nll_loss(logarithms, target, weight, ignore_index=ignore_index, reduction=reduction)


def _of_softmax(name: str) -> Callable[..., Any]:
    def softmax(input: Tensor, dim: int, dtype: Any) -> Any:
        if dtype is None or dtype is input.dtype:
            return NotImplemented
        return getattr(F, name)(F.cast(input, dtype), dim)

    return softmax


OF_OPS["softmax"], OF_OPS["log_softmax"] = _of_softmax("softmax"), _of_softmax("log_softmax")


@parts_of_op("dropout")
def _dropout(input: Tensor, p: float, source: Any) -> Any:
    if source is not None or not 0 < p < 1:
        return NotImplemented
    recording, mode.enabled = mode.enabled, False
    try:
        noise: Any = empty_like(input)
        noise.bernoulli_(1 - p)
        noise = told("div_", (noise, 1 - p), {}, "Scalar")
    finally:
        mode.enabled = recording
    return F.mul(input, noise)


# -- what reads or leaves the graph -------------------------------------------------------------------

_DETACH = Tensor.detach
_ITEM = Tensor.item


@parts_of("detach")
def _detach(input: Tensor) -> Any:
    out = below(Call("detach", (input,)), lambda: _DETACH(input), recorded=False)
    if tells(out) and out is not input:
        out._versions = input._versions
    return out


@parts_of("data")
def _data(input: Tensor) -> Any:
    return below(Call("detach", (input,)), lambda: _DETACH(input), recorded=False)


@parts_of("item")
def _item(input: Tensor) -> Any:
    return below(Call("_local_scalar_dense", (input,)), lambda: _ITEM(input), recorded=False)


def _converting(kind: type) -> Callable[[Tensor], Any]:
    return lambda input: kind(_item(input))


PARTS["__iter__"] = lambda input: iter(F.unbind(input, 0))
PARTS |= {f"__{kind.__name__}__": _converting(kind) for kind in (bool, int, float, complex)} | {
    "__index__": _converting(int)
}


# -- other functions ----------------------------------------------------------------------------------


@parts_of("nonzero")
def _nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    if not as_tuple:
        return NotImplemented
    places = F.nonzero(input)
    return F.unbind(places if input.ndim else F.unsqueeze(places, 0), 1)


@parts_of_op("isfinite")
def _isfinite(input: Tensor) -> Any:
    if not input.is_floating_point():
        return NotImplemented
    return F.mul(F.eq(input, input), F.ne(F.abs(input), float("inf")))


@parts_of_op("rms_norm")
def _rms_norm(input: Tensor, weight: Tensor | None, ndim: int, eps: float) -> Any:
    mean = F.mean(F.square(input), tuple(range(input.ndim - ndim, input.ndim)), True)
    out = F.mul(input, F.rsqrt(F.add(mean, eps)))
    return out if weight is None else F.mul(out, weight)


@parts_of("unique")
def _unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is not None:
        results = told("unique_dim", (input, dim, sorted, return_inverse, return_counts))
        kept = [t for t, wanted in zip(results, (True, return_inverse, return_counts), strict=True) if wanted]
        return tuple(kept) if len(kept) > 1 else kept[0]
    args = trimmed(
        (input, sorted, return_inverse or (return_counts and return_inverse), return_counts),
        (None, True, False, False),
    )
    out, inverse, counts = told("_unique2", args)
    results = (out, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return results if len(results) > 1 else out


@parts_of("argsort")
def _argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return sort(input, dim, descending)[1]


@parts_of("to")
def _to(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    flags = [arg for arg in args if isinstance(arg, bool)]
    if not (kwargs.get("copy") or any(flags[1:])):
        return NotImplemented
    given = {k: v for k, v in kwargs.items() if k != "copy"}
    out = inspect.unwrap(to)(input, *[a for a in args if not isinstance(a, bool)], **given)
    if out is not input:
        return out
    return told("_to_copy", (input,), {"dtype": input.dtype, "layout": input.layout, "device": input.device})


@parts_of("tensor")
def _tensor(*args: Any, **kwargs: Any) -> Any:
    with DisableTorchDispatch():
        made = tensor(*args, **kwargs)
    return told("lift_fresh", (made,))
