"""Blocks of tensors: which of those that are stored overlap which of those that are wanted, and whether they fill the whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import prod

from ...core.size import Size
from ...core.tensor import Tensor
from .metadata import ChunkStorageMetadata


def overlap(one: ChunkStorageMetadata, other: ChunkStorageMetadata) -> list[tuple[int, int]] | None:
    """By dimension, where the common part of two blocks begins and ends in the whole; None where there is none."""
    spans = [
        (max(a, b), min(a + m, b + n))
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    ]
    return spans if all(start < stop for start, stop in spans) else None


def meeting(
    some: Sequence[ChunkStorageMetadata], others: Sequence[ChunkStorageMetadata]
) -> Iterator[tuple[int, int]]:
    """The numbers of blocks of the one and the other kind that may overlap, by the dimension that is divided most."""
    if not some or not others or not some[0].offsets:
        yield from ((i, j) for i in range(len(some)) for j in range(len(others)))
        return
    dims = range(len(some[0].offsets))
    dim = max(dims, key=lambda d: len({block.offsets[d] for block in others}))
    ordered = sorted(range(len(others)), key=lambda j: others[j].offsets[dim])
    longest = max(block.sizes[dim] for block in others)
    starts = [others[j].offsets[dim] for j in ordered]
    for i, block in enumerate(some):
        start, stop = block.offsets[dim], block.offsets[dim] + block.sizes[dim]
        for at in range(bisect_right(starts, start - longest), len(ordered)):
            if starts[at] >= stop:
                break
            yield i, ordered[at]


def faults(size: Size, blocks: Sequence[ChunkStorageMetadata], must_fill: bool) -> list[str]:
    """What is wrong with the `blocks` of a tensor of that size: they lie outside, overlap, or leave a part open."""
    found = []
    for block in blocks:
        if any(
            a < 0 or n < 0 or a + n > whole
            for a, n, whole in zip(block.offsets, block.sizes, size, strict=True)
        ):
            found.append(f"out of bounds chunk: tensor-size:{size} chunk: {block}")
    for i, j in meeting(blocks, blocks):
        if i < j and overlap(blocks[i], blocks[j]) is not None:
            found.append(f"overlapping chunks: {blocks[i]} {blocks[j]}")
    filled, whole = sum(prod(block.sizes) for block in blocks), prod(size)
    if must_fill and filled != whole:
        found.append(f"invalid fill tensor-volume: {whole} chunks-volume: {filled}")
    return found


def narrow_tensor_by_index(tensor: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The block of `tensor` that begins at `offsets` and has the shape `sizes`; memory is shared."""
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size < tensor.size(dim):
            tensor = tensor.narrow(dim, offset, size)
    return tensor
