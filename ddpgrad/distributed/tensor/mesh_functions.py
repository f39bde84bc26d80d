"""What functions of NumPy do with arrays of which each rank has a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backend.registry import backend_for
from ...core.tables import decorator_for
from .layout import REPLICATE, AnyShard, Placement, layout_of
from .mesh_array import FUNCTIONS, PROTOCOL, MeshArray, first_of, on_wholes, replaced, without_partial
from .spreading import elementwise, spread

Array = Any

LINEAR = {
    "add": "each", "subtract": "each", "negative": "each", "positive": "each", "conjugate": "each", "multiply": "one",
    "divide": "first",
}  # fmt: skip
"""The functions elementwise that may be applied to sums before these are added up (`spread`)."""


rule = decorator_for(FUNCTIONS)
"""Makes the decorated function what these functions of NumPy do with arrays of ranks."""


def linear_in(kind: str, operands: Sequence[Any]) -> str:
    """What `spread` is told of a function that is linear in the way `kind` says, for these operands."""
    if kind == "each":
        return kind if all(isinstance(x, MeshArray) for x in operands) else ""
    if kind == "first":
        second = operands[1]
        return (
            "" if isinstance(second, MeshArray) and any(p.is_partial() for p in second.placements) else "one"
        )
    return kind


# -- ufuncs ---------------------------------------------------------------------------------------


def apply_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`ufunc(*inputs)`, or one of its methods."""
    out = kwargs.pop("out", None)
    target = out[0] if isinstance(out, tuple) else out
    if method == "at":
        return _at(ufunc, *inputs)
    if method == "reduce" and ufunc in _REDUCTIONS:
        found = reduced(_REDUCTIONS[ufunc], *inputs, **{"axis": 0, **kwargs})
    elif method != "__call__" or (ufunc.signature is not None and ufunc is not np.matmul):
        found = on_wholes(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)
    elif ufunc is np.matmul:
        found = product(inputs[0], inputs[1], np.matmul)
    else:

        def compute(*parts: Any) -> Any:
            return ufunc(*parts, **kwargs)

        found = elementwise(compute, inputs, linear_in(LINEAR.get(ufunc.__name__, ""), inputs))
    if target is None:
        return found
    if not isinstance(target, MeshArray):
        raise TypeError("out= is an ordinary array, and the result is one of which each rank has a part")
    target[...] = found
    return target


def _at(ufunc: Any, target: Any, index: Any, *values: Any) -> None:
    """`ufunc.at`, by every rank on the whole."""
    if not isinstance(target, MeshArray):
        raise TypeError(
            f"numpy.{ufunc.__name__}.at: an ordinary array cannot take what each rank has a part of"
        )
    whole = target.whole().copy()
    ufunc.at(whole, replaced(index, MeshArray.whole), *[replaced(v, MeshArray.whole) for v in values])
    target[...] = target.everywhere(whole)


# -- reductions -----------------------------------------------------------------------------------

_PARTIAL = {"sum": "sum", "max": "max", "min": "min", "prod": "product"}
_REDUCTIONS = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.multiply: "prod"}


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions that a reduction goes over, from 0."""
    given = range(ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple([d % ndim for d in given]) if ndim else ()


def reduce_along(
    x: MeshArray, axes: Sequence[int], keepdims: bool, reduces: str | None, compute: Callable[[Any], Any]
) -> Any:
    """`compute(part)`, a reduction over `axes`. reduces: how its results for parts make up the whole; None: it needs all."""
    own: list[Any] = [None if reduces is None and d in axes else d for d in range(x.ndim)]
    # Of nothing there is no largest, and so none may be without elements.
    if reduces in ("max", "min"):
        own = [None if d in axes and _leaves_nothing(x, d) else label for d, label in enumerate(own)]
    kept = [None if d in axes else d for d in range(x.ndim) if keepdims or d not in axes]
    linear = "each" if reduces in ("sum", "avg") else ""
    return spread(compute, [x], [own], [kept], reduces or "sum", linear)


def _leaves_nothing(x: MeshArray, d: int) -> bool:
    """Whether some rank may have nothing along dimension `d`, where it is divided; Booleans have no maximum over ranks."""
    return x.dtype.kind == "b" or x.shape[d] % x.divided.get(d, 1) != 0


def reduced(name: str, a: MeshArray, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:  # fmt: skip
    """A reduction by the method of that name."""
    if dtype is not None:
        options["dtype"] = dtype
    axes = axes_of(axis, a.ndim)
    return reduce_along(
        a, axes, keepdims, _PARTIAL.get(name), lambda part: getattr(part, name)(axis=axes, keepdims=keepdims, **options)
    )  # fmt: skip


def _named_reduction(name: str) -> Callable[..., Any]:
    return lambda a, *args, **options: reduced(name, a, *args, **options)


for _name in ("sum", "max", "min", "prod", "all", "any", "var", "std"):
    FUNCTIONS[getattr(np, _name)] = _named_reduction(_name)


@rule(np.mean)
def _mean(a: MeshArray, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    axes = axes_of(axis, a.ndim)
    return reduced("sum", a, axis, dtype, keepdims=keepdims) / math.prod(a.shape[d] for d in axes)


# -- products -------------------------------------------------------------------------------------


def product(a: Any, b: Any, compute: Callable[..., Any]) -> Any:
    """`compute(a, b)`, the product of matrices, of vectors, or of stacks of them, as `numpy.matmul`."""
    m, n = len(a.shape), len(b.shape)
    if not m or not n:
        return compute(a, b)  # whose error says what is wrong
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rank = len(lead)

    def stacked(x: Any) -> list[Any]:
        skipped = rank - max(len(x.shape) - 2, 0)
        return [skipped + i if k == lead[skipped + i] else None for i, k in enumerate(x.shape[:-2])]

    own = [*stacked(a), *(["row"] if m > 1 else []), "sum"]
    other = [*stacked(b), "sum", *(["column"] if n > 1 else [])]
    out = [*range(rank), *(["row"] if m > 1 else []), *(["column"] if n > 1 else [])]
    return spread(compute, [a, b], [own, other], [out], linear="one")


@rule(np.dot)
def _dot(a: Any, b: Any) -> Any:
    if max(len(a.shape), len(b.shape)) > 2:
        return on_wholes(np.dot, (a, b), {})
    return product(a, b, np.dot)


# -- elementwise ----------------------------------------------------------------------------------


@rule(np.where)
def _where(condition: Any, *values: Any) -> Any:
    return elementwise(np.where, (condition, *values)) if values else on_wholes(np.where, (condition,), {})


@rule(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    return elementwise(np.clip, (a, a_min, a_max))


@rule(np.conj)
def _conj(a: MeshArray) -> Any:
    return elementwise(np.conj, (a,), "each")


@rule(np.result_type)
def _result_type(*operands: Any) -> Any:
    return np.result_type(*[x.part if isinstance(x, MeshArray) else x for x in operands])


@rule(np.copyto)
def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    dst[...] = src if where is True else np.where(where, src, dst)


def _like(function: Any) -> Callable[..., Any]:
    def made(a: MeshArray, *value: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
        everywhere = (REPLICATE,) * a.mesh.ndim
        layout = layout_of(
            a.mesh, *((without_partial(a.placements), a.shape) if shape is None else (everywhere, shape))
        )
        part = function(a.part, *value, dtype=dtype, shape=layout.part_shape)
        return a.__class__(part, layout)

    return made


for _function in (np.empty_like, np.zeros_like, np.ones_like, np.full_like):
    FUNCTIONS[_function] = _like(_function)


# -- shapes ---------------------------------------------------------------------------------------


def move(x: MeshArray, compute: Callable[[Any], Any], own: Sequence[Any], out: Sequence[Any]) -> Any:
    """`compute(part)`, which moves elements and changes none."""
    return spread(compute, [x], [own], [out], linear="move")


@rule(np.transpose)
def transposed(a: MeshArray, axes: Any = None) -> Any:
    order = axes_of(tuple(reversed(range(a.ndim))) if axes is None else axes, a.ndim)
    return move(a, lambda part: part.transpose(order), range(a.ndim), order)


@rule(np.swapaxes)
def _swapaxes(a: MeshArray, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transposed(a, order)


@rule(np.moveaxis)
def _moveaxis(a: MeshArray, source: Any, destination: Any) -> Any:
    order = np.moveaxis(np.empty(range(1, a.ndim + 1), "V0"), source, destination).shape
    return transposed(a, [n - 1 for n in order])


@rule(np.broadcast_to)
def broadcast(array: MeshArray, shape: Any, **options: Any) -> Any:
    full = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if np.broadcast_shapes(array.shape, full) != full:
        raise ValueError(f"operands could not be broadcast together with shapes {array.shape} {full}")
    lead = len(full) - array.ndim
    own = [lead + i if n == full[lead + i] else None for i, n in enumerate(array.shape)]

    def compute(part: Any) -> Any:
        wanted = list(full)
        for label, n in zip(own, part.shape, strict=True):
            if label is not None:
                wanted[label] = n
        return backend_for(part).expand(part, tuple(wanted))

    return move(array, compute, own, [d if d in own else None for d in range(len(full))])


@rule(np.squeeze)
def squeezed(a: MeshArray, axis: Any = None) -> Any:
    gone = {d for d, n in enumerate(a.shape) if n == 1} if axis is None else set(axes_of(axis, a.ndim))
    if any(a.shape[d] != 1 for d in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return reshaped(a, [n for d, n in enumerate(a.shape) if d not in gone])


@rule(np.expand_dims)
def _expand_dims(a: MeshArray, axis: Any) -> Any:
    new = set(axes_of(axis, a.ndim + (len(axis) if isinstance(axis, tuple) else 1)))
    rest = iter(a.shape)
    return reshaped(a, [1 if d in new else next(rest) for d in range(a.ndim + len(new))])


@rule(np.ravel)
def _ravel(a: MeshArray) -> Any:
    return reshaped(a, (-1,))


@rule(np.reshape)
def reshaped(a: MeshArray, shape: Any, **options: Any) -> Any:
    """The elements in the same order as `shape` says.

    What is divided along a dimension that stays stays so; one that is the first of those that are joined or
    divided further too, if each rank's elements then are a part of the new one.
    """
    new = _full_shape(a, shape)
    together = _first_dims(a.shape, new)
    placements: list[Placement] = []
    ranks = a.divided
    for p in a.placements:
        if not isinstance(p, AnyShard):
            placements.append(p)
            continue
        to = together.get(p.dim)
        fits = to is not None and (
            a.shape[p.dim] == new[to]
            or not (a.shape[p.dim] % ranks.get(p.dim, 1) or new[to] % ranks.get(p.dim, 1))
        )
        placements.append(p.at(to) if fits and to is not None else REPLICATE)
    held = a.placed(
        [
            p if p.divides() == q.divides() else REPLICATE
            for p, q in zip(a.placements, placements, strict=True)
        ]
    )
    layout = layout_of(a.mesh, placements, new)
    return a.__class__(held.part.reshape(layout.part_shape), layout)


def _full_shape(a: MeshArray, shape: Any) -> tuple[int, ...]:
    given = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
    known = math.prod(n for n in given if n != -1)
    if -1 in given:
        if given.count(-1) > 1 or not known or a.size % known:
            raise ValueError(f"cannot reshape array of size {a.size} into shape {given}")
        return tuple([a.size // known if n == -1 else n for n in given])
    if known != a.size:
        raise ValueError(f"cannot reshape array of size {a.size} into shape {given}")
    return given


def _first_dims(old: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Of runs of dimensions of `old` that become runs of `new`, the first of each: those of length 1 stand by themselves."""
    found: dict[int, int] = {}
    i = j = 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            found[i] = j
            i, j = i + 1, j + 1
            continue
        if old[i] == 1:
            i += 1
            continue
        if new[j] == 1:
            j += 1
            continue
        found[i] = j
        left, right, i, j = old[i], new[j], i + 1, j + 1
        while left != right and (i < len(old) or j < len(new)):
            if left < right and i < len(old):
                left, i = left * old[i], i + 1
            elif j < len(new):
                right, j = right * new[j], j + 1
            else:
                break
    return found


@rule(np.concatenate)
def concatenated(arrays: Sequence[Any], axis: int = 0, **options: Any) -> Any:
    like = first_of(arrays)
    assert like is not None
    axis %= like.ndim
    own = [None if d == axis else d for d in range(like.ndim)]
    linear = "each" if all(isinstance(x, MeshArray) for x in arrays) else ""
    return spread(
        lambda *parts: np.concatenate(parts, axis=axis), arrays, [own] * len(arrays), [own], linear=linear
    )


@rule(np.stack)
def _stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    return concatenated([np.expand_dims(a, axis) for a in arrays], axis)


def along(x: MeshArray, axes: Sequence[int], compute: Callable[[Any], Any]) -> Any:
    """`compute(part)`, which needs what lies along `axes` whole and has a result of the same number of dimensions."""
    own = [None if d in axes else d for d in range(x.ndim)]
    return spread(compute, [x], [own], [own])


def _along_axis(function: Any) -> Callable[..., Any]:
    def applied(a: MeshArray, *args: Any, axis: Any = -1, **options: Any) -> Any:
        return along(a, axes_of(axis, a.ndim), lambda part: function(part, *args, axis=axis, **options))

    return applied


for _function in (np.argsort, np.sort):
    FUNCTIONS[_function] = _along_axis(_function)
for _function in (np.tril, np.triu):
    FUNCTIONS[_function] = lambda m, k=0, _f=_function: along(
        m, axes_of((-2, -1), m.ndim), lambda part: _f(part, k)
    )

PROTOCOL["ufunc"] = apply_ufunc
