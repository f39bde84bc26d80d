"""Autocast: casts the arguments of listed ops to the dtype that the op should compute in, under autograd.

What is listed, for which device, is in `autocast_lists.py`; users switch it by `ddpgrad.amp.autocast`.
The state belongs to a thread, as in PyTorch.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ...autograd.accumulate import edge_of, tensor_at
from ...autograd.grad_mode import mode
from ...autograd.passes import carried
from ...backend.device import capture_forgets
from ...backend.dtype import DType, bfloat16, float16, float32, float64, promote_types
from ...backend.registry import backend_for, is_on_gpu
from ...core.dispatching import in_mode, telling, tells
from ...core.tensor import Tensor, wrap
from .autocast_lists import BANNED, FLOAT32, LISTED, LOWER, PROMOTED
from .vocabulary import VOCABULARY

casting: list[_State] = []
"""Empty unless some thread is within autocast: what listed ops ask first, so that autocast costs nothing without."""


_FLOAT32 = np.dtype(np.float32)


class _Cast(NamedTuple):
    """A cast of a parameter, and what that was then."""

    result: Tensor
    version: int
    array: Any
    parameter: Tensor

    def holds(self) -> bool:
        """Whether the parameter is as it was."""
        return self.version == self.parameter._version and self.array is self.parameter._array


class _State(threading.local):
    """enabled, dtypes: by device type. cache: casts of parameters, kept until the outermost autocast ends.

    ahead: casts on a GPU that nobody has asked for yet. together: what was cast in a region, by its first parameter and
    dtype, to be cast by one launch when a region begins with that again.
    """

    def __init__(self) -> None:
        self.enabled: dict[str, bool] = {}
        self.dtypes: dict[str, DType] = {"cpu": bfloat16, "cuda": float16}
        self.cache_enabled = True
        self.cache: dict[Any, _Cast] = {}
        self.ahead: dict[Any, _Cast] = {}
        self.together: dict[Any, list[ref[Tensor]]] = {}
        self.nesting = 0

    def forget(self) -> None:
        """Drop the casts of parameters: the outermost autocast has ended."""
        groups: dict[DType, list[Tensor]] = {}
        for (_, dtype, _), cast in self.cache.items():
            if backend_for(cast.array).kind == "cuda":
                groups.setdefault(dtype, []).append(cast.parameter)
        for dtype, (first, *others) in groups.items():
            key = id(first), dtype
            gone = functools.partial(self._gone, key)
            self.together[key] = [ref(first, gone), *map(ref, others)]
        self.cache.clear()
        self.ahead.clear()

    def _gone(self, key: Any, _: Any) -> None:
        self.together.pop(key, None)

    def enable(self, device_type: str, enabled: bool) -> None:
        if enabled is self.enabled.get(device_type, False):
            return
        self.enabled[device_type] = enabled
        if enabled:
            casting.append(self)
        else:
            casting.remove(self)


state = _State()
capture_forgets.append(lambda: state.forget())
carried.append(state)


def is_listed(name: str) -> bool:
    """Whether autocast has a say in the op or function of that name."""
    return name in LISTED


def cast_arguments(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a listed op or function, cast as this thread's autocast says."""
    device = _device_type(args)
    if device is None or not state.enabled.get(device):
        return args
    if name in BANNED[device]:
        raise RuntimeError(BANNED[device][name])
    if name in LOWER[device]:
        return _each(args, lambda t: _cast(t, device, state.dtypes[device]))
    if name in FLOAT32[device]:
        return _each(args, lambda t: _cast(t, device, float32))
    if name in PROMOTED[device]:
        widest: DType | None = None
        for t in _tensors(args):
            if _eligible(t, device):
                widest = t.dtype if widest is None else promote_types(widest, t.dtype)
        return args if widest is None else _each(args, lambda t: _cast(t, device, widest))
    return args


def under_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A listed function made of ops, with its arguments cast."""
    name = function.__name__.removesuffix("_with_indices")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not casting:
            return function(*args, **kwargs)
        if kwargs.get("out") is None:
            cast = cast_arguments(name, (*args, *kwargs.values()))
            args, kwargs = cast[: len(args)], dict(zip(kwargs, cast[len(args) :], strict=True))
        # It computes in the type that it was given, without a say of autocast in the ops that it is made of.
        return without_autocast(function, args, kwargs)

    return call


def without_autocast(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function returns where autocast has no say: where a function is given `out`, as in PyTorch."""
    if not casting:
        return function(*args, **kwargs)
    enabled, state.enabled = state.enabled, {}
    try:
        return function(*args, **kwargs)
    finally:
        state.enabled = enabled


def in_float32(t: Tensor) -> bool:
    """Whether functions that compute in float32 under autocast are given `t` in it."""
    device = backend_for(t._array).kind
    return bool(casting) and state.enabled.get(device, False) and _eligible(t, device)


def _tensors(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, and in lists and tuples there."""
    found = []
    for value in args:
        if isinstance(value, Tensor):
            found.append(value)
        elif value.__class__ is list or value.__class__ is tuple:
            found += [part for part in value if isinstance(part, Tensor)]
    return found


def _each(args: Sequence[Any], cast: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Arguments with their tensors cast."""
    out = []
    for value in args:
        if isinstance(value, Tensor):
            value = cast(value)
        elif value.__class__ is list or value.__class__ is tuple:
            value = value.__class__([cast(part) if isinstance(part, Tensor) else part for part in value])
        out.append(value)
    return tuple(out)


def _device_type(args: Sequence[Any]) -> str | None:
    kinds = {backend_for(t._array).kind for t in _tensors(args)}
    return "cuda" if "cuda" in kinds else "cpu" if kinds else None


def _eligible(t: Tensor, device: str) -> bool:
    dtype = t.dtype
    return dtype.is_floating_point and dtype is not float64 and backend_for(t._array).kind == device


def _cast(t: Tensor, device: str, dtype: DType) -> Tensor:
    """`t` in `dtype`, if autocast may cast it; a parameter's cast is kept, and made anew when it has changed."""
    if t.dtype is dtype or not _eligible(t, device):
        return t
    if not state.cache_enabled or not _is_kept(t):
        return _converted(t, dtype)
    # A cast that was not recorded is of no use where gradients are wanted.
    key = (id(t), dtype, mode.enabled)
    known = state.cache.get(key)
    if known is None or not known.holds():
        known = state.cache[key] = _cast_anew(t, dtype, key)
    return known.result


def _cast_anew(t: Tensor, dtype: DType, key: Any) -> _Cast:
    if not is_on_gpu(t._array) or (telling and in_mode()) or not _takes_float32(t):
        return _Cast(_converted(t, dtype), t._version, t._array, t)
    known = state.ahead.pop(key, None)
    if known is None or not known.holds():
        parameters = [t, *_wanted_with(t, dtype)]
        arrays = backend_for(t._array).cast_together([p._array for p in parameters], dtype.numpy)
        for p, array in zip(parameters, arrays, strict=True):
            # Its gradients go where the parameter's go, and are rounded on no way there.
            result = tensor_at(array, edge_of(p)) if mode.enabled else wrap(array)
            state.ahead[id(p), dtype, mode.enabled] = _Cast(result, p._version, p._array, p)
        known = state.ahead.pop(key)
    return known


def _wanted_with(first: Tensor, dtype: DType) -> list[Tensor]:
    """The parameters that were cast where `first` was, as far as they have no cast."""
    group = state.together.get((id(first), dtype))
    if group is None:  # within one long region: what has changed since it was cast
        known = [cast.parameter for (_, kind, _), cast in state.cache.items() if kind is dtype]
    else:
        known = [p for weak in group if (p := weak()) is not None]
    own = first._array
    device = backend_for(own).device_of
    return [
        p for p in known
        if p is not first and p._array.__class__ is own.__class__ and p._array.dtype is own.dtype
        and device(p._array) is device(own) and _is_kept(p)
        and not ((cast := state.cache.get((id(p), dtype, mode.enabled))) and cast.holds())
        and _takes_float32(p)
    ]  # fmt: skip


def _takes_float32(t: Tensor) -> bool:
    """Whether a gradient of `t`, if there is to be one, arrives in its own type, and nobody is told of its cast."""
    node = edge_of(t)[0]
    told = telling and tells(t)
    return not told and (not mode.enabled or (node is not None and node.dtype is _FLOAT32))


def _is_kept(t: Tensor) -> bool:
    """Whether a cast of `t` is kept: it is a parameter."""
    return bool(t._requires_grad and t.is_leaf and t.dtype is float32 and t._view is None)


def _converted(t: Tensor, dtype: DType) -> Tensor:
    return VOCABULARY.cast(t, dtype)
