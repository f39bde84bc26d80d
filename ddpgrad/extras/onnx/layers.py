"""ONNX export of products, convolutions, pools, norms, embeddings and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import ExportError
from .graph import Graph, converts
from .pointwise import reduced
from .trace import Step


@converts("matmul")
def _matmul(g: Graph, s: Step) -> str:
    return g.node("MatMul", [g.of(s.arguments["input"]), g.of(s.arguments["other"])])


@converts("linear")
def _linear(g: Graph, s: Step) -> str:
    a = s.arguments
    weight = (
        g.node("Transpose", [g.of(a["weight"])], perm=[1, 0])
        if len(a["weight"].shape) == 2
        else g.of(a["weight"])
    )
    out = g.node("MatMul", [g.of(a["input"]), weight])
    return out if a["bias"] is None else g.node("Add", [out, g.of(a["bias"])])


@converts("convolution")
def _convolution(g: Graph, s: Step) -> str:
    a = s.arguments
    inputs = [g.of(a[name]) for name in ("input", "weight", "bias") if a[name] is not None]
    return g.node("Conv", inputs, **_window(a), pads=[*a["padding"], *a["padding"]], group=a["groups"])


@converts("convolution_input")
def _transposed(g: Graph, s: Step) -> str:
    a = s.arguments
    image, kernel = a["input_shape"][2:], a["weight"].shape[2:]
    if not all(isinstance(n, int) for n in image):
        raise g.follows("the size of a transposed convolution")
    reach = [
        (n - 1) * st + d * (k - 1) + 1
        for n, st, d, k in zip(a["grad"].shape[2:], a["stride"], a["dilation"], kernel, strict=True)
    ]
    # What the strides leave over at the end of the output.
    extra = [n + 2 * p - r for n, p, r in zip(image, a["padding"], reach, strict=True)]
    return g.node(
        "ConvTranspose",
        [g.of(a["grad"]), g.of(a["weight"])],
        **_window(a),
        pads=[*a["padding"], *a["padding"]],
        output_padding=extra,
        group=a["groups"],
    )


def _window(a: dict[str, Any]) -> dict[str, Any]:
    return {
        "kernel_shape": list(a["weight"].shape[2:]),
        "strides": list(a["stride"]),
        "dilations": list(a["dilation"]),
    }


@converts("max_pool")
def _max_pool(g: Graph, s: Step) -> list[str]:
    """The largest elements, and their places in the image; ONNX counts these through the whole batch."""
    a = s.arguments
    dims = len(a["kernel_size"])
    name, lead = g.of(a["input"]), len(a["input"].shape) - dims
    if lead != 2:
        raise ExportError(
            f"onnx.export: max_pool takes (batch, channels, *size) here, got {len(a['input'].shape)} dims"
        )
    window: dict[str, Any] = {
        "kernel_shape": list(a["kernel_size"]),
        "strides": list(a["stride"]),
        "pads": [*a["padding"], *a["padding"]],
        "dilations": list(a["dilation"]),
        "ceil_mode": int(a["ceil_mode"]),
    }
    counted = g.node("MaxPool", [name], outputs=2, **window)[1]
    image = g.node("ReduceProd", [g.node("Shape", [name], start=2)], keepdims=0)
    return [g.node("MaxPool", [name], **window), g.node("Mod", [counted, image])]


@converts("im2col")
def _unfold(g: Graph, s: Step) -> str:
    """A convolution whose filters each read one element of the window of one channel."""
    a = s.arguments
    kernel, channels = list(a["kernel_size"]), a["input"].shape[1]
    taps = math.prod(kernel)
    filters = np.tile(np.eye(taps).reshape(taps, 1, *kernel), (channels, 1, 1, 1))
    columns = g.node(
        "Conv",
        [g.of(a["input"]), g.constant(filters, a["input"].dtype)],
        kernel_shape=kernel,
        strides=list(a["stride"]),
        dilations=list(a["dilation"]),
        pads=[*a["padding"], *a["padding"]],
        group=channels,
    )
    return g.node("Reshape", [columns, g.ints([0, channels * taps, -1])])


@converts("col2im")
def _fold(g: Graph, s: Step) -> str:
    a = s.arguments
    return g.node(
        "Col2Im",
        [g.of(a["g"]), g.shape(a["size"]), g.ints(a["kernel_size"])],
        strides=list(a["stride"]),
        dilations=list(a["dilation"]),
        pads=[*a["padding"], *a["padding"]],
    )


@converts("resample")
def _resample(g: Graph, s: Step) -> str:
    """Averages, interpolation and padding along one dimension, of a size that does not change: a matrix."""
    a = s.arguments
    name, dim, bands = g.of(a["input"]), a["dim"], a["bands"]
    rank = len(a["input"].shape)
    if bands.weight.shape[1] == 1 and (bands.weight == 1).all():
        return g.node("Gather", [name, g.constant(bands.column(0), np.int64)], axis=dim)
    matrix = g.constant(np.ascontiguousarray(bands.dense().T), a["input"].dtype)
    if dim == rank - 1:
        return g.node("MatMul", [name, matrix])
    order = [d for d in range(rank) if d != dim] + [dim]
    moved = g.node("MatMul", [g.node("Transpose", [name], perm=order), matrix])
    return g.node("Transpose", [moved], perm=[order.index(d) for d in range(rank)])


@converts("layer_norm")
def _layer_norm(g: Graph, s: Step) -> str:
    a = s.arguments
    value = a["input"]
    shape = value.shape[len(value.shape) - a["ndim"] :]
    weight = g.constant(np.ones(shape, value.dtype)) if a["weight"] is None else g.of(a["weight"])
    inputs = [g.of(value), weight, *([] if a["bias"] is None else [g.of(a["bias"])])]
    return g.node("LayerNormalization", inputs, axis=-a["ndim"], epsilon=float(a["eps"]))


@converts("rms_norm")
def _rms_norm(g: Graph, s: Step) -> str:
    a = s.arguments
    dims = list(range(-a["ndim"], 0))
    name = g.of(a["input"])
    square = reduced(g, "ReduceMean", g.node("Mul", [name, name]), dims, True)
    root = g.node("Sqrt", [g.node("Add", [square, g.constant(a["eps"], a["input"].dtype)])])
    out = g.node("Div", [name, root])
    return out if a["weight"] is None else g.node("Mul", [out, g.of(a["weight"])])


@converts("group_norm")
def _group_norm(g: Graph, s: Step) -> str:
    a = s.arguments
    name, shape = g.of(a["input"]), a["input"].shape
    grouped = g.node("Reshape", [name, g.ints([0, a["groups"], -1])])
    normal = g.node(
        "Reshape", [_normalized(g, grouped, [2], a["eps"], a["input"].dtype), g.node("Shape", [name])]
    )
    return _per_channel(g, normal, a, len(shape))


@converts("batch_norm_train")
def _batch_statistics(g: Graph, s: Step) -> str:
    """Normalization by the statistics of the input itself, as instance norm has it."""
    a = s.arguments
    rank = len(a["input"].shape)
    dims = [d for d in range(rank) if d != 1]
    normal = _normalized(g, g.of(a["input"]), dims, a["eps"], a["input"].dtype)
    return _per_channel(g, normal, a, rank)


def _normalized(g: Graph, name: str, dims: list[int], eps: float, dtype: Any) -> str:
    off = g.node("Sub", [name, reduced(g, "ReduceMean", name, dims, True)])
    variance = reduced(g, "ReduceMean", g.node("Mul", [off, off]), dims, True)
    return g.node("Div", [off, g.node("Sqrt", [g.node("Add", [variance, g.constant(eps, dtype)])])])


def _per_channel(g: Graph, name: str, a: dict[str, Any], rank: int) -> str:
    for kind, which in (("Mul", "weight"), ("Add", "bias")):
        if a[which] is not None:
            shaped = g.node("Reshape", [g.of(a[which]), g.ints([1, -1] + [1] * (rank - 2))])
            name = g.node(kind, [name, shaped])
    return name


@converts("embedding_rows")
def _embedding(g: Graph, s: Step) -> str:
    return g.node("Gather", [g.of(s.arguments["input"]), g.of(s.arguments["indices"])], axis=0)


@converts("embedding_backward")
def _rows_added_up(g: Graph, s: Step) -> str:
    """What sums the rows of bags."""
    a = s.arguments
    shape = g.shape([a["num_embeddings"], a["g"].shape[-1]])
    zero = g.onnx.numpy_helper.from_array(np.zeros(1, a["g"].dtype))
    table = g.node("ConstantOfShape", [shape], value=zero)
    places = g.node("Unsqueeze", [g.of(a["indices"]), g.ints([-1])])
    return g.node("ScatterND", [table, places, g.of(a["g"])], reduction="add")


@converts("attention")
def _attention(g: Graph, s: Step) -> str:
    a = s.arguments
    query, key, value, mask = a["query"], a["key"], a["value"], a["attn_mask"]
    rank, dtype = len(query.shape), query.dtype
    scale = 1 / math.sqrt(query.shape[-1]) if a["scale"] is None else a["scale"]
    turned = g.node("Transpose", [g.of(key)], perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.node("MatMul", [g.node("Mul", [g.of(query), g.constant(scale, dtype)]), turned])
    hidden = g.constant(-np.inf, dtype)
    if a["is_causal"]:
        sizes = g.node("Slice", [g.node("Shape", [scores]), g.ints([-2]), g.ints([np.iinfo(np.int64).max])])
        ones = g.node("Expand", [g.constant([1], np.int64), sizes])
        seen = g.cast(g.node("Trilu", [ones], upper=0), np.bool_)
        scores = g.node("Where", [seen, scores, hidden])
    if mask is not None and mask.dtype == np.bool_:
        scores = g.node("Where", [g.of(mask), scores, hidden])
    elif mask is not None:
        scores = g.node("Add", [scores, g.of(mask)])
    return g.node("MatMul", [g.node("Softmax", [scores], axis=-1), g.of(value)])
