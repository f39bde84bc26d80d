"""Rules of kernels: which parts of their operands ranks need for their parts of the result (`mesh_kernels.py`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.dtype import numpy_of
from .layout import REPLICATE, AnyShard, layout_of
from .mesh_array import MeshArray, on_wholes, without_partial
from .mesh_functions import along, axes_of, product, reduce_along
from .mesh_kernels import mesh_array, rule
from .spreading import elementwise, spread

# -- new arrays, other types ------------------------------------------------------------------------


@rule("asarray")
def _asarray(F: Any, kernel: Any, data: Any, dtype: Any = None, like: Any = None) -> Any:
    return data if dtype is None else _cast(F, kernel, data, dtype)


@rule("cast")
def _cast(F: Any, kernel: Any, input: Any, dtype: Any) -> Any:
    target = numpy_of(dtype)
    if input.dtype == target:
        return input
    linear = "each" if target.kind in "fcV" and input.dtype.kind in "fcV" else ""
    return elementwise(lambda part: F.local.cast(part, dtype), [input], linear)


@rule("new_zeros")
def _new_zeros(F: Any, kernel: Any, input: Any, shape: Any) -> Any:
    alike = tuple(shape) == input.shape
    placements = without_partial(input.placements) if alike else (REPLICATE,) * input.mesh.ndim
    layout = layout_of(input.mesh, placements, shape)
    return input.__class__(kernel(input.part, layout.part_shape), layout)


@rule("full_like")
def _full_like(F: Any, kernel: Any, input: Any, value: Any) -> Any:
    layout = input.layout.placed(without_partial(input.placements))
    return input.__class__(kernel(input.part, value), layout)


@rule("move")
def _move_to_device(F: Any, kernel: Any, input: Any, *how: Any) -> Any:
    return mesh_array(kernel(input.part, *how), input.layout)


# -- writing -----------------------------------------------------------------------------------------


@rule("overwrite")
def _overwrite(F: Any, kernel: Any, out: Any, value: Any) -> None:
    out[...] = value


@rule("fill_where")
def _fill_where(F: Any, kernel: Any, out: Any, mask: Any, value: Any) -> None:
    out[...] = F.where(mask, value if hasattr(value, "dtype") else np.asarray(value, out.dtype), out)


# -- reductions ----------------------------------------------------------------------------------------

_PARTIAL = {"sum": "sum", "amax": "max", "amin": "min", "prod": "product"}


def _reduction(name: str) -> Any:
    reduces = _PARTIAL.get(name)

    def applied(F: Any, kernel: Any, input: Any, dim: Any = None, *args: Any, **options: Any) -> Any:
        after = [options.pop(key) for key in ("keepdim", "dtype") if key in options]
        args = (*args, *after)
        at = 1 if name in ("var", "std", "var_mean", "std_mean") else 0  # where keepdim is, after correction
        keepdim = bool(args[at]) if len(args) > at else False
        axes = axes_of(dim, input.ndim)
        return reduce_along(input, axes, keepdim, reduces, lambda part: kernel(part, dim, *args))

    return applied


for _name in (
    "sum", "amax", "amin", "prod", "any", "all", "argmax", "argmin", "nansum", "count_nonzero", "var", "std", "var_mean", "std_mean",
):  # fmt: skip
    rule(_name)(_reduction(_name))


@rule("contiguous", "to_contiguous")
def _contiguous(F: Any, kernel: Any, input: Any) -> Any:
    if input.flags.c_contiguous:
        return input
    part = kernel(input.part)
    return input.of(
        part.reshape(-1).reshape(part.shape)
    )  # with the steps of its order also where a size is 1


@rule("mean")
def _mean(F: Any, kernel: Any, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    axes = axes_of(dim, input.ndim)
    ranks = math.prod(n for d, n in input.divided.items() if d in axes)
    equal = all(input.shape[d] % ranks == 0 for d in axes)
    return reduce_along(
        input, axes, keepdim, "avg" if equal else None, lambda part: kernel(part, dim, keepdim, dtype)
    )


@rule("max_values", "min_values", "median_values", "nanmedian_values", "kthvalue_values", "mode_values")
def _chosen(F: Any, kernel: Any, input: Any, dim: int, keepdim: bool = True, options: Any = ()) -> Any:
    axes = axes_of(dim, input.ndim)
    return reduce_along(input, axes, keepdim, None, lambda part: kernel(part, dim, keepdim, options))


@rule(
    "argsort",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "softmax",
    "log_softmax",
    "flip",
    "running_position",
    "glu",
)
def _along_dim(F: Any, kernel: Any, input: Any, dim: Any = -1, *args: Any) -> Any:
    return along(input, axes_of(dim, input.ndim), lambda part: kernel(part, dim, *args))


@rule("sort_values", "topk_values", "cummax_values", "cummin_values")
def _ordered(F: Any, kernel: Any, input: Any, dim: int, *args: Any) -> Any:
    return along(input, axes_of(dim, input.ndim), lambda part: kernel(part, dim, *args))


@rule("roll")
def _roll(F: Any, kernel: Any, input: Any, shifts: Any, dims: Any = None) -> Any:
    if dims is None:
        return on_wholes(kernel, (input, shifts, dims), {})
    return along(input, axes_of(dims, input.ndim), lambda part: kernel(part, shifts, dims))


@rule("softmax_backward", "log_softmax_backward")
def _softmax_backward(F: Any, kernel: Any, g: Any, out: Any, dim: int) -> Any:
    own = [None if d == dim % out.ndim else d for d in range(out.ndim)]
    return spread(lambda a, b: kernel(a, b, dim), [g, out], [own, own], [own])


@rule("glu_backward")
def _glu_backward(F: Any, kernel: Any, g: Any, input: Any, dim: int) -> Any:
    own = [None if d == dim % input.ndim else d for d in range(input.ndim)]
    return spread(lambda a, b: kernel(a, b, dim), [g, input], [own, own], [own])


@rule("max_of_all")
def _max_of_all(F: Any, kernel: Any, input: Any) -> Any:
    return F.amax(input)


@rule("min_of_all")
def _min_of_all(F: Any, kernel: Any, input: Any) -> Any:
    return F.amin(input)


@rule("vector_norm")
def _vector_norm(F: Any, kernel: Any, x: Any, ord: float, dim: Any, keepdim: bool = False) -> Any:
    return reduce_along(x, axes_of(dim, x.ndim), keepdim, None, lambda part: kernel(part, ord, dim, keepdim))


@rule("tril", "triu")
def _triangle(F: Any, kernel: Any, input: Any, diagonal: int = 0) -> Any:
    return along(input, axes_of((-2, -1), input.ndim), lambda part: kernel(part, diagonal))


# -- products ------------------------------------------------------------------------------------------


@rule("matmul")
def _matmul(F: Any, kernel: Any, input: Any, other: Any) -> Any:
    return product(input, other, kernel)


@rule("linear")
def _linear(F: Any, kernel: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    lead = list(range(len(input.shape) - 1))
    columns = ["column"] * (len(weight.shape) - 1)
    out = spread(
        lambda a, w: kernel(a, w, None),
        [input, weight],
        [[*lead, "sum"], [*columns, "sum"]],
        [[*lead, *columns]],
        linear="one",
    )
    if bias is None:
        return out
    if not isinstance(bias, MeshArray) or not bias.ndim:
        return out + bias
    # To a sum over ranks one of them adds the bias.
    last = out.ndim - 1
    placements = [
        p.at(0) if isinstance(p, AnyShard) and p.dim == last else p if p.is_partial() else REPLICATE
        for p in out.placements
    ]
    return out.of(out.part + bias.placed(placements).part)


@rule("weight_gradient")
def _weight_gradient(F: Any, kernel: Any, g: Any, input: Any, target: Any) -> Any:
    lead = [("sum", d) for d in range(g.ndim - 1)]

    def compute(a: Any, b: Any) -> Any:
        rows = [x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) for x in (a, b)]
        return kernel(rows[0], rows[1], None)

    return spread(compute, [g, input], [[*lead, "row"], [*lead, "column"]], [["row", "column"]])


# -- layers --------------------------------------------------------------------------------------------------


@rule("convolution")
def _convolution(F: Any, kernel: Any, input: Any, weight: Any, bias: Any = None, *options: Any) -> Any:
    """Images are independent of one another."""
    inner = [None] * (len(input.shape) - 1)
    labels = [["image", *inner], [None] * len(weight.shape), [None] if bias is not None else []]
    return spread(
        lambda a, w, b: kernel(a, w, b, *options), [input, weight, bias], labels, [["image", *inner]]
    )


@rule("convolution_input")
def _convolution_input(F: Any, kernel: Any, grad: Any, weight: Any, input_shape: Any, *options: Any) -> Any:
    inner = [None] * (len(grad.shape) - 1)

    def compute(g: Any, w: Any) -> Any:
        return kernel(g, w, (g.shape[0], *input_shape[1:]), *options)

    return spread(
        compute, [grad, weight], [["image", *inner], [None] * len(weight.shape)], [["image", *inner]]
    )


@rule("convolution_weight")
def _convolution_weight(F: Any, kernel: Any, grad: Any, input: Any, weight_shape: Any, *options: Any) -> Any:
    own = ["image", *[None] * (len(grad.shape) - 1)]
    out = [None] * len(weight_shape)
    return spread(lambda g, x: kernel(g, x, weight_shape, *options), [grad, input], [own, own], [out])


@rule("dropout")
def _dropout(F: Any, kernel: Any, input: Any, p: float = 0.5, source: Any = None) -> Any:
    """The mask is that of the whole, of which each rank takes its part."""
    if not hasattr(source, "shape"):
        return on_wholes(kernel, (input, p, source), {})
    return elementwise(lambda a, m: kernel(a, p, m), [input, source])
