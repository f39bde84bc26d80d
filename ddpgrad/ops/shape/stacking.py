"""Concatenation and stacking of tensors, and grids of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

import numpy as np

from ...core.errors import warn_program
from ...core.size import Size, as_ints, new_size
from ...core.tensor import Tensor
from ..creation import factories
from ..dispatch.declare import primitive
from ..dispatch.explain import broadcast_hint
from ..dispatch.tensor_function import tensor_function
from ..reduction.reduce import wrap_dim
from . import shape


def _cat_rule(F: Any, g: Any, needs: Sequence[bool], tensors_shape: Any, dim: int) -> list[Any]:
    grads, start = [], 0
    for needed, size in zip(needs, tensors_shape, strict=True):
        grads.append(F.narrow(g, dim, start, size[dim]) if needed else None)
        start += size[dim]
    return grads


def _require_tensors(name: str, tensors: Any) -> None:
    if isinstance(tensors, Tensor):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"{name}(): expected Tensor as element {i} in argument 0, but got {type(t).__name__}"
            )


def _shapes(name: str, tensors: Any) -> list[tuple[int, ...]]:
    """The shapes of the tensors; `TypeError` when they are not a sequence of tensors."""
    if not isinstance(tensors, Tensor):
        try:
            return [t._array.shape for t in tensors]
        except AttributeError:
            pass
    _require_tensors(name, tensors)
    raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors")


def _adapt_cat(tensors: Sequence[Tensor], dim: int = 0) -> tuple[Any, ...]:
    shapes = _shapes("cat", tensors)
    if not shapes:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    if () in shapes:
        raise RuntimeError(f"zero-dimensional tensor (at position {shapes.index(())}) cannot be concatenated")
    if (0,) not in shapes:
        return tensors, wrap_dim("cat", dim, len(shapes[0]))
    # PyTorch lets `torch.tensor([])` stand beside tensors of any shape; its dtype counts.
    fits = [own != (0,) for own in shapes]
    size = shapes[fits.index(True) if True in fits else 0]
    dim = wrap_dim("cat", dim, len(size))
    nothing = (*size[:dim], 0, *size[dim + 1 :])
    return [t if fit else shape.reshape(t, nothing) for t, fit in zip(tensors, fits, strict=True)], dim


@primitive(
    joint=_cat_rule,
    promotion="same",
    adapt=_adapt_cat,
    samples=lambda rng: [
        (([rng.standard_normal((2, 3)), rng.standard_normal((1, 3))],), {}),
        (([rng.standard_normal((2, 3)), rng.standard_normal((2, 1)), rng.standard_normal((2, 2))], -1), {}),
    ],
    reference=np.concatenate,
    method=False,
    aliases=("concat", "concatenate"),
)
def cat(F: Any, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`."""
    ...


def _stack_rule(F: Any, g: Any, needs: Sequence[bool], dim: int) -> list[Any]:
    return [F.squeeze(F.narrow(g, dim, i, 1), (dim,)) if needed else None for i, needed in enumerate(needs)]


def _adapt_stack(tensors: Sequence[Tensor], dim: int = 0) -> tuple[Any, ...]:
    shapes = _shapes("stack", tensors)
    if not shapes:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = shapes[0]
    for i, own in enumerate(shapes):
        if own != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(own)} at entry {i}"
            )
    return tensors, wrap_dim("stack", dim, len(first) + 1)


@primitive(
    joint=_stack_rule,
    promotion="same",
    adapt=_adapt_stack,
    samples=lambda rng: [((list(rng.standard_normal((3, 2, 2))), d), {}) for d in (0, 1, -1)],
    reference=np.stack,
    method=False,
)
def stack(F: Any, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors as slices of a new dimension."""
    ...


# -- functions made of these -----------------------------------------------------------------


class _AtLeast(Protocol):
    @overload
    def __call__(self, tensor: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
    @overload
    def __call__(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...


def _at_least(name: str, promote: Callable[[Tensor], Tensor]) -> _AtLeast:
    def at_least(*tensors: Any) -> Any:
        if len(tensors) == 1:
            if isinstance(tensors[0], Tensor):
                return promote(tensors[0])
            tensors = tuple(tensors[0])
        _require_tensors(name, tensors)
        return tuple([promote(t) for t in tensors])

    at_least.__name__ = name
    at_least.__doc__ = (
        f"Each tensor as a view of at least {name[-2]} dimension(s); one alone is not put in a tuple."
    )
    return tensor_function(method=False)(at_least)


def _to_1d(t: Tensor) -> Tensor:
    return t if t.ndim else shape.reshape(t, 1)


def _to_2d(t: Tensor) -> Tensor:
    return shape.unsqueeze(_to_1d(t), 0) if t.ndim < 2 else t


def _to_3d(t: Tensor) -> Tensor:
    return shape.unsqueeze(_to_2d(t), -1) if t.ndim < 3 else t


atleast_1d, atleast_2d, atleast_3d = (
    _at_least(f"atleast_{n}d", f) for n, f in ((1, _to_1d), (2, _to_2d), (3, _to_3d))
)


def _joined(name: str, tensors: Any, prepare: Any) -> list[Tensor]:
    _require_tensors(name, tensors)
    if not len(tensors):
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return [prepare(t) for t in tensors]


@tensor_function(method=False, out=True)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: along dimension 1, vectors along 0."""
    parts = _joined("hstack", tensors, _to_1d)
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@tensor_function(method=False, out=True, aliases=("row_stack",))
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one below the other, vectors as rows."""
    return cat(_joined("vstack", tensors, _to_2d), 0)


@tensor_function(method=False, out=True)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one behind the other, along dimension 2."""
    return cat(_joined("dstack", tensors, _to_3d), 2)


@tensor_function(method=False, out=True)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side, vectors as columns."""
    return cat(_joined("column_stack", tensors, lambda t: t if t.ndim > 1 else shape.reshape(t, (-1, 1))), 1)


row_stack = vstack


@tensor_function(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices (vectors as rows) along its diagonal, zero elsewhere."""
    for i, t in enumerate(tensors):
        if t.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t.ndim} dimensions"
            )
    blocks = [_to_2d(t) for t in tensors]
    if not blocks:
        return factories.empty(1, 0)
    width, start, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        after = width - start - block.shape[1]
        rows.append(shape.constant_pad(block, ((0, 0), (start, after)), 0))
        start += block.shape[1]
    return cat(rows, 0)


@tensor_function(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors, all expanded to their common shape, and those that have it themselves."""
    given = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    shapes = [t.shape for t in given]
    try:
        size = broadcast_shapes(*shapes)
    except RuntimeError:
        hints = itertools.starmap(broadcast_hint, itertools.combinations(shapes, 2))
        raise RuntimeError(next(filter(None, hints))) from None
    return tuple([t if t.shape == size else shape.expand(t, size) for t in given])


def broadcast_shapes(*shapes: Any) -> Size:
    """The common shape that the shapes broadcast to."""
    for s in shapes:
        if not isinstance(s, (int, tuple, list)):
            raise RuntimeError(
                f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {s}"
            )
    sizes = [(s,) if isinstance(s, int) else as_ints("broadcast_shapes", s) for s in shapes]
    for size in sizes:
        if any(n < 0 for n in size):
            raise ValueError(f"Attempting to broadcast a dimension with negative length: {list(size)}")
    try:
        return new_size(Size, np.broadcast_shapes(*sizes))
    except ValueError:
        hint = broadcast_hint(*sizes)
        raise RuntimeError(
            f"Shape mismatch: objects cannot be broadcast to a single shape: {', '.join(str(list(s)) for s in sizes)}. "
            f"{hint}"
        ) from None


@tensor_function(method=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Views of the vectors, each expanded along the others: 'ij' (rows first, the default) or 'xy'."""
    given = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    if not len(given):
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        warn_program(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."
        )
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for t in given:
        if t.ndim > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(t.shape)}"
            )
        if t.dtype is not given[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    swapped = indexing == "xy" and len(given) > 1
    vectors = [shape.reshape(t, -1) for t in given]
    if swapped:
        vectors[:2] = vectors[1::-1]
    size = tuple(v.shape[0] for v in vectors)
    grids = [
        shape.expand(shape.reshape(v, (1,) * i + (-1,) + (1,) * (len(vectors) - i - 1)), size)
        for i, v in enumerate(vectors)
    ]
    if swapped:
        grids[:2] = grids[1::-1]
    return tuple(grids)


@tensor_function(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All choices of one element of each vector, one a row."""
    for t in tensors:
        if t.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([shape.flatten(g) for g in meshgrid(*tensors, indexing="ij")], 1)


@tensor_function()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All combinations of `r` elements of a vector, one a row."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if not r:
        return input[:0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = itertools.chain.from_iterable(choose(range(input.shape[0]), r))
    chosen = np.fromiter(places, np.int64).reshape(-1, r)
    return input[factories.from_numpy(chosen)]
