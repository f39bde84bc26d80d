"""What functions do with DTensors: they compute with arrays of ranks (`mesh_array.py`), and what they return is a DTensor again."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...autograd import entry
from ...core.overrides import DisableTorchFunctionSubclass, arguments_of
from ...core.tensor import Tensor
from .history import placed
from .mesh_array import MeshArray, without_partial


class _Thread(threading.local):
    replicates: bool = False  # ordinary tensors beside DTensors
    losses: bool = False  # are to be on all ranks, and may have ordinary targets


_thread = _Thread()

_WITH_WHOLES = frozenset({"copy_", "__set__"})
"""Functions that take ordinary tensors, of the shape of the whole and alike on all ranks."""


_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "empty_like"})
"""Functions that ask a DTensor themselves for one that lies likewise."""

_DRAWS = frozenset(
    {"bernoulli", "binomial", "multinomial", "poisson", "rand_like", "randn_like", "randint_like"}
)
"""Functions that draw numbers by what a DTensor says: every rank draws those of the whole, and keeps its part."""

_NEW = frozenset({"new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided"})
"""Methods that make an ordinary tensor of what a DTensor says of itself."""


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which ordinary tensors among the arguments are taken to be alike on all ranks."""
    before, _thread.replicates = _thread.replicates, True
    try:
        yield
    finally:
        _thread.replicates = before


@contextmanager
def summed_losses() -> Iterator[None]:
    """A block in which losses take ordinary targets, alike on all ranks, and are added up."""
    before, _thread.losses = _thread.losses, True
    try:
        yield
    finally:
        _thread.losses = before


_LOSSES = frozenset({"cross_entropy", "nll_loss"})


def run(kind: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)` where some arguments are of the class `kind`, DTensor."""
    if function in (entry.backward, entry.grad):
        return _backward(kind, function, args, kwargs)
    name = getattr(function, "__name__", "this function")
    if name in _NEW and isinstance(args[0], kind):
        with DisableTorchFunctionSubclass():
            return args[0].beside(function(args[0].entered(), *args[1:], **kwargs))
    if name in _LIKE:
        with DisableTorchFunctionSubclass():
            return function(*args, **kwargs)
    if name in _DRAWS and isinstance(args[0], kind):
        return _drawn(kind, function, args, kwargs)
    loss = _thread.losses and name in _LOSSES
    if not (_thread.replicates or loss or name in _WITH_WHOLES):
        _refuse_mixed(name, args, kwargs, kind)
    entered: dict[int, tuple[Any, Any]] = {}

    def enter(value: Any) -> Any:
        if isinstance(value, kind):
            alias = value.entered()
            if alias is not value:
                alias = entered.setdefault(id(value), (value, alias))[1]
            return alias
        return _each(value, enter)

    given, options = [enter(v) for v in args], {k: enter(v) for k, v in kwargs.items()}
    with DisableTorchFunctionSubclass():
        found = function(*given, **options)
        if loss:
            found = placed(found, without_partial(found._array.placements))
    originals = {id(alias): value for value, alias in entered.values()}
    for value, alias in entered.values():
        if alias._grad_fn is not None or alias._array.part is not value._array.array:
            value.become(alias)  # it was changed in place
        elif alias._array.layout is not value._array.layout:
            value.become(alias)
    return _shown(found, originals, kind)


def _drawn(kind: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    def whole(value: Any) -> Any:
        return value.whole() if isinstance(value, kind) else value

    given = [whole(value) for value in args]
    return args[0].beside(function(*given, **{key: whole(value) for key, value in kwargs.items()}))


def _shown(found: Any, originals: dict[int, Any], kind: Any) -> Any:
    if isinstance(found, Tensor):
        if id(found) in originals:
            return originals[id(found)]
        return kind.shown(found)
    return _each(found, lambda value: _shown(value, originals, kind))


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with `change` of what it has in lists, tuples and dicts; itself where that changes nothing."""
    if isinstance(value, (list, tuple)) and value:
        made = [change(v) for v in value]
        if all(a is b for a, b in zip(made, value, strict=True)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {key: change(v) for key, v in value.items()}
    return value


def _refuse_mixed(name: str, args: Sequence[Any], kwargs: dict[str, Any], kind: Any) -> None:
    for value in arguments_of(args, kwargs):
        if not isinstance(value, Tensor) or isinstance(value, kind) or not value.ndim:
            continue
        if isinstance(value._array, MeshArray):
            continue
        if value.ndim == 1 and value.numel() == 1:
            warnings.warn(
                "Found a non-scalar tensor with numel=1 and ndim!=0, we are implicitly creating a replicated DTensor for it. "
                "However, please consider changing it to a scalar tensor or explicitly create a DTensor under distributed "
                "environment.",
                stacklevel=4,
            )
            continue
        raise RuntimeError(
            f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
            f"operators! A tensor of shape {list(value.shape)} that all ranks have alike becomes one by "
            "distribute_tensor(tensor, mesh) or DTensor.from_local(tensor, mesh, [Replicate()]). Under fully_shard call the module that "
            "was sharded: its forward() and its parts have no whole parameters by themselves"
        )


def _backward(kind: Any, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`backward` and `grad`, within which hooks see DTensors that compute as ever."""
    place, key = (1, "grad_tensors") if function is entry.backward else (2, "grad_outputs")

    def enter(value: Any) -> Any:
        return value.entered() if isinstance(value, kind) else _each(value, enter)

    def seed(value: Any) -> Any:
        return value.plain() if isinstance(value, kind) else _each(value, seed)

    given = [seed(v) if i == place else enter(v) for i, v in enumerate(args)]
    options = {k: seed(v) if k == key else enter(v) for k, v in kwargs.items()}
    return _shown(function.__wrapped__(*given, **options), {}, kind)
