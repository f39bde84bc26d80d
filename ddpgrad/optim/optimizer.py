"""Optimizer: parameter groups, per-parameter state, hooks, saving and loading."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from .._tensor import Tensor
from ..autograd.grad_mode import enable_grad
from ..autograd.graph import RemovableHandle
from .flat import STEP, FlatMemory, Run, new_step

Closure = Callable[[], Any]
Params = Iterable[Any]


class _Required:
    """The default of an option that the user must give, in the constructor or in every group."""

    def __repr__(self) -> str:
        return "<required parameter>"

    def __deepcopy__(self, memo: object) -> _Required:
        return self


required = _Required()


class Optimizer:
    """Base of all optimizers.

    params: Tensors, (name, Tensor) pairs, or dicts that describe groups ("params" and the
    options that differ from `defaults`). A subclass defines `step`.
    """

    _opt_called = False  # read by lr schedulers, which should follow the first step

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got one Tensor"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._flat = FlatMemory()
        self._hooks: dict[str, OrderedDict[int, Any]] = {name: OrderedDict() for name in _HOOK_NAMES}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros in place."""
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter._grad
                if grad is None:
                    continue
                if set_to_none:
                    parameter._grad = None
                    continue
                if grad._grad_fn is not None or grad._requires_grad:
                    parameter._grad = grad = grad.detach()
                grad._array[...] = 0
                grad._versions[0] += 1

    # -- groups ----------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; `defaults` fill in what the group does not say."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        given = param_group["params"]
        if isinstance(given, (set, frozenset)):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in "
                "sets will change between runs. Please use a list instead."
            )
        items = [given] if isinstance(given, Tensor) else list(given)
        names = [item[0] for item in items if isinstance(item, tuple)]
        if names and len(names) != len(items):
            raise ValueError("either all or none of the parameters of a group must be (name, Tensor) pairs")
        params = [item[1] for item in items] if names else items
        group = {**param_group, "params": params}
        if names:
            group["param_names"] = names
        self._check_params(params)
        for option, default in self.defaults.items():
            if default is required and option not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {option}"
                )
            group.setdefault(option, default)
        self._check_options(group)
        if self.param_groups and ("param_names" in group) is not ("param_names" in self.param_groups[0]):
            raise ValueError("all parameter groups must be named, or none: this one differs from the first")
        self.param_groups.append(group)

    def _check_params(self, params: list[Any]) -> None:
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(parameter).__name__}"
                )
            if not parameter.is_leaf and not parameter.retains_grad:
                raise ValueError("can't optimize a non-leaf Tensor")
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an "
                "error; see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=4,
            )
        known = {p for group in self.param_groups for p in group["params"]}
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")

    def _check_options(self, group: dict[str, Any]) -> None:
        """`ValueError` for options that make no sense. Subclasses add theirs."""

    # -- flat updates ------------------------------------------------------------------------

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The kinds of state that a parameter of `group` has in this optimizer's kernel."""
        return ()

    def _new_state(self, parameter: Tensor, name: str) -> Tensor:
        """State of one kind for a parameter that has none."""
        raise NotImplementedError

    def _runs(self, group: dict[str, Any]) -> list[Run]:
        """The parameters of `group` that have a gradient, ready for a kernel (see `flat.py`)."""
        return self._flat.runs(group, self.state, self._state_names(group), self._new_state)

    # -- saving and loading ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """{"state": by number of the parameter, "param_groups": options and numbers}, in PyTorch's layout.

        State tensors share memory with the optimizer until it lays them out anew.
        """
        for hook in list(self._hooks["state_dict_pre"].values()):
            hook(self)
        numbers: dict[Tensor, int] = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(parameter, len(numbers))
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers[p] for p in group["params"]]
            groups.append(packed)
        # `numbers` first: in the order of the parameters, whatever the order of their first updates.
        state: dict[Any, Any] = {n: self.state[p] for p, n in numbers.items() if p in self.state}
        state.update({key: value for key, value in self.state.items() if key not in numbers})
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._hooks["state_dict_post"].values()):
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state. State tensors are copied to their parameter's dtype and device."""
        state_dict = dict(state_dict)
        for hook in list(self._hooks["load_state_dict_pre"].values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, but the optimizer has "
                f"{len(self.param_groups)}"
            )
        owners: dict[Any, Tensor] = {}
        for i, (old, new) in enumerate(zip(saved, self.param_groups, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"group {i} has {len(old['params'])} parameters, but the optimizer's has {len(new['params'])}"
                )
            owners.update(zip(old["params"], new["params"], strict=True))
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        kinds = {
            name for group in self.param_groups for name in self._state_names({**self.defaults, **group})
        }
        for key, value in state_dict["state"].items():
            owner = owners.get(key)
            state[key if owner is None else owner] = (
                value if owner is None else _taken(value, owner, key, kinds)
            )
        groups = []
        for old, new in zip(saved, self.param_groups, strict=True):
            group = {**old, "params": new["params"]}
            if "param_names" in new:
                group["param_names"] = new["param_names"]
            groups.append(group)
        self.__setstate__({"state": state, "param_groups": groups})
        self._flat.forget()
        for hook in list(self._hooks["load_state_dict_post"].values()):
            hook(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for group in self.param_groups:  # options that are newer than what was loaded
            for option, default in self.defaults.items():
                if default is not required:
                    group.setdefault(option, default)

    # -- hooks -------------------------------------------------------------------------------

    def _register(self, kind: str, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        hooks = self._hooks[kind]
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; (args, kwargs) that it returns replace them."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before the state is collected."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after; a result replaces the state_dict."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; a result replaces the state_dict."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return self._register("load_state_dict_post", hook, prepend)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


_HOOK_NAMES = (
    "step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post",
)  # fmt: skip


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks around it, once also where a subclass calls its parent's."""

    @functools.wraps(step)
    def stepped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if type(self).step is not stepped:
            return step(self, *args, **kwargs)
        self._opt_called = True
        for hook in list(self._hooks["step_pre"].values()):
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{type(self).__name__}.step: a pre-hook must return None or a tuple of (new_args, "
                        f"new_kwargs), but got {changed!r}"
                    )
                args, kwargs = changed
        result = step(self, *args, **kwargs)
        for hook in list(self._hooks["step_post"].values()):
            hook(self, args, kwargs)
        return result

    return stepped


def evaluated(closure: Closure | None) -> Any:
    """What the closure of a step returns; None without one."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _taken(value: Any, owner: Tensor, number: Any, kinds: set[str], name: str | None = None) -> Any:
    """A copy of loaded state as it belongs to `owner`."""
    if isinstance(value, dict):
        return {k: _taken(v, owner, number, kinds, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_taken(v, owner, number, kinds, name) for v in value)
    if name == STEP and STEP in kinds:
        step = new_step()
        step._array[...] = float(value)
        return step
    if not isinstance(value, Tensor):
        return value
    if name == STEP:
        return value.detach().clone()
    if name in kinds and value.shape != owner.shape:
        raise ValueError(
            f"loaded state dict: {name} of parameter {number} has shape {list(value.shape)}, but the parameter has "
            f"{list(owner.shape)}"
        )
    kept = value.detach()
    if owner.is_floating_point():
        return kept.to(device=owner.device, dtype=owner.dtype, copy=True).contiguous()
    return kept.to(device=owner.device, copy=True)
