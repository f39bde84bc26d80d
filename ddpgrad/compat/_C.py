"""The few names of PyTorch's C++ core that libraries written in Python ask for."""

from __future__ import annotations

import contextlib
import enum
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from ..amp.autocast_mode import autocast
from ..autograd.accumulate import AccumulateGrad
from ..autograd.difference_quotients import Undefined
from ..backend import device as devices
from ..core.dispatching import DisableTorchDispatch as _DisableTorchDispatch
from ..core.dispatching import disabled as _disabled_torch_dispatch_impl
from ..core.dispatching import thread
from ..core.errors import LinAlgError as _LinAlgError
from ..core.overrides import DisableTorchFunction, DisableTorchFunctionSubclass, in_mode
from ..core.overrides import disabled as _disabled_torch_function_impl
from ..core.tensor import Tensor
from ..nn.modules import conversion
from ..random.generator import Generator
from . import absent
from .accelerator import current_accelerator
from .aliases import ROOT

__path__: list[str] = []  # absent modules are found below
_below = absent.looks_below(__name__)


def __getattr__(name: str) -> Any:
    """What `torch` itself has from C++, such as `dtype` and `Tag`; or a module below."""
    if name.startswith(("_jit_set_", "_jit_override_")):
        return _switch
    package = sys.modules[ROOT]
    return getattr(package, name) if name in package._homes else _below(name)


def _get_accelerator() -> devices.Device:
    """The kind of GPU, without an index; the CPU without one."""
    return current_accelerator() or devices.CPU


def _switch(*args: Any) -> bool:
    """A switch of the compiler of TorchScript, of which there is none: it was and stays off."""
    return False


_TensorMeta = type(Tensor)
TensorBase = Tensor
_has_mps = _has_xpu = False
"""Devices that are never here."""
DeviceObjType, Graph, Node, ScriptMethod, TensorType, Value = absent.stand_ins("_C", absent.VALUES).values()


class _functions:
    """Nodes of the graph that programs look for with `isinstance`."""

    AccumulateGrad = AccumulateGrad

    @staticmethod
    def UndefinedGrad() -> Any:
        """A copy of a tensor whose gradient is not defined."""
        return Undefined.apply


class _WeakTensorRef:
    """A reference that does not keep its tensor alive."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is no more."""
        return self._tensor() is None


class _nn:
    """Helpers of `torch.nn` that PyTorch has in C++."""

    @staticmethod
    def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
        """What `Module.to` is asked for: device, dtype, non_blocking, memory_format."""
        return conversion.parse(*args, **kwargs)


def _get_default_device() -> str:
    """The kind of device that tensors are made on where none is said."""
    return devices.of(devices.default()).type


def _len_torch_dispatch_stack() -> int:
    """How many modes of this thread are told of ops."""
    return len(thread.modes)


def _get_dispatch_stack_at(place: int) -> Any:
    """One of them, the outermost being the first."""
    return thread.modes[place]


def _get_tracing_state() -> None:
    """None: nothing is ever traced."""


def _is_tracing() -> bool:
    """False: nothing is ever traced."""
    return False


def _are_functorch_transforms_active() -> bool:
    """False: the functions of `torch.func` work on plain tensors."""
    return False


def _is_alias_of(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors share their memory."""
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def _is_torch_function_mode_enabled() -> bool:
    """Whether this thread is in a `TorchFunctionMode`."""
    return in_mode()


DispatchKey = enum.Enum(
    "DispatchKey",
    "CPU CUDA Meta CompositeImplicitAutograd CompositeExplicitAutograd AutocastCPU AutocastCUDA AutocastXPU",
)
"""What kernels can be registered for (`torch.library`), by PyTorch's names."""


class DispatchKeySet(frozenset[DispatchKey]):
    """A set of dispatch keys, made of one; `|` joins sets."""

    def __new__(cls, key: DispatchKey | frozenset[DispatchKey]) -> DispatchKeySet:
        return super().__new__(cls, [key] if isinstance(key, DispatchKey) else key)

    def __or__(self, other: Any) -> DispatchKeySet:
        return DispatchKeySet(frozenset(self) | frozenset(other))

    def has(self, key: DispatchKey) -> bool:
        """Whether `key` is one of the set."""
        return key in self


@contextlib.contextmanager
def _ExcludeDispatchKeyGuard(keys: DispatchKeySet) -> Iterator[None]:
    """A block without the kernels of some dispatch keys: without autocast, of the devices whose key is excluded."""
    with contextlib.ExitStack() as stack:
        for key, device in ((DispatchKey.AutocastCPU, "cpu"), (DispatchKey.AutocastCUDA, "cuda")):
            if key in keys:
                stack.enter_context(autocast(device, enabled=False))
        yield


def _log_api_usage_once(event: str) -> None:
    """Nothing: no usage is logged."""


__all__ = [
    "_DisableTorchDispatch", "_disabled_torch_dispatch_impl", "_disabled_torch_function_impl",
    "_LinAlgError", "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator",
]  # fmt: skip
