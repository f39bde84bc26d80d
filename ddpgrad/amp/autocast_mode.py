"""`autocast`, as a context and as a decorator, and its decorators for custom Functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from .. import cuda
from ..backend.device import Device
from ..backend.dtype import DType, bfloat16, float16, float64
from ..core.tensor import Tensor
from ..ops.dispatch.autocast import state

_TYPES = ("cpu", "cuda")


class autocast:
    """Within it, this thread's ops on `device_type` compute in the type that suits them.

    Matrix products and convolutions compute in `dtype` (bfloat16 on a CPU, float16 on a GPU by
    default), ops that need the range in float32, and the others in the types that they are given.
    Parameters keep their type, and gradients arrive in it. cache_enabled: a parameter is cast once
    until the outermost autocast ends. A context manager, which may be nested and entered again, and
    a decorator. Source: https://pytorch.org/docs/stable/amp.html
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = _known(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = state.cache_enabled if cache_enabled is None else cache_enabled
        if self.device == "cuda" and enabled and not cuda.is_available():
            warnings.warn(
                "User provided device_type of 'cuda', but CUDA is not available. Disabling autocast.",
                stacklevel=2,
            )
            enabled = False
        if enabled and self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                f"In {self.device.upper()} autocast, but the target dtype {self.fast_dtype} is not supported. "
                "Disabling autocast. It computes in torch.bfloat16 or torch.float16 only.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._previous: list[tuple[bool, DType, bool]] = []

    def __enter__(self) -> autocast:
        device = self.device
        self._previous.append((is_autocast_enabled(device), state.dtypes[device], state.cache_enabled))
        state.enable(device, self._enabled)
        state.dtypes[device] = self.fast_dtype
        state.cache_enabled = self._cache_enabled
        autocast_increment_nesting()
        return self

    def __exit__(self, *exc: object) -> None:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        enabled, state.dtypes[self.device], state.cache_enabled = self._previous.pop()
        state.enable(self.device, enabled)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped


def _known(device_type: str) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _TYPES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a device type."""
    return device_type in _TYPES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this thread is within autocast for a device type; False for one that has none."""
    return state.enabled.get(Device(device_type).type, False)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast of this thread on or off, as the context does; one bool is for 'cuda'."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    assert isinstance(device_type, str)
    state.enable(_known(device_type), enabled)


def get_autocast_dtype(device_type: str) -> DType:
    """The type that products compute in on a device type."""
    return state.dtypes[_known(device_type)]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Choose the type that products compute in on a device type."""
    state.dtypes[_known(device_type)] = dtype


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`, by its former name."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`, by its former name."""
    set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cpu", dtype)`, by its former name."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cuda", dtype)`, by its former name."""
    set_autocast_dtype("cuda", dtype)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`, by its former name."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`, by its former name."""
    return get_autocast_dtype("cuda")


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept."""
    return state.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Choose whether casts of parameters are kept."""
    state.cache_enabled = enabled


def clear_autocast_cache() -> None:
    """Forget the casts of parameters."""
    state.forget()


def autocast_increment_nesting() -> int:
    """Count one autocast more around this thread; how many there are now."""
    state.nesting += 1
    return state.nesting


def autocast_decrement_nesting() -> int:
    """Count one autocast less; how many there are left."""
    state.nesting -= 1
    return state.nesting


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Any:
    """Decorates `forward` of a custom Function: `backward` will run in the autocast state of the forward.

    cast_inputs: within autocast, floating-point tensors on the device are cast to this, and the forward
    runs without autocast.
    """
    _known(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled = is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if not enabled or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorates `backward` of a custom Function whose `forward` has `custom_fwd`."""
    _known(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return backward


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """`value` with the floating-point tensors in it cast, float64 left out."""
    if isinstance(value, Tensor):
        castable = value.is_floating_point() and value.dtype is not float64
        return value.to(dtype) if castable and value.device.type == device_type else value
    if isinstance(value, dict):
        return {k: _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(v, device_type, dtype) for v in value])
    return value
