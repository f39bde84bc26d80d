"""Module: a tree of parameters and buffers that computes, converts, saves and loads."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ...autograd.graph import RemovableHandle
from ...backend import device as devices
from ...backend import dtype as dtypes
from ...core.tensor import Tensor
from ...ops.creation.factories import empty_like
from . import conversion, hooks, registration, state
from .registration import KINDS
from .state import as_pytorch, from_pytorch
from .tree import Tree

T = TypeVar("T", bound="Module")

_of_all = hooks.of_all
# PyTorch's names, which libraries import.
_global_parameter_registration_hooks = registration.parameter_hooks
_IncompatibleKeys, _EXTRA_STATE_KEY_SUFFIX = state._IncompatibleKeys, state._EXTRA_STATE_KEY_SUFFIX

_HOOKS_OF_ALL = {
    "_global_forward_pre_hooks": "pre",
    "_global_forward_hooks": "post",
    "_global_forward_hooks_with_kwargs": "with_kwargs",
    "_global_forward_hooks_always_called": "always",
    "_global_backward_pre_hooks": "backward_pre",
    "_global_backward_hooks": "backward",
}


def __getattr__(name: str) -> Any:
    """The calling rank's hooks of all modules by PyTorch's names: {number: hook}."""
    if name in _HOOKS_OF_ALL:
        return getattr(hooks._global(), _HOOKS_OF_ALL[name])
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


register_module_forward_pre_hook = hooks.register_module_forward_pre_hook
register_module_forward_hook = hooks.register_module_forward_hook
register_module_full_backward_pre_hook = hooks.register_module_full_backward_pre_hook
register_module_full_backward_hook = hooks.register_module_full_backward_hook
register_module_backward_hook = hooks.register_module_backward_hook
register_module_parameter_registration_hook = registration.register_module_parameter_registration_hook
register_module_buffer_registration_hook = registration.register_module_buffer_registration_hook
register_module_module_registration_hook = registration.register_module_module_registration_hook


def _read_watched(self: Module, name: str) -> Any:
    """What `self.name` is for a class that has a `__getattr__` of its own: members come from that, as in PyTorch.

    They are ordinary attributes here, for which Python does not call it. Other classes pay nothing.
    """
    value = object.__getattribute__(self, name)
    own = object.__getattribute__(self, "__dict__")
    # What the class has, such as a property, comes first.
    if own.get(name, own) is value and any(name in own.get(kind, ()) for kind in KINDS):
        return type(self).__getattr__(self, name)
    return value


class Module(Tree, state.ExtraState):
    """Base of all models and layers.

    Assigning a Parameter or a Module to an attribute registers it. A subclass calls
    `super().__init__()` first, and defines `forward`; users call the module itself.
    Source: https://pytorch.org/docs/stable/generated/torch.nn.Module.html
    """

    training: bool
    _version: int = 1  # of the state_dict's layout; a subclass that changes its layout counts up
    # No annotations: fastai evaluates those of modules among names of its own.
    _hooks = cast("hooks.Hooks | None", None)
    _state_hooks = cast("state.StateHooks | None", None)
    _compiled_call_impl = cast("Any", None)  # what programs ask whether `compile` was called

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__getattr__ is not Tree.__getattr__ and cls.__getattribute__ is object.__getattribute__:
            cls.__getattribute__ = _read_watched

    dump_patches: bool = False  # of no effect, in PyTorch either
    call_super_init: bool = False
    """Whether `__init__` hands its arguments on to the next class, for modules that are something else as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            raise TypeError(
                f"{type(self).__name__}.__init__() got unexpected arguments: Module takes none unless call_super_init is True"
            )
        super().__init__()
        self.__dict__["training"] = True
        if self.call_super_init:
            super(Tree, self).__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __getstate__(self) -> dict[str, Any]:
        """What deep copies and pickles take: the attributes, and the members by kind, as PyTorch has them."""
        return as_pytorch(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What deep copies and pickles hand over. A subclass that has more to restore calls it."""
        self.__dict__.update(from_pytorch(self, state))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None and not _of_all.raised:
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)

    # Wrappers of modules call these, though PyTorch means them to be private.
    _call_impl = _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Check the arguments, which are those of `torch.compile`; the module runs as it is."""
        from ...compat.compile_options import check

        check(*args, **kwargs)
        self._compiled_call_impl = type(self).__call__

    # -- modes, dtype and device -----------------------------------------------------------

    def train(self: T, mode: bool = True) -> T:
        """Set `training`, here and below: dropout and batch statistics follow it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: T) -> T:
        """`train(False)`."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros in place."""
        conversion.zero_grads(list(self.parameters()), set_to_none)

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        conversion.apply(self, fn, recurse)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move and convert parameters and buffers in place: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        Only floating-point members change their dtype. Parameters stay the same objects.
        """
        device, dtype, non_blocking, memory_format = conversion.parse(*args, **kwargs)
        conversion.accepted(dtype)

        def moved(t: Tensor) -> Tensor:
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                )
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            placed = memory_format if t.ndim in (4, 5) else None
            return t.to(device=device, dtype=kind, non_blocking=non_blocking, memory_format=placed)

        return self._apply(moved)

    def type(self: T, dst_type: Any) -> T:
        """All parameters and buffers in one dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def _floating(self: T, dtype: dtypes.DType) -> T:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: T) -> T:
        """Floating-point members as float32."""
        return self._floating(dtypes.float32)

    def double(self: T) -> T:
        """Floating-point members as float64."""
        return self._floating(dtypes.float64)

    def half(self: T) -> T:
        """Floating-point members as float16."""
        return self._floating(dtypes.float16)

    def bfloat16(self: T) -> T:
        """Floating-point members as bfloat16."""
        return self._floating(dtypes.bfloat16)

    def cuda(self: T, device: Any = None) -> T:
        """Everything on a GPU: the current one by default."""
        target = devices.of("cuda" if device is None else device)
        return self._apply(lambda t: t.to(target))

    def cpu(self: T) -> T:
        """Everything in host memory."""
        return self._apply(lambda t: t.to("cpu"))

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Everything on `device`, with values left to be filled in."""
        target = devices.of(device)
        return self._apply(lambda t: empty_like(t, device=target), recurse)

    def share_memory(self: T) -> T:
        """Everything in memory that processes forked from this one share."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    # -- state -----------------------------------------------------------------------------

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Name -> tensor of all parameters and persistent buffers.

        The tensors share memory with the module, so clone or save what must outlive the next step.
        """
        if args:  # PyTorch's former order: destination, prefix, keep_vars
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            given: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
            destination, prefix, keep_vars = given
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state._IncompatibleKeys:
        """Copy values by name. With `assign`, take the given tensors themselves.

        Returns (missing_keys, unexpected_keys); with `strict`, a `RuntimeError` lists them.
        A tensor of another shape is an error in any case.
        """
        return state.load(self, state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        state.collect_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        state.load_own(
            self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _own_state_hooks(self) -> state.StateHooks:
        if self._state_hooks is None:
            object.__setattr__(self, "_state_hooks", state.StateHooks())
        assert self._state_hooks is not None
        return self._state_hooks

    @property
    def _state_dict_hooks(self) -> OrderedDict[int, Callable[..., Any]]:
        """The hooks that are called after the module's state was collected, for what does that itself."""
        own = self._state_hooks
        return (
            OrderedDict() if own is None else OrderedDict({k: hook for k, (hook, _) in own.save_post.items()})
        )

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module's state is collected."""
        return hooks.add(self._own_state_hooks().save_pre, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after; it may change the state_dict in place."""
        return hooks.add(self._own_state_hooks().save_post, (hook, False))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`, for hooks that may return another state_dict."""
        return hooks.add(self._own_state_hooks().save_post, (hook, True))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)` first."""
        return hooks.add(self._own_state_hooks().load_pre, (hook, True))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        """As `register_load_state_dict_pre_hook`, but the hook is given the module only on request."""
        return hooks.add(self._own_state_hooks().load_pre, (hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after; it may empty the lists to accept what is in them."""
        return hooks.add(self._own_state_hooks().load_post, hook)

    # -- hooks -----------------------------------------------------------------------------

    def _own_hooks(self) -> hooks.Hooks:
        if self._hooks is None:
            object.__setattr__(self, "_hooks", hooks.Hooks())
        assert self._hooks is not None
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` (and kwargs) before forward; a result replaces the arguments."""
        return hooks.add_pre(self._own_hooks(), hook, prepend, with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` (kwargs before output) after forward; a result replaces the output.

        always_call: also when forward raised.
        """
        return hooks.add_post(self._own_hooks(), hook, with_kwargs, always_call, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[[Module, Any], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's backward; a result replaces grad_output."""
        return hooks.add(self._own_hooks().backward_pre, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[[Module, Any, Any], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after the module's backward; a result replaces grad_input."""
        return hooks.add_backward(self._own_hooks(), hook, full=True, prepend=prepend)

    def register_backward_hook(self, hook: Callable[[Module, Any, Any], Any]) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after the node that made the output, and no other of the module.

        PyTorch's former form of `register_full_backward_hook`.
        """
        return hooks.add_backward(self._own_hooks(), hook, full=False)

    _forward_pre_hooks = hooks.table("pre")
    _forward_hooks = hooks.table("post")
    _forward_hooks_with_kwargs = _forward_pre_hooks_with_kwargs = hooks.table("with_kwargs")
    _forward_hooks_always_called = hooks.table("always")
    _backward_pre_hooks = hooks.table("backward_pre")
    _backward_hooks = hooks.table("backward")
