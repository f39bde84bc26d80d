"""Indexing as PyTorch takes it apart: what gives a view first, one entry after the other, then tensors of places."""

from __future__ import annotations

from typing import Any

from ...core.dispatching import DisableTorchDispatch, flat, passed, tells
from ...core.tensor import Tensor
from ...ops.creation.data import as_tensor, tensor
from ...ops.dispatch.vocabulary import VOCABULARY as F
from .below import op_of, parts_of, parts_of_op, told
from .names import call_of, without_ellipsis


@parts_of_op("slice_by")
def _sliced(input: Tensor, index: Any) -> Any:
    """One entry of an index after the other, as PyTorch takes it apart."""
    entries = without_ellipsis(list(index) if isinstance(index, tuple) else [index], input.ndim)
    whole = slice(None)
    changing = [e for e in entries if e != whole]
    first = index[0] if isinstance(index, tuple) and index else index
    if len(changing) == 1 and first is not Ellipsis:
        return NotImplemented
    dim, out = 0, input
    for entry in entries:
        if entry == whole:
            dim += 1
            continue
        out = F.slice_by(out, (*(whole,) * dim, entry, Ellipsis))
        dim += entry is None or isinstance(entry, slice)
    return F.alias(input) if not changing else out


@parts_of_op("index_by")
def _indexed(input: Tensor, index: Any) -> Any:
    """What an index has besides tensors first, which is a view."""
    basic, places = _with_tensors(index)
    if places is None or all(e in (slice(None), Ellipsis) for e in basic):
        return NotImplemented
    return F.index_by(F.slice_by(input, basic), places)


def _with_tensors(index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """An index as one of a view, and one by tensors of what that gives."""
    entries = list(index) if isinstance(index, tuple) else [index]
    basic = [e if _is_basic(e) else slice(None) for e in entries]
    if all(map(_is_basic, entries)):
        return (*basic, *(() if Ellipsis in basic else (Ellipsis,))), None
    places: list[Any] = []
    for entry in entries:
        if not _is_basic(entry):
            places.append(as_tensor(entry))
        elif not isinstance(entry, int) or isinstance(entry, bool):
            places.append(slice(None) if entry is not Ellipsis else Ellipsis)
    return tuple(basic), tuple(places)


def _is_basic(entry: Any) -> bool:
    return (
        entry is None
        or entry is Ellipsis
        or isinstance(entry, slice)
        or (isinstance(entry, int) and not isinstance(entry, bool))
    )


@parts_of("subscript", "__getitem__")
def _subscript(self: Tensor, index: Any) -> Any:
    if not any(map(tells, flat((index,)))):
        return passed(Tensor.__getitem__, (self, index), {})
    basic, places = _with_tensors(index)
    out = F.slice_by(self, basic) if any(e not in (slice(None), Ellipsis) for e in basic) else self
    return F.index_by(out, places)


@parts_of("setitem", "__setitem__")
def _setitem(self: Tensor, index: Any, value: Any) -> None:
    basic, places = _with_tensors(index)
    if not isinstance(value, Tensor):
        made = passed(_tensor_like, (value, self), {})
        value = told("lift_fresh", (made,))
    target = self if all(e in (slice(None), Ellipsis) for e in basic) else F.slice_by(self, basic)
    if places is not None:
        target.index_put_(_written(target, places), value)
    elif value.ndim:
        target.copy_(value)
    else:
        target.fill_(value)


def _written(target: Tensor, places: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(call_of(op_of("index_by"), (target, places)).args[1])


def _tensor_like(value: Any, like: Tensor) -> Tensor:
    with DisableTorchDispatch():
        return tensor(value, dtype=like.dtype)
