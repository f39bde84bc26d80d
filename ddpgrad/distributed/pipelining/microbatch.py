"""Micro-batches: the arguments of a step are split into them, and the outputs of the last stage are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...ops.shape.splitting import tensor_split
from ...ops.shape.stacking import cat
from ...utils._pytree import tree_flatten, tree_map, tree_unflatten


class TensorChunkSpec:
    """The tensor is split along `split_dim`, and joined along it."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """A spec for each of these dimensions."""
        return tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """A spec for each of these dimensions, by the names of arguments."""
        return tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """All micro-batches get the value; their outputs must agree."""


class _CustomReducer:
    """Outputs of micro-batches become one by `reduce_fn`, beginning with `init_value`."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    """A `_CustomReducer` for losses."""


sum_reducer = _LossReducer(0.0, lambda a, b: a + b)


def split_tensor(tensor: Tensor, dim: int, chunks: int) -> Sequence[Tensor]:
    """`chunks` views of `tensor` along `dim`, as equal as can be.

    Raises ValueError: it has fewer elements there.
    """
    if tensor.size(dim) < chunks:
        raise ValueError(
            f"a tensor of shape {list(tensor.shape)} cannot be split along dimension {dim} into {chunks} micro-batches"
        )
    return tensor_split(tensor, chunks, dim)


def _split_tree(tree: Any, specs: Any, chunks: int) -> list[Any]:
    leaves, structure = tree_flatten(tree)
    if specs is None:
        asked = [TensorChunkSpec(0)] * len(leaves)
    else:
        asked = tree_flatten(specs)[0]
        if len(asked) != len(leaves):
            raise ValueError(f"expected a chunk spec for each of {len(leaves)} arguments, got {specs}")
    parts = [
        split_tensor(leaf, spec.split_dim, chunks)
        if isinstance(leaf, Tensor) and isinstance(spec, TensorChunkSpec)
        else [leaf] * chunks
        for leaf, spec in zip(leaves, asked, strict=True)
    ]
    return [tree_unflatten([part[i] for part in parts], structure) for i in range(chunks)]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[Any, ...] | None = None,
    kwargs_chunk_spec: Mapping[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each of `chunks` micro-batches.

    Tensors are split along dimension 0, or as the specs say, in the places of the arguments; all else, and what has
    another spec than `TensorChunkSpec`, each micro-batch gets as it is.
    """
    named = dict(kwargs or {})
    specs = None if kwargs_chunk_spec is None else {name: kwargs_chunk_spec[name] for name in named}
    return _split_tree(tuple(args), args_chunk_spec, chunks), _split_tree(named, specs, chunks)


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any) -> Any:
    """One value of those of all micro-batches; tensors are joined along dimension 0, or as `chunk_spec` says."""
    first, structure = tree_flatten(chunks[0])
    specs = [TensorChunkSpec(0)] * len(first) if chunk_spec is None else tree_flatten(chunk_spec)[0]
    flat = [tree_flatten(chunk)[0] for chunk in chunks]
    for leaves in flat:
        if len(leaves) != len(specs):
            raise ValueError(f"Chunk {leaves} did not match chunk spec {chunk_spec}")
    return tree_unflatten(
        [_merged([leaves[i] for leaves in flat], spec) for i, spec in enumerate(specs)], structure
    )


def _merged(values: list[Any], spec: Any) -> Any:
    if isinstance(spec, TensorChunkSpec) and isinstance(values[0], Tensor):
        return cat(values, spec.split_dim)
    if isinstance(spec, _CustomReducer):
        merged = spec.init_value
        for value in values:
            merged = spec.reduce_fn(merged, value)
        return merged
    if any(value is not values[0] and value != values[0] for value in values):
        raise ValueError(f"expected the same output of all micro-batches, got {values}")
    return values[0]
