"""`vmap` of a function that is called once, with all examples (`backend/mapped`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor
from ..backend.mapped import kernels  # noqa: F401 - which adds their backend
from ..backend.mapped.array import MappedArray, mapped_in
from ..backend.registry import SparseArray, backend_for
from ..core.errors import NotMapped
from ..core.modes import at_once, mapping, mode, recorders
from ..core.overrides import in_mode
from ..core.taping import untaped
from ..core.tensor import wrap
from ..nn.parameter import Parameter
from ..ops.dispatch.recording import Recorder
from .levels import AtOnce, Randomness, entered


def call(
    func: Callable[..., Any], leaves: Sequence[Any], dims: Sequence[Any], count: int, rebuild: Any, kwargs: Any, draws: Randomness
) -> Any:  # fmt: skip
    """What `func` returns for all examples: a tree whose tensors hold all. NotMapped where it has to be called for each."""
    if at_once():
        raise NotMapped  # in a vmap around this one, which then is a loop of this one
    if in_mode() or any(isinstance(r, Recorder) for r in recorders) or not _are_plain(leaves, dims):
        raise NotMapped
    untaped("vmap computes all examples at once, and a replay would be a loop over them")
    examples = [x if d is None else _examples(x, d) for x, d in zip(leaves, dims, strict=True)]
    mapping.append(_array_of_examples)
    try:
        with entered(AtOnce(draws, count)):
            return func(*rebuild(examples), **kwargs)
    except Exception as error:
        # One that the function raises for an example comes again there, and is told of that.
        raise NotMapped from error
    finally:
        mapping.remove(_array_of_examples)


def joined(leaves: Sequence[Any], dims: Sequence[Any], count: int) -> list[Any]:
    """The leaves of what `call` returned, as tensors that have all examples along `dims`, one for each."""
    return [_joined(x, d, count) for x, d in zip(leaves, dims, strict=True)]


def _are_plain(leaves: Sequence[Any], dims: Sequence[Any]) -> bool:
    """Whether arguments are tensors with memory of one device, and none is differentiated from outside."""
    devices = set()
    for x, dim in zip(leaves, dims, strict=True):
        if not isinstance(x, Tensor):
            continue
        if x.requires_grad and mode.enabled:
            return False
        if dim is not None:
            array = x._array
            if (
                x.__class__ not in (Tensor, Parameter)
                or x.is_meta
                or isinstance(array, (SparseArray, MappedArray))
            ):
                return False
            devices.add(x.device)
    return len(devices) == 1


def _examples(x: Tensor, dim: int) -> Tensor:
    return wrap(MappedArray(backend_for(x._array).permute(x._array, _first(dim % x.ndim, x.ndim))))


def _first(dim: int, ndim: int) -> tuple[int, ...]:
    return (dim, *[d for d in range(ndim) if d != dim])


def _joined(x: Any, dim: Any, count: int) -> Any:
    if not isinstance(x, Tensor) or x.requires_grad or not (dim is None or isinstance(dim, int)):
        raise NotMapped
    array = x._array
    if dim is None:
        if array.__class__ is MappedArray:
            raise NotMapped
        return x
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise NotMapped
    place = dim % (x.ndim + 1)
    if array.__class__ is not MappedArray:
        return x.unsqueeze(place).expand(*x.shape[:place], count, *x.shape[place:]).clone()
    F = backend_for(array.whole)
    whole = F.contiguous(F.permute(array.whole, (*range(1, place + 1), 0, *range(place + 1, x.ndim + 1))))
    return wrap(whole if whole.base is None else F.clone(whole))  # which may be the memory of an argument


def _array_of_examples(raw: Sequence[Any]) -> MappedArray | None:
    """The first array of examples among the raw arguments of an op."""
    return next(mapped_in(raw), None)
