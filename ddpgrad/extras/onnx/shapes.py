"""ONNX export of ops that move elements: shapes, slices, indices, joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import ExportError
from .graph import Graph, converts
from .trace import Step, Value

_END = np.iinfo(np.int64).max


@converts("reshape", "view")
def _reshape(g: Graph, s: Step) -> str:
    shape = g.shape(s.arguments["shape"], one_free=True)
    return g.node(
        "Reshape", [g.of(s.arguments["input"]), shape], allowzero=int(0 in s.arguments["shape"]) or None
    )


@converts("expand")
def _expand(g: Graph, s: Step) -> str:
    return g.node("Expand", [g.of(s.arguments["input"]), g.shape(s.arguments["shape"])])


@converts("permute")
def _permute(g: Graph, s: Step) -> str:
    return g.node("Transpose", [g.of(s.arguments["input"])], perm=list(s.arguments["dims"]))


@converts("transpose")
def _transpose(g: Graph, s: Step) -> str:
    order = list(range(len(s.arguments["input"].shape)))
    i, j = s.arguments["dim0"], s.arguments["dim1"]
    order[i], order[j] = order[j], order[i]
    return g.node("Transpose", [g.of(s.arguments["input"])], perm=order)


@converts("squeeze")
def _squeeze(g: Graph, s: Step) -> str:
    value, dim = s.arguments["input"], s.arguments["dim"]
    dims = range(len(value.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    return g.node("Squeeze", [g.of(value), g.ints([d for d in dims if value.shape[d] == 1])])


@converts("unsqueeze")
def _unsqueeze(g: Graph, s: Step) -> str:
    return g.node("Unsqueeze", [g.of(s.arguments["input"]), g.ints([s.arguments["dim"]])])


@converts("cat")
def _cat(g: Graph, s: Step) -> str:
    return g.node("Concat", [g.of(v) for v in s.arguments["tensors"]], axis=s.arguments["dim"])


@converts("stack")
def _stack(g: Graph, s: Step) -> str:
    axis = g.ints([s.arguments["dim"]])
    parts = [g.node("Unsqueeze", [g.of(v), axis]) for v in s.arguments["tensors"]]
    return g.node("Concat", parts, axis=s.arguments["dim"])


@converts("split_with_sizes")
def _split(g: Graph, s: Step) -> Any:
    sizes = s.arguments["split_sizes"]
    out = g.node(
        "Split", [g.of(s.arguments["input"]), g.shape(sizes)], outputs=len(sizes), axis=s.arguments["dim"]
    )
    return [out] if len(sizes) == 1 else out


@converts("unbind")
def _unbind(g: Graph, s: Step) -> list[str]:
    dim = s.arguments["dim"]
    count = s.arguments["input"].shape[dim]
    return [
        g.node("Gather", [g.of(s.arguments["input"]), g.constant(i, np.int64)], axis=dim)
        for i in range(count)
    ]


@converts("select")
def _select(g: Graph, s: Step) -> str:
    where = g.constant(_plain(g, s.arguments["index"]), np.int64)
    return g.node("Gather", [g.of(s.arguments["input"]), where], axis=s.arguments["dim"])


@converts("index_select")
def _index_select(g: Graph, s: Step) -> str:
    inputs = [g.of(s.arguments["input"]), g.of(s.arguments["index"])]
    return g.node("Gather", inputs, axis=s.arguments["dim"])


@converts("gather")
def _gather(g: Graph, s: Step) -> str:
    inputs = [g.of(s.arguments["input"]), g.of(s.arguments["index"])]
    return g.node("GatherElements", inputs, axis=s.arguments["dim"])


@converts("take_places")
def _take_places(g: Graph, s: Step) -> str:
    """The same places of all channels: `index` (N, P), or (1, P), gets a dimension for them."""
    name, places = g.of(s.arguments["input"]), g.node("Unsqueeze", [g.of(s.arguments["index"]), g.ints([1])])
    lead = g.node("Slice", [g.node("Shape", [name]), g.ints([0]), g.ints([2])])
    shape = g.node("Concat", [lead, g.node("Shape", [places], start=2)], axis=0)
    return g.node("GatherElements", [name, g.node("Expand", [places, shape])], axis=2)


@converts("scatter_src")
def _scatter(g: Graph, s: Step) -> str:
    a = s.arguments
    index, source = g.of(a["index"]), g.of(a["src"], a["input"].dtype)
    if not getattr(a["src"], "shape", ()):
        source = g.node("Expand", [source, g.node("Shape", [index])])
    return g.node("ScatterElements", [g.of(a["input"]), index, source], axis=a["dim"])


@converts("max_values", "min_values")
def _extremum(g: Graph, s: Step) -> list[str]:
    name, dim, keepdim = g.of(s.arguments["input"]), s.arguments["dim"], s.arguments["keepdim"]
    place = g.node("ArgMax" if s.op == "max_values" else "ArgMin", [name], axis=dim, keepdims=1)
    found = [g.node("GatherElements", [name, place], axis=dim), place]
    return found if keepdim else [g.node("Squeeze", [part, g.ints([dim])]) for part in found]


@converts("topk_values")
def _topk(g: Graph, s: Step) -> list[str]:
    k, largest = s.arguments["options"]
    inputs = [g.of(s.arguments["input"]), g.number(k)]
    return g.node("TopK", inputs, outputs=2, axis=s.arguments["dim"], largest=int(largest))


@converts("sort_values")
def _sort(g: Graph, s: Step) -> list[str]:
    return _sorted(g, s, s.arguments["options"][0])


@converts("argsort")
def _argsort(g: Graph, s: Step) -> str:
    return _sorted(g, s, s.arguments["descending"])[1]


def _sorted(g: Graph, s: Step, descending: bool) -> list[str]:
    """(values, places): ONNX sorts by taking all of the largest."""
    name, dim = g.of(s.arguments["input"]), s.arguments["dim"]
    count = g.node("Gather", [g.node("Shape", [name]), g.ints([dim])], axis=0)
    return g.node("TopK", [name, count], outputs=2, axis=dim, largest=int(descending))


@converts("roll")
def _roll(g: Graph, s: Step) -> str:
    name, value = g.of(s.arguments["input"]), s.arguments["input"]
    for shift, dim in zip(s.arguments["shifts"], s.arguments["dims"], strict=True):
        cut = -_plain(g, shift) % max(value.shape[dim], 1)
        parts = [
            g.node("Slice", [name, g.ints([start]), g.ints([end]), g.ints([dim])])
            for start, end in ((cut, _END), (0, cut))
        ]
        name = g.node("Concat", parts, axis=dim)
    return name


@converts("narrow")
def _narrow(g: Graph, s: Step) -> str:
    a = s.arguments
    start, length = g.number(a["start"]), g.number(a["length"])
    end = g.node("Add", [start, length])
    return g.node("Slice", [g.of(a["input"]), start, end, g.ints([a["dim"]])])


@converts("flip")
def _flip(g: Graph, s: Step) -> str:
    dims = list(s.arguments["dims"])
    count = len(dims)
    ends = g.ints([-_END] * count)
    return g.node(
        "Slice", [g.of(s.arguments["input"]), g.ints([-1] * count), ends, g.ints(dims), g.ints([-1] * count)]
    )


@converts("slice_by")
def _slice(g: Graph, s: Step) -> str:
    return indexed(g, s.arguments["input"], s.arguments["index"])


@converts("index_by")
def _index(g: Graph, s: Step) -> str:
    return indexed(g, s.arguments["input"], s.arguments["index"])


def indexed(g: Graph, value: Any, index: Any) -> str:
    """`value[index]` for slices, numbers, None, an ellipsis and at most one tensor of integers."""
    index = index if isinstance(index, tuple) else (index,)
    taken = sum(part is not None and part is not Ellipsis for part in index)
    ellipsis = next((i for i, part in enumerate(index) if part is Ellipsis), len(index))
    filled = [*index[:ellipsis], *[slice(None)] * (len(value.shape) - taken), *index[ellipsis + 1 :]]
    tensors = [part for part in filled if isinstance(part, (Value, np.ndarray))]
    numbers = [part for part in filled if isinstance(part, int)]
    if len(tensors) > 1 or (tensors and (numbers or tensors[0].dtype == np.bool_)):
        raise ExportError(
            "onnx.export: an index by several tensors, or by a bool tensor, has no form in ONNX here"
        )
    name = g.of(value)
    starts, ends, axes, steps = [], [], [], []
    for axis, part in enumerate(p for p in filled if p is not None):
        if isinstance(part, slice) and part != slice(None):
            step = _plain(g, part.step or 1)
            starts.append(g.number((0 if step > 0 else -1) if part.start is None else part.start))
            ends.append(g.number((_END if step > 0 else -_END) if part.stop is None else part.stop))
            axes.append(axis)
            steps.append(step)
    if axes:
        joined = [g.node("Concat", part, axis=0) for part in (starts, ends)]
        name = g.node("Slice", [name, *joined, g.ints(axes), g.ints(steps)])
    axis = 0
    for part in filled:
        if part is None:
            name = g.node("Unsqueeze", [name, g.ints([axis])])
        elif isinstance(part, (int, Value, np.ndarray)):
            where = g.constant(part, np.int64) if isinstance(part, int) else g.of(part)
            name = g.node("Gather", [name, where], axis=axis)
            axis += (0 if isinstance(part, int) else len(part.shape)) - 1
        axis += 1
    return name


def _plain(g: Graph, value: Any) -> int:
    if not isinstance(value, int):
        raise g.follows("an index")
    return value


@converts("constant_pad")
def _constant_pad(g: Graph, s: Step) -> str:
    a = s.arguments
    pads = g.ints([w[0] for w in a["widths"]] + [w[1] for w in a["widths"]])
    return g.node("Pad", [g.of(a["input"]), pads, g.constant(a["value"], a["input"].dtype)])


@converts("repeat")
def _repeat(g: Graph, s: Step) -> str:
    sizes = list(s.arguments["sizes"])
    rank = len(s.arguments["input"].shape)
    name = g.of(s.arguments["input"])
    if len(sizes) > rank:
        name = g.node("Unsqueeze", [name, g.ints(list(range(len(sizes) - rank)))])
    return g.node("Tile", [name, g.shape(sizes)])


@converts("tril", "triu")
def _triangle(g: Graph, s: Step) -> str:
    inputs = [g.of(s.arguments["input"]), g.constant(s.arguments["diagonal"], np.int64)]
    return g.node("Trilu", inputs, upper=int(s.op == "triu"))
