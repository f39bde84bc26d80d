"""Saving and loading the state_dict of a module; the form of a whole module in pickles, which is PyTorch's."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...ops.indexing.setitem import copy_
from ..parameter import Parameter, is_lazy
from .registration import KINDS, Members

if TYPE_CHECKING:
    from .module import Module

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found on one side only."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    __str__ = __repr__


_HOOKS_IN_PYTORCH = (
    "_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_REQUIRED_HOOKS = ("_backward_hooks", "_forward_hooks")  # what PyTorch expects of every file


def as_pytorch(own: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes `own` of a module with its members in dicts of each kind, as PyTorch's modules have them."""
    state = dict(own)
    kept = {kind: dict(state.pop(kind, ())) for kind in KINDS}
    for name, member in (pair for members in kept.values() for pair in members.items()):
        if state.get(name) is member:
            state.pop(name, None)
    return {**state, **{name: OrderedDict() for name in _REQUIRED_HOOKS}, **kept}


def from_pytorch(module: Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of `module` from those that `as_pytorch`, or PyTorch, gave.

    RuntimeError for hooks, which PyTorch keeps otherwise. What is a property here is left out.
    """
    kind = type(module)
    own = {name: value for name, value in state.items() if not hasattr(getattr(kind, name, None), "__set__")}
    for name in _HOOKS_IN_PYTORCH:
        if state.get(name):
            raise RuntimeError(
                f"{kind.__name__}: a module of PyTorch's with {name} is not read; remove its hooks first"
            )
        own.pop(name, None)
    own.pop("_is_full_backward_hook", None)
    for name in KINDS:
        if name in state:
            own |= {**state[name], name: Members(module, state[name])}
            own.setdefault("_non_persistent_buffers_set", set())  # which old files of PyTorch's have not
    return own


class StateHooks:
    """The hooks of one module around saving and loading, in order of call."""

    __slots__ = ("load_post", "load_pre", "save_post", "save_pre")

    def __init__(self) -> None:
        self.save_pre: OrderedDict[int, Any] = OrderedDict()
        self.save_post: OrderedDict[int, Any] = OrderedDict()  # (hook, whether its result counts)
        self.load_pre: OrderedDict[int, Any] = OrderedDict()  # (hook, whether it takes the module)
        self.load_post: OrderedDict[int, Any] = OrderedDict()


def collect(module: Module, destination: Any, prefix: str, keep_vars: bool) -> OrderedDict[str, Any]:
    """Add the state of `module` and all below to `destination`, with its `_metadata` of versions."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = metadata
    own_hooks = module._state_hooks
    if own_hooks is not None:
        for hook in list(own_hooks.save_pre.values()):
            hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    if own_hooks is not None:
        for hook, replaces in list(own_hooks.save_post.values()):
            result = hook(module, destination, prefix, metadata)
            if result is None:
                continue
            if not replaces:
                raise RuntimeError("state_dict post-hook must return None; change the state_dict in place")
            destination = result
    return destination


def collect_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """The part of `collect` for the module itself."""
    for name, tensor in _persistent(module).items():
        if tensor is not None:
            destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
    if _has_extra(module, "get_extra_state"):
        destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = module.get_extra_state()


def _persistent(module: Module) -> dict[str, Any]:
    hidden = module._non_persistent_buffers_set
    return {**module._parameters, **{k: b for k, b in module._buffers.items() if k not in hidden}}


class ExtraState:
    """What a module may define to keep more in its state_dict than tensors."""

    def get_extra_state(self) -> Any:
        """What a subclass wants in its state_dict besides tensors."""
        raise RuntimeError("get_extra_state() was called, but the module does not define it")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError("set_extra_state() was called, but the module does not define it")


def _has_extra(module: Module, method: str) -> bool:
    return getattr(type(module), method) is not getattr(ExtraState, method)


def _descend(
    module: Module,
    values: dict[str, Any],
    prefix: str,
    versions: Mapping[str, Any],
    assign: bool,
    found: tuple[list[str], list[str], list[str]],
) -> None:
    """`load` for `module` and all below. found: keys that are missing, and unexpected ones, and errors."""
    metadata = dict(versions.get(prefix[:-1], {}))
    if assign:
        metadata["assign_to_params_buffers"] = True
    arguments = (values, prefix, metadata, True, *found)
    own_hooks = module._state_hooks
    if own_hooks is not None:
        for hook, with_module in list(own_hooks.load_pre.values()):
            hook(*((module,) if with_module else ()), *arguments)
    module._load_from_state_dict(*arguments)
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            own = {k: v for k, v in values.items() if k.startswith(below)}
            _descend(child, own, below, versions, assign, found)
    if own_hooks is not None:
        for hook in list(own_hooks.load_post.values()):
            if hook(module, _IncompatibleKeys(*found[:2])) is not None:
                raise AssertionError(
                    "Hooks registered with `register_load_state_dict_post_hook` are not expected to return new "
                    "values: change the lists of incompatible_keys in place"
                )


def load(module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> _IncompatibleKeys:
    """Copy `state_dict` into the tree below `module`; one error lists all that is wrong."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    versions = getattr(state_dict, "_metadata", None) or {}
    values = OrderedDict(state_dict)
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []

    with no_grad():
        _descend(module, values, "", versions, assign, (missing, unexpected, errors))
    problems = list(errors)
    if strict:
        if unexpected:
            problems.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if missing:
            problems.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if problems:
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(problems)
        )
    return _IncompatibleKeys(missing, unexpected)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def load_own(
    module: Module,
    state_dict: dict[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """The part of `load` for the module itself. strict: keys that are missing, or too many, are named."""
    members = _persistent(module)
    for name, target in members.items():
        key = prefix + name
        if target is None:
            continue
        if key not in state_dict:
            missing += [key] * strict
            continue
        value = state_dict[key]
        if is_lazy(target) and isinstance(value, Tensor):
            if is_lazy(value):
                continue
            target.materialize(tuple(value.shape))
        if target.ndim == 0 and isinstance(value, Tensor) and tuple(value.shape) == (1,):
            value = value[0]  # as PyTorch before 0.4 saved what has no dimensions
        problem = _misfit(key, target, value)
        if problem:
            errors.append(problem)
        elif metadata.get("assign_to_params_buffers"):
            if isinstance(target, Parameter):
                if isinstance(value, Parameter):
                    value.requires_grad_(target.requires_grad)
                else:
                    value = Parameter(value.detach(), target.requires_grad)
            setattr(module, name, value)
        else:
            if target.is_meta and not value.is_meta:
                warnings.warn(
                    f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                    "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
                    "to their corresponding key in the module instead of copying them in place?)",
                    stacklevel=4,
                )
            try:
                copy_(target, value)
            except NotImplementedError as error:  # of a value on meta
                errors.append(
                    f'While copying the parameter named "{key}", whose dimensions in the model are {target.shape} and '
                    f"whose dimensions in the checkpoint are {value.shape}, an exception occurred : {error.args}."
                )
    if _has_extra(module, "set_extra_state"):
        if prefix + _EXTRA_STATE_KEY_SUFFIX in state_dict:
            module.set_extra_state(state_dict[prefix + _EXTRA_STATE_KEY_SUFFIX])
        else:
            missing += [prefix + _EXTRA_STATE_KEY_SUFFIX] * strict
    for key in state_dict if strict else ():
        if key.startswith(prefix) and not _belongs(module, key[len(prefix) :], members):
            unexpected.append(key)


def _misfit(key: str, target: Tensor, value: Any) -> str | None:
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
            f"checkpoint but received {type(value)}"
        )
    if value.shape != target.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
            f"current model is {target.shape}."
        )
    return None


def _belongs(module: Module, name: str, members: dict[str, Any]) -> bool:
    """Whether the module, or the child that the first part of `name` names, answers for this key."""
    first, dot, _ = name.partition(".")
    if dot:
        return first in module._modules
    if name == _EXTRA_STATE_KEY_SUFFIX:
        return _has_extra(module, "set_extra_state")
    return (
        members.get(name) is not None
    )  # a name that is reserved alone, as of a bias that is left out, answers for none
