"""ONNX export of products, convolutions, pools, norms, embeddings and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import ExportError
from .graph import CONVERTERS, Graph, converts
from .pointwise import reduced
from .trace import Step

CONVERTERS.update(
    {
        "embedding_rows": lambda g, s: g.node("Gather", [s.input, s.indices], axis=0),
        "matmul": lambda g, s: g.node("MatMul", [s.input, s.other]),
    }
)


@converts("linear")
def _linear(g: Graph, s: Step) -> str:
    weight = g.node("Transpose", [s.weight], perm=[1, 0]) if len(s.weight.shape) == 2 else g.of(s.weight)
    out = g.node("MatMul", [s.input, weight])
    return out if s.bias is None else g.node("Add", [out, s.bias])


@converts("convolution")
def _convolution(g: Graph, s: Step) -> str:
    inputs = [g.of(getattr(s, name)) for name in ("input", "weight", "bias") if getattr(s, name) is not None]
    return g.node("Conv", inputs, **_window(s), pads=[*s.padding, *s.padding], group=s.groups)


@converts("convolution_input")
def _transposed(g: Graph, s: Step) -> str:
    image, kernel = s.input_shape[2:], s.weight.shape[2:]
    if not all(isinstance(n, int) for n in image):
        raise g.follows("the size of a transposed convolution")
    reach = [
        (n - 1) * st + d * (k - 1) + 1
        for n, st, d, k in zip(s.grad.shape[2:], s.stride, s.dilation, kernel, strict=True)
    ]
    # What the strides leave over at the end of the output.
    extra = [n + 2 * p - r for n, p, r in zip(image, s.padding, reach, strict=True)]
    return g.node(
        "ConvTranspose",
        [s.grad, s.weight],
        **_window(s),
        pads=[*s.padding, *s.padding],
        output_padding=extra,
        group=s.groups,
    )


def _window(s: Step) -> dict[str, Any]:
    return {
        "kernel_shape": list(s.weight.shape[2:]),
        "strides": list(s.stride),
        "dilations": list(s.dilation),
    }


@converts("max_pool")
def _max_pool(g: Graph, s: Step) -> list[str]:
    """The largest elements, and their places in the image; ONNX counts these through the whole batch."""
    dims = len(s.kernel_size)
    name, lead = g.of(s.input), len(s.input.shape) - dims
    if lead != 2:
        raise ExportError(
            f"onnx.export: max_pool takes (batch, channels, *size) here, got {len(s.input.shape)} dims"
        )
    window: dict[str, Any] = {
        "kernel_shape": list(s.kernel_size),
        "strides": list(s.stride),
        "pads": [*s.padding, *s.padding],
        "dilations": list(s.dilation),
        "ceil_mode": int(s.ceil_mode),
    }
    counted = g.node("MaxPool", [name], outputs=2, **window)[1]
    image = g.node("ReduceProd", [g.node("Shape", [name], start=2)], keepdims=0)
    return [g.node("MaxPool", [name], **window), g.node("Mod", [counted, image])]


@converts("im2col")
def _unfold(g: Graph, s: Step) -> str:
    """A convolution whose filters each read one element of the window of one channel."""
    kernel, channels = list(s.kernel_size), s.input.shape[1]
    taps = math.prod(kernel)
    filters = np.tile(np.eye(taps).reshape(taps, 1, *kernel), (channels, 1, 1, 1))
    columns = g.node(
        "Conv",
        [s.input, g.constant(filters, s.input.dtype)],
        kernel_shape=kernel,
        strides=list(s.stride),
        dilations=list(s.dilation),
        pads=[*s.padding, *s.padding],
        group=channels,
    )
    return g.node("Reshape", [columns, g.ints([0, channels * taps, -1])])


@converts("col2im")
def _fold(g: Graph, s: Step) -> str:
    return g.node(
        "Col2Im",
        [s.g, g.shape(s.size), g.ints(s.kernel_size)],
        strides=list(s.stride),
        dilations=list(s.dilation),
        pads=[*s.padding, *s.padding],
    )


@converts("resample")
def _resample(g: Graph, s: Step) -> str:
    """Averages, interpolation and padding along one dimension, of a size that does not change: a matrix."""
    name, dim, bands = g.of(s.input), s.dim, s.bands
    rank = len(s.input.shape)
    if bands.weight.shape[1] == 1 and (bands.weight == 1).all():
        return g.node("Gather", [name, g.constant(bands.column(0), np.int64)], axis=dim)
    matrix = g.constant(np.ascontiguousarray(bands.dense().T), s.input.dtype)
    if dim == rank - 1:
        return g.node("MatMul", [name, matrix])
    order = [d for d in range(rank) if d != dim] + [dim]
    moved = g.node("MatMul", [g.node("Transpose", [name], perm=order), matrix])
    return g.node("Transpose", [moved], perm=[order.index(d) for d in range(rank)])


@converts("grid_sampler")
def _grid_sampler(g: Graph, s: Step) -> str:
    new = g.opset >= 20  # with volumes, and modes by other names
    if len(s.input.shape) > 4 and not new:
        raise ExportError("onnx.export: grid_sample of volumes needs opset_version=20")
    names = ("linear", "nearest", "cubic") if new else ("bilinear", "nearest", "bicubic")
    return g.node(
        "GridSample",
        [s.input, s.grid],
        mode=names[s.interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[s.padding_mode],
        align_corners=int(s.align_corners),
    )


@converts("layer_norm")
def _layer_norm(g: Graph, s: Step) -> str:
    value = s.input
    shape = value.shape[len(value.shape) - s.ndim :]
    weight = g.constant(np.ones(shape, value.dtype)) if s.weight is None else g.of(s.weight)
    inputs = [g.of(value), weight, *([] if s.bias is None else [g.of(s.bias)])]
    return g.node("LayerNormalization", inputs, axis=-s.ndim, epsilon=float(s.eps))


@converts("rms_norm")
def _rms_norm(g: Graph, s: Step) -> str:
    dims = list(range(-s.ndim, 0))
    name = g.of(s.input)
    square = reduced(g, "ReduceMean", g.node("Mul", [name, name]), dims, True)
    root = g.node("Sqrt", [g.node("Add", [square, g.constant(s.eps, s.input.dtype)])])
    out = g.node("Div", [name, root])
    return out if s.weight is None else g.node("Mul", [out, s.weight])


@converts("group_norm")
def _group_norm(g: Graph, s: Step) -> str:
    name, shape = g.of(s.input), s.input.shape
    grouped = g.node("Reshape", [name, g.ints([0, s.groups, -1])])
    normal = g.node("Reshape", [_normalized(g, grouped, [2], s.eps, s.input.dtype), g.node("Shape", [name])])
    return _per_channel(g, normal, s, len(shape))


@converts("batch_norm_train")
def _batch_statistics(g: Graph, s: Step) -> str:
    """Normalization by the statistics of the input itself, as instance norm has it."""
    rank = len(s.input.shape)
    dims = [d for d in range(rank) if d != 1]
    normal = _normalized(g, g.of(s.input), dims, s.eps, s.input.dtype)
    return _per_channel(g, normal, s, rank)


@converts("channel_affine")
def _channel_affine(g: Graph, s: Step) -> str:
    return _per_channel(g, g.of(s.input), s, len(s.input.shape))


def _normalized(g: Graph, name: str, dims: list[int], eps: float, dtype: Any) -> str:
    off = g.node("Sub", [name, reduced(g, "ReduceMean", name, dims, True)])
    variance = reduced(g, "ReduceMean", g.node("Mul", [off, off]), dims, True)
    return g.node("Div", [off, g.node("Sqrt", [g.node("Add", [variance, g.constant(eps, dtype)])])])


def _per_channel(g: Graph, name: str, s: Step, rank: int) -> str:
    for kind, which in (("Mul", "weight"), ("Add", "bias")):
        if getattr(s, which) is not None:
            shaped = g.node("Reshape", [g.of(getattr(s, which)), g.ints([1, -1] + [1] * (rank - 2))])
            name = g.node(kind, [name, shaped])
    return name


@converts("embedding_backward")
def _rows_added_up(g: Graph, s: Step) -> str:
    """What sums the rows of bags."""
    shape = g.shape([s.num_embeddings, s.g.shape[-1]])
    zero = g.onnx.numpy_helper.from_array(np.zeros(1, s.g.dtype))
    table = g.node("ConstantOfShape", [shape], value=zero)
    places = g.node("Unsqueeze", [s.indices, g.ints([-1])])
    return g.node("ScatterND", [table, places, s.g], reduction="add")


@converts("attention")
def _attention(g: Graph, s: Step) -> str:
    query, key, value, mask = s.query, s.key, s.value, s.attn_mask
    rank, dtype = len(query.shape), query.dtype
    scale = 1 / math.sqrt(query.shape[-1]) if s.scale is None else s.scale
    turned = g.node("Transpose", [g.of(key)], perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.node("MatMul", [g.node("Mul", [g.of(query), g.constant(scale, dtype)]), turned])
    hidden = g.constant(-np.inf, dtype)
    if s.is_causal:
        sizes = g.node("Slice", [g.node("Shape", [scores]), g.ints([-2]), g.ints([np.iinfo(np.int64).max])])
        ones = g.node("Expand", [g.constant([1], np.int64), sizes])
        seen = g.cast(g.node("Trilu", [ones], upper=0), np.bool_)
        scores = g.node("Where", [seen, scores, hidden])
    if mask is not None and mask.dtype == np.bool_:
        scores = g.node("Where", [g.of(mask), scores, hidden])
    elif mask is not None:
        scores = g.node("Add", [scores, g.of(mask)])
    return g.node("MatMul", [g.node("Softmax", [scores], axis=-1), g.of(value)])
