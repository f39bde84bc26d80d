"""Rules of kernels that move elements, or read and write by index (`mesh_kernels.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .layout import REPLICATE, AnyShard, Partial, Placement
from .mesh_array import MeshArray, on_wholes
from .mesh_functions import along, broadcast, concatenated, reshaped, squeezed, transposed
from .mesh_kernels import rule
from .spreading import spread

# -- shapes ----------------------------------------------------------------------------------------------


@rule("reshape", "view")
def _reshape(F: Any, kernel: Any, input: Any, shape: Any) -> Any:
    return reshaped(input, shape)


@rule("permute")
def _permute(F: Any, kernel: Any, input: Any, dims: Any) -> Any:
    return transposed(input, dims)


@rule("transpose")
def _transpose(F: Any, kernel: Any, input: Any, dim0: int, dim1: int) -> Any:
    return input.swapaxes(dim0, dim1) if input.ndim else input[...]


@rule("expand")
def _expand(F: Any, kernel: Any, input: Any, shape: Any) -> Any:
    return broadcast(input, shape)


@rule("unsqueeze")
def _unsqueeze(F: Any, kernel: Any, input: Any, dim: int) -> Any:
    at = dim % (input.ndim + 1)
    return reshaped(input, (*input.shape[:at], 1, *input.shape[at:]))


@rule("squeeze")
def _squeeze(F: Any, kernel: Any, input: Any, dim: Any) -> Any:
    return squeezed(input, dim)


@rule("narrow")
def _narrow(F: Any, kernel: Any, input: Any, dim: int, start: int, length: int) -> Any:
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]


@rule("select")
def _select(F: Any, kernel: Any, input: Any, dim: int, index: int) -> Any:
    return input[(slice(None),) * (dim % input.ndim) + (index,)]


@rule("slice_by", "index_by")
def _read(F: Any, kernel: Any, input: Any, index: Any) -> Any:
    if not isinstance(input, MeshArray):
        return on_wholes(kernel, (input, index), {})
    return input[index]


@rule("split_with_sizes")
def _split(F: Any, kernel: Any, input: Any, split_sizes: Sequence[int], dim: int = 0) -> list[Any]:
    whole = input.placed([REPLICATE if p.divides(dim % input.ndim) else p for p in input.placements])
    parts, start = [], 0
    for n in split_sizes:
        parts.append(_narrow(F, None, whole, dim, start, n))
        start += n
    return parts


@rule("unbind")
def _unbind(F: Any, kernel: Any, input: Any, dim: int = 0) -> list[Any]:
    whole = input.placed([REPLICATE if p.divides(dim % input.ndim) else p for p in input.placements])
    return [_select(F, None, whole, dim, i) for i in range(input.shape[dim])]


@rule("cat")
def _cat(F: Any, kernel: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    return concatenated(tensors, dim)


@rule("stack")
def _stack(F: Any, kernel: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    at = dim % (len(tensors[0].shape) + 1)
    return concatenated([x.reshape((*x.shape[:at], 1, *x.shape[at:])) for x in tensors], at)


@rule("constant_pad")
def _pad(F: Any, kernel: Any, input: Any, widths: Any, value: float = 0.0) -> Any:
    axes = [d for d, (low, high) in enumerate(widths) if low or high]
    return along(input, axes, lambda part: kernel(part, widths, value))


@rule("repeat")
def _repeat(F: Any, kernel: Any, input: Any, repeats: Any) -> Any:
    lead = len(repeats) - input.ndim
    own = [lead + d if repeats[lead + d] == 1 else None for d in range(input.ndim)]
    out = [None] * lead + own
    return spread(lambda part: kernel(part, repeats), [input], [own], [out])


# -- by index ------------------------------------------------------------------------------------------------


@rule("place")
def _place(F: Any, kernel: Any, g: Any, shape: Any, index: Any) -> Any:
    """The gradient of reading by index: where dimensions are read whole, they stay divided."""
    out = F.new_zeros(g, tuple(shape))
    given = index if isinstance(index, tuple) else (index,)
    plain = all(part is None or part is Ellipsis or isinstance(part, (slice, int)) for part in given)
    if not plain:
        return on_wholes(kernel, (g, shape, index), {})
    out[index] = g
    return out


@rule("index_select")
def _index_select(F: Any, kernel: Any, input: Any, dim: int, index: Any) -> Any:
    if not isinstance(input, MeshArray) or not input.ndim:
        return on_wholes(kernel, (input, dim, index), {})
    own: list[Any] = list(range(input.ndim))
    own[dim] = None
    out = [*own]
    labels: list[Any] = ["index"] * index.ndim
    out[dim] = "index" if index.ndim else None
    return spread(lambda a, i: kernel(a, dim, i), [input, index], [own, labels], [out])


@rule("gather")
def _gather(F: Any, kernel: Any, input: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if input.ndim != index.ndim or not input.ndim:
        return on_wholes(kernel, (input, dim, index, sparse_grad), {})
    alike: list[Any] = [
        d if n == m and d != dim % input.ndim else None
        for d, (n, m) in enumerate(zip(input.shape, index.shape, strict=True))
    ]
    places = list(alike)
    places[dim] = "index"
    return spread(lambda a, i: kernel(a, dim, i, sparse_grad), [input, index], [alike, places], [places])


@rule("scatter_add", "scatter_src")
def _scatter(F: Any, kernel: Any, input: Any, dim: int, index: Any, src: Any) -> Any:
    shapes = [x.shape for x in (input, index, src) if hasattr(x, "shape") and x.shape]
    if len({len(s) for s in shapes}) != 1:
        return on_wholes(kernel, (input, dim, index, src), {})
    own = [
        d if len({s[d] for s in shapes}) == 1 and d != dim % len(shapes[0]) else None
        for d in range(len(shapes[0]))
    ]
    labels = [own, own, own if getattr(src, "shape", ()) else []]
    return spread(lambda a, i, s: kernel(a, dim, i, s), [input, index, src], labels, [own])


@rule("embedding_rows")
def _embedding(F: Any, kernel: Any, input: Any, indices: Any, padding_idx: int | None = None) -> Any:
    """Of a table that is divided by rows each rank reads those that it has, and the ranks' results are added up."""
    places = [("index", k) for k in range(indices.ndim)]
    axes = [m for m, p in enumerate(input.placements) if p.divides(0)] if isinstance(input, MeshArray) else []
    if not axes or (isinstance(indices, MeshArray) and not indices.layout.is_replicated):
        return spread(
            lambda a, i: kernel(a, i, padding_idx),
            [input, indices],
            [[None, "width"], places],
            [[*places, "width"]],
        )
    chosen = indices.part if isinstance(indices, MeshArray) else indices
    start, stop = input.layout.spans[0]
    here = (chosen >= start) & (chosen < stop)
    if stop > start:
        part = kernel(input.part, np.where(here, chosen - start, 0), None)
    else:
        part = F.local.new_zeros(input.part, (*chosen.shape, input.part.shape[1]))
    part = F.local.where(here[..., None], part, F.local.full_like(part, 0))
    last = indices.ndim
    placements: list[Placement] = [
        Partial() if p.divides(0) else p.at(last) if isinstance(p, AnyShard) and p.dim == 1 else p
        for p in input.placements
    ]
    return input.of(part, placements, (*indices.shape, input.shape[1]))


@rule("embedding_backward")
def _embedding_backward(
    F: Any, kernel: Any, g: Any, indices: Any, num_embeddings: int, padding_idx: Any = None
) -> Any:
    places = [("index", k) for k in range(indices.ndim)]
    return spread(
        lambda a, i: kernel(a, i, num_embeddings, padding_idx),
        [g, indices],
        [[*places, "width"], places],
        [[None, "width"]],
    )
