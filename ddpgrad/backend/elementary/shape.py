"""Kernels that move elements or look at them in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

Array = Any


def shapes(xp: ModuleType) -> dict[str, Any]:
    def reshape(input: Array, shape: Sequence[int]) -> Array:
        return input.reshape(shape)

    def permute(input: Array, dims: Sequence[int]) -> Array:
        return input.transpose(dims)

    def transpose(input: Array, dim0: int, dim1: int) -> Array:
        return input.swapaxes(dim0, dim1) if input.ndim else input[...]

    def expand(input: Array, shape: Sequence[int]) -> Array:
        out = xp.broadcast_to(input, shape)
        # Where nothing is repeated the result can be written to, which NumPy would refuse.
        return input.reshape(shape) if out.size == input.size else out

    def unsqueeze(input: Array, dim: int) -> Array:
        return xp.expand_dims(input, dim)

    def squeeze(input: Array, dim: tuple[int, ...]) -> Array:
        return xp.squeeze(input, axis=dim)

    def flip(input: Array, dims: tuple[int, ...]) -> Array:
        return xp.flip(input, dims).copy() if input.ndim else input.copy()

    def roll(input: Array, shifts: Any, dims: Any = None) -> Array:
        return xp.roll(input, shifts, dims)

    def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
        return xp.concatenate(tensors, axis=dim)

    def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
        return xp.stack(tensors, axis=dim)

    def narrow(input: Array, dim: int, start: int, length: int) -> Array:
        return input[(slice(None),) * (dim % input.ndim) + (slice(start, start + length),)]

    def tile(input: Array, dims: Sequence[int]) -> Array:
        return xp.tile(input, dims)

    def tril(input: Array, diagonal: int = 0) -> Array:
        return xp.tril(input, diagonal)

    def triu(input: Array, diagonal: int = 0) -> Array:
        return xp.triu(input, diagonal)

    def diagonal(input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
        return xp.diagonal(input, offset, dim1, dim2)

    def pad(input: Array, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Array:
        return xp.pad(input, widths, mode="constant", constant_values=value)

    return {
        "reshape": reshape, "permute": permute, "transpose": transpose, "expand": expand, "unsqueeze": unsqueeze,
        "squeeze": squeeze, "flip": flip, "roll": roll, "cat": cat, "stack": stack, "narrow": narrow, "tile": tile,
        "tril": tril, "triu": triu, "diagonal": diagonal, "constant_pad": pad,
    }  # fmt: skip
