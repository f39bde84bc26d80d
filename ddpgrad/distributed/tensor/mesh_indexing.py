"""Reading and writing by index where each rank has a part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backend.registry import backend_for
from .layout import layout_of
from .mesh_array import PROTOCOL, MeshArray, on_wholes, replaced
from .mesh_functions import broadcast
from .spreading import spread


def _parts_of(index: Any, ndim: int) -> list[Any] | None:
    """The index as one entry for each dimension, and None for new ones; None where it holds masks or is not understood."""
    given: list[Any] = list(index) if isinstance(index, tuple) else [index]
    named = sum(1 for part in given if part is not None and part is not Ellipsis)
    if any(part is Ellipsis for part in given):
        at = next(i for i, part in enumerate(given) if part is Ellipsis)
        given[at : at + 1] = [slice(None)] * (ndim - named)
    else:
        given += [slice(None)] * (ndim - named)
    for i, part in enumerate(given):
        if part is None or (part.__class__ is not bool and isinstance(part, (slice, int, np.integer))):
            continue
        if hasattr(part, "dtype") and part.dtype.kind in "iu" and not part.ndim:
            given[i] = int(part)
            continue
        if not hasattr(part, "dtype") or part.dtype.kind not in "iu":
            return None
    return given if sum(1 for part in given if part is not None) == ndim else None


def _is_full(part: Any, n: int) -> bool:
    return isinstance(part, slice) and part.indices(n) == (0, n, 1)


def read(x: MeshArray, index: Any) -> MeshArray:
    """`x[index]`: a view of a rank's part where the dimensions that are cut are not divided."""
    given = _parts_of(index, x.ndim)
    arrays = [] if given is None else [part for part in given if hasattr(part, "dtype") and part.ndim]
    if given is None or len(arrays) > 1:
        return on_wholes(lambda a, i: a[i], (x, index), {})
    own: list[Any] = []
    out: list[Any] = []
    local: list[Any] = []
    for part in given:
        if part is None:
            out.append(None)
            local.append(None)
            continue
        d = len(own)
        full = _is_full(part, x.shape[d])
        own.append(d if full else None)
        if full:
            out.append(d)
            local.append(slice(None))
            continue
        if isinstance(part, slice):
            out.append(None)
        elif arrays and part is arrays[0]:
            out += [("index", k) for k in range(part.ndim)]
        local.append(part)
    if not arrays:
        key = (*local, ...)
        return spread(lambda a: a[key], [x], [own], [out], linear="move")
    if len(given) > 1 and any(isinstance(part, (int, np.integer)) for part in given):
        return on_wholes(lambda a, i: a[i], (x, index), {})  # where the index's dimensions come first
    at = next(i for i, part in enumerate(local) if part is arrays[0])
    labels = [("index", k) for k in range(arrays[0].ndim)]

    def compute(a: Any, chosen: Any) -> Any:
        return a[(*local[:at], chosen, *local[at + 1 :])]

    return spread(compute, [x, arrays[0]], [own, labels], [out])


def write(x: MeshArray, index: Any, value: Any) -> None:
    """`x[index] = value`, into the memory of every rank's part."""
    given: list[Any] | None = [slice(None)] * x.ndim if index is Ellipsis else _parts_of(index, x.ndim)
    plain = given is not None and not any(hasattr(part, "dtype") and part.ndim for part in given)
    if plain and given is not None:
        own = [part for part in given if part is not None]
        cut = [d for d, part in enumerate(own) if not _is_full(part, x.shape[d])]
        if not any(p.divides(d) for d in cut for p in x.placements) and not _has_sums(x):
            _write_all(x[index] if cut or None in given else x, value)
            return
        if not cut and None not in given:
            _settle(x, value)
            return
    whole = x.whole().copy()
    whole[replaced(index, MeshArray.whole)] = replaced(value, MeshArray.whole)
    _settle(x, x.everywhere(whole))


def _has_sums(x: MeshArray) -> bool:
    return any(p.is_partial() for p in x.placements)


def _write_all(x: MeshArray, value: Any) -> None:
    """Overwrite a view whose part is a view of the memory that is meant."""
    x.part[...] = _lying_as(x, value)


def _lying_as(x: MeshArray, value: Any) -> Any:
    """This rank's part of `value`, broadcast to the shape of `x`."""
    if isinstance(value, MeshArray):
        if value.shape != x.shape:
            extra = value.ndim - x.ndim
            value = broadcast(value.reshape(value.shape[extra:]) if extra > 0 else value, x.shape)
        return value.placed(x.placements).part
    if getattr(value, "ndim", 0):
        full = backend_for(x.part).library.broadcast_to(value, x.shape)
        return full[layout_of(x.mesh, x.placements, x.shape).index]
    return value


def _settle(x: MeshArray, value: Any) -> None:
    """Overwrite all of `x`; where it is a sum of the ranks' parts, these make up `value`."""
    if _has_sums(x) and not isinstance(value, MeshArray):
        whole = x.everywhere(backend_for(x.part).new_zeros(x.part, x.shape))
        whole.part[...] = value
        value = whole
    x.part[...] = _lying_as(x, value)


PROTOCOL.update(read=read, write=write)
