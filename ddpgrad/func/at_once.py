"""`vmap` of a function that is called once, with all examples (`backend/mapped`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor
from ..autograd.crossing import Level, leave
from ..backend.mapped import kernels  # noqa: F401 - which adds their backend
from ..backend.mapped.array import innermost
from ..backend.registry import SparseArray
from ..core.errors import NotMapped
from ..core.modes import mapping, recorders
from ..core.overrides import in_mode
from ..core.taping import untaped
from ..nn.parameter import Parameter
from ..ops.dispatch.recording import Recorder
from .levels import AtOnce, Randomness, entered
from .trees import flatten


def call(
    func: Callable[..., Any], leaves: Sequence[Any], dims: Sequence[Any], count: int, rebuild: Any, kwargs: Any,
    draws: Randomness, places: Callable[[Any], Sequence[Any]],
) -> tuple[Any, list[Any]]:  # fmt: skip
    """What `func` returns for all examples, and its leaves with all of these, along `places(result)`.

    NotMapped where it has to be called for each.
    """
    if in_mode() or any(isinstance(r, Recorder) for r in recorders) or not _are_plain(leaves, dims):
        raise NotMapped
    untaped("vmap computes all examples at once, and a replay would be a loop over them")
    level = AtOnce(draws, Level(count))
    examples = [x if d is None else level.given(x, d) for x, d in zip(leaves, dims, strict=True)]
    mapping.append(innermost)
    try:
        with entered(level):
            result = func(*rebuild(examples), **kwargs)
        leaves = flatten(result)[0]
        return result, [_joined(x, d, level) for x, d in zip(leaves, places(result), strict=True)]
    except Exception as error:
        # One that the function raises for an example comes again there, and is told of that.
        raise NotMapped from error
    finally:
        mapping.remove(innermost)


def _are_plain(leaves: Sequence[Any], dims: Sequence[Any]) -> bool:
    """Whether arguments are tensors with memory of one device."""
    devices = set()
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            continue
        if x.__class__ not in (Tensor, Parameter) or x.is_meta or isinstance(x._array, SparseArray):
            return False
        devices.add(x.device)
    return len(devices) == 1


def _joined(x: Any, dim: Any, level: AtOnce) -> Any:
    if not isinstance(x, Tensor) or not (dim is None or isinstance(dim, int)):
        raise NotMapped
    if dim is None:
        if level.within.number in getattr(x._array, "levels", ()):
            raise NotMapped
        return x
    if not -x.ndim - 1 <= dim <= x.ndim:
        raise NotMapped
    found = leave(x, dim, level.within)
    return found if level.owns(x._array) else found.clone()
