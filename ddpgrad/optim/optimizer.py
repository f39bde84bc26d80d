"""Optimizer: parameter groups, per-parameter state, hooks, saving and loading."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias

from ..autograd.grad_mode import enable_grad
from ..core.dispatching import is_told, telling
from ..core.errors import CaptureError
from ..core.face import all_in
from ..core.taping import taped
from ..core.tensor import Tensor
from .hooks import HasHooks, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Closure = Callable[[], Any]
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class _Required:
    """The default of an option that the user must give, in the constructor or in every group."""

    def __repr__(self) -> str:
        return "<required parameter>"

    def __deepcopy__(self, memo: object) -> _Required:
        return self


required = _Required()

# Options that PyTorch, too, takes from the defaults where a file of an earlier version has none.
_NEWER = frozenset((
    "amsgrad", "capturable", "centered", "decoupled_weight_decay", "differentiable", "foreach", "fused", "maximize",
    "nesterov",
))  # fmt: skip


class Optimizer(HasHooks):
    """Base of all optimizers.

    params: Tensors, (name, Tensor) pairs, or dicts that describe groups ("params" and the
    options that differ from `defaults`). A subclass defines `step`.
    """

    _not_negative: ClassVar[tuple[str, ...]] = ()  # options, where there are such
    __subclasses__ = all_in(__package__ or "")
    _shown_as = ""  # what errors call the class; its own name by default

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        if all(value is not required for value in defaults.values()):
            self._check_all_options({"params": (), **defaults})
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got one Tensor"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._without_hooks()
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        raise NotImplementedError

    def _check_captured(self) -> None:
        """`CaptureError` where a step that is captured as a CUDA graph would repeat numbers of the host."""
        raise CaptureError(
            f"a step of {type(self).__name__} depends on what the host counts or reads, which each replay of a CUDA graph "
            "would repeat; Adam, AdamW, Adamax, NAdam, RAdam, Adadelta, ASGD, RMSprop and Rprop with capturable=True, and "
            "SGD, can be captured"
        )

    @taped
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
                if telling and is_told((grad,), {}):
                    grad.zero_()
                    continue
                grad._array[...] = 0
                grad._versions[0] += 1

    def _refuse_sparse(self, grad: Tensor) -> None:
        """`RuntimeError` for a sparse gradient, by an optimizer that has no rule for such."""
        if grad.is_sparse:
            name = self._shown_as or type(self).__name__
            hint = ", please consider SparseAdam instead" if name == "Adam" else ""
            raise RuntimeError(f"{name} does not support sparse gradients{hint}")

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
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        # As in PyTorch, the user's dict becomes the group.
        param_group["params"] = params = [item[1] for item in items] if names else items
        if names:
            param_group["param_names"] = names
        self._check_params(params)
        for option, default in self.defaults.items():
            if default is required and option not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {option}"
                )
            param_group.setdefault(option, default)
        self._check_all_options(param_group)
        named = "param_names" in param_group
        if self.param_groups and named is not ("param_names" in self.param_groups[0]):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if named else 'without'} names to the optimizer"
            )
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any]) -> None:
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(parameter).__name__}"
                )
            if not (parameter.is_leaf or parameter.retains_grad or self.defaults.get("differentiable")):
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

    def _check_all_options(self, group: Mapping[str, Any]) -> None:
        lr = group.get("lr")
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        self._check_options(group)

    def _check_options(self, group: Mapping[str, Any]) -> None:
        """`ValueError` for options that make no sense, such as a negative one. Subclasses add theirs."""
        for option in self._not_negative:
            if option in group and not group[option] >= 0:
                name = {"lr": "learning rate", "eps": "epsilon value"}.get(option, f"{option} value")
                raise ValueError(f"Invalid {name}: {group[option]}")

    # -- saving and loading ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """{"state": by number of the parameter, "param_groups": options and numbers}, in PyTorch's layout.

        State tensors share memory with the optimizer until it lays them out anew.
        """
        self._call_hooks("state_dict_pre")
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
        return self._call_hooks("state_dict_post", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state. State tensors are copied to their parameter's dtype and device."""
        state_dict = self._call_hooks("load_state_dict_pre", dict(state_dict))
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, but the optimizer has "
                f"{len(self.param_groups)}"
            )
        owners: dict[Any, tuple[Tensor, dict[str, Any]]] = {}
        groups = []
        for i, (old, new) in enumerate(zip(saved, self.param_groups, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"group {i} has {len(old['params'])} parameters, but the optimizer's has {len(new['params'])}"
                )
            self._check_class(old, i)
            group = {**copy.deepcopy(old), "params": new["params"]}
            if "param_names" in new:
                group.setdefault("param_names", new["param_names"])
            groups.append(group)
            owners.update({n: (p, group) for n, p in zip(old["params"], new["params"], strict=True)})
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owners:
                owner, group = owners[key]
                state[owner] = _each(
                    value, None, partial(self._loaded, owner, {**self.defaults, **group}, key)
                )
            else:
                state[key] = value
        self.__setstate__({"state": state, "param_groups": groups})
        self._call_hooks("load_state_dict_post")

    def _check_class(self, saved: dict[str, Any], number: int) -> None:
        """Refuse a group of another class, whose rates would be taken over, and whose state nothing would read."""
        own = self.defaults.keys()
        lacking = sorted(own - saved.keys() - _NEWER)
        foreign = sorted(saved.keys() - own - {"params", "param_names"})
        if lacking and foreign and type(self).__init__.__module__.startswith(__package__ or "ddpgrad.optim"):
            raise ValueError(
                f"loaded state dict is of another optimizer than {type(self).__name__}: its group {number} lacks "
                f"{', '.join(lacking)}, and has {', '.join(foreign)}"
            )

    def _loaded(self, owner: Tensor, group: dict[str, Any], number: Any, name: Any, value: Any) -> Any:
        """What loaded state of one name becomes for its parameter: tensors are copied, in its type and on its device."""
        if not isinstance(value, Tensor):
            return value
        if name == "step":
            return value.detach().clone()
        dtype = owner.dtype if owner.is_floating_point() else value.dtype
        part_of = getattr(owner, "part_of", None)
        if part_of is not None and value.ndim:  # the owner is a DTensor
            value = part_of(value)
        copied = value.detach().to(device=owner.device, dtype=dtype, copy=True)
        return copied if copied.is_sparse else copied.contiguous()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hooks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_hooks" not in self.__dict__:  # a copy has none
            self._without_hooks()
        for group in self.param_groups:  # options that are newer than what was loaded
            for option, default in self.defaults.items():
                if default is not required:
                    group.setdefault(option, default)

    def __repr__(self) -> str:
        parts = []
        for i, group in enumerate(self.param_groups):
            options = [f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"]
            parts.append(f"\nParameter Group {i}\n{''.join(options)}")
        return f"{type(self).__name__} ({''.join(parts)})"


def evaluated(closure: Closure | None) -> Any:
    """What the closure of a step returns; None without one."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _each(value: Any, name: Any, function: Callable[[Any, Any], Any]) -> Any:
    """`value` with `function(name, part)` for each part of it; in dicts a part has its key for a name."""
    if isinstance(value, dict):
        return {key: _each(part, key, function) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each(part, name, function) for part in value)
    return function(name, value)


__all__ = [
    "Closure", "Optimizer", "ParamsT", "evaluated", "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook", "required",
]  # fmt: skip
