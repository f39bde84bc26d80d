"""Module: a part of a model, which owns parameters, buffers and further modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..autograd.graph import RemovableHandle
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..tensor import Tensor
from . import conversion, hooks, state
from .parameter import Parameter

T = TypeVar("T", bound="Module")


class Module:
    """Base of all models and layers.

    Assigning a Parameter or a Module to an attribute registers it. A subclass calls
    `super().__init__()` first, and defines `forward`; users call the module itself.
    Source: https://pytorch.org/docs/stable/generated/torch.nn.Module.html
    """

    training: bool
    _version: int = 1  # of the state_dict's layout; a subclass that changes its layout counts up
    _hooks: hooks.Hooks | None = None
    _state_hooks: state.StateHooks | None = None
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    def __init__(self) -> None:
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_modules"] = {}
        own["_non_persistent_buffers_set"] = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None:
            return self.forward(*args, **kwargs)
        return hooks.call(self, self._hooks, args, kwargs)

    # -- attributes ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Only called for what is no ordinary attribute."""
        own = self.__dict__
        for kind in ("_parameters", "_modules", "_buffers"):
            members = own.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._forget(name, "_parameters", "parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name, "_modules", "module")
            own["_modules"][name] = value
        elif name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(_wrong_kind(value, "parameter", name, "torch.nn.Parameter or None expected"))
            own["_parameters"][name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(_wrong_kind(value, "child module", name, "torch.nn.Module or None expected"))
            own["_modules"][name] = None
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(_wrong_kind(value, "buffer", name, "torch.Tensor or None expected"))
            own["_buffers"][name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, kind: str, what: str) -> None:
        """Make room for a member `name` of `kind`, which may have been something else before."""
        own = self.__dict__
        if kind not in own:
            raise AttributeError(
                f"cannot assign {what} before Module.__init__() call: call super().__init__() first in "
                f"{type(self).__name__}.__init__"
            )
        own.pop(name, None)
        for other in ("_parameters", "_buffers", "_modules"):
            if other != kind:
                own[other].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._buffers, self._modules):
            if name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        members = [*self._parameters, *self._buffers, *self._modules]
        return sorted({*object.__dir__(self), *members})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter that `self.<name>` gives; None reserves the name."""
        self._check_name(name, "parameter", self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(_wrong_kind(param, "parameter", name, "torch.nn.Parameter or None required"))
        if param is not None and param._grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}': it was computed by "
                f"{param._grad_fn.name()}. Express '{name}' as a function of another Tensor in forward()."
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is no parameter; it is in the state_dict if `persistent`."""
        self._check_name(name, "buffer", self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(_wrong_kind(tensor, "buffer", name, "torch.Tensor or None required"))
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child that `self.<name>` gives; None reserves the name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_name(name, "module", self._modules)
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name: str, kind: str, members: Mapping[str, Any]) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in members and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # -- walking the tree ----------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(name, module) of this module and all below; a shared one once, under its first name."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(memo, below, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below, each once."""
        seen: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules directly below, each once."""
        return (child for _, child in self.named_children())

    def _named_members(
        self,
        members: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in owners:
            for name, member in members(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter); a shared one once, under its first name."""
        return self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer); a shared one once, under its first name."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at the dotted path `target`; `AttributeError` names the part that is missing."""
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(
                    f"{type(module).__name__} has no attribute `{part}` (looking for '{target}')"
                )
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module (looking for '{target}')")
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`."""
        path, _, name = target.rpartition(".")
        parameter = self.get_submodule(path)._parameters.get(name)
        if parameter is None:
            raise AttributeError(f"`{target}` is not an nn.Parameter of {type(self).__name__}")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path `target`."""
        path, _, name = target.rpartition(".")
        buffer = self.get_submodule(path)._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"`{target}` is not a buffer of {type(self).__name__}")
        return buffer

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call `fn` on every module, children first."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

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
        conversion.zero_grads(self.parameters(), set_to_none)

    def _apply(self: T, fn: Callable[[Tensor], Tensor]) -> T:
        conversion.apply(self, fn)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move and convert parameters and buffers in place: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        Only floating-point members change their dtype. Parameters stay the same objects.
        """
        device, dtype = conversion.parse(*args, **kwargs)
        return self._apply(lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else None))

    def type(self: T, dst_type: Any) -> T:
        """All parameters and buffers in one dtype."""
        return self._apply(lambda t: t.to(dst_type))

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

    # -- state -----------------------------------------------------------------------------

    def state_dict(
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Name -> tensor of all parameters and persistent buffers.

        The tensors share memory with the module until an optimizer lays its parameters
        out anew (see `optim/flat.py`), so clone or save what must outlive the next step.
        """
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
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

    def get_extra_state(self) -> Any:
        """What a subclass wants in its state_dict besides tensors."""
        raise RuntimeError("get_extra_state() was called, but the module does not define it")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("set_extra_state() was called, but the module does not define it")

    def _own_state_hooks(self) -> state.StateHooks:
        if self._state_hooks is None:
            object.__setattr__(self, "_state_hooks", state.StateHooks())
        assert self._state_hooks is not None
        return self._state_hooks

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
        return hooks.add(self._own_state_hooks().load_pre, hook)

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
        return hooks.add(self._own_hooks().pre, (hook, with_kwargs), prepend)

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
        return hooks.add(self._own_hooks().post, (hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[[Module, Any], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's backward; a result replaces grad_output."""
        return hooks.add(self._own_hooks().backward_pre, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[[Module, Any, Any], Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after the module's backward; a result replaces grad_input."""
        return hooks.add(self._own_hooks().backward, hook, prepend)

    # -- printing --------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What a subclass wants to say about itself between the parentheses."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if len(lines) <= 1 and not children:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _wrong_kind(value: Any, what: str, name: str, expected: str) -> str:
    return f"cannot assign '{type(value).__name__}' object to {what} '{name}' ({expected})"
