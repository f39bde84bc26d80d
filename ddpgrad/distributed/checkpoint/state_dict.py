"""State dicts of models and optimizers whose keys are the names of parameters, however the model is wrapped or divided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...ops.creation.factories import zeros_like
from ...optim.optimizer import Optimizer
from ...utils._pytree import tree_map_only
from ..messages import broadcast_object_list
from ..process_group import get_rank, is_initialized
from ..tensor import DTensor

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """How a state dict is made and taken over.

    full_state_dict       tensors that are divided among the ranks are gathered, by all ranks together
    cpu_offload           tensors are copied to the CPU; with full_state_dict only rank 0 gets them, the others empty dicts
    ignore_frozen_params  parameters that take no gradients are left out, and stay as they are
    keep_submodule_prefixes  False: of `submodules` keys do not begin with their names
    strict                keys that are missing, or not the model's, are errors, and so are parameters without the state of others
    broadcast_from_rank0  rank 0 has the state dict, which must be full, and gives it to the others
    flatten_optimizer_state_dict  one level of keys: 'state.NAME.exp_avg', 'param_groups.NAME.lr'
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")


def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dicts of `model` and `optimizers`: see `get_model_state_dict` and `get_optimizer_state_dict`."""
    optimizers = _listed(optimizers)
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)
        if optimizers
        else {},
    )


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Give `model` and `optimizers` what `get_state_dict` returned, with any wrapping and number of ranks."""
    result = set_model_state_dict(model, model_state_dict, options=options)
    optimizers = _listed(optimizers)
    if optimizers:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state dict of `model`, without names that wrapping for training adds; tensors share memory with the model.

    submodules: those of whose parameters alone it is.
    """
    options = options or StateDictOptions()
    state = {_plain(name): value for name, value in model.state_dict().items()}
    if options.ignore_frozen_params:
        frozen = _frozen(model)
        state = {name: value for name, value in state.items() if name not in frozen}
    if submodules:
        prefixes = [f"{prefix}." for prefix, part in _modules(model, "") if part in submodules]
        kept = {name: begin for name in state for begin in prefixes if name.startswith(begin)}
        whole = options.keep_submodule_prefixes
        state = {name if whole else name.removeprefix(begin): state[name] for name, begin in kept.items()}
    return _delivered(state, options)


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Load `model_state_dict`, with divided or whole tensors, into `model`; returns missing and unexpected keys."""
    options = options or StateDictOptions()
    state = _received(model_state_dict, options)
    if options.ignore_frozen_params:
        frozen, own = _frozen(model), model.state_dict().items()
        state = {**{_plain(name): value for name, value in own if _plain(name) in frozen}, **state}
    called = {_plain(name): name for name in model.state_dict()}
    return model.load_state_dict(
        {called.get(name, name): value for name, value in state.items()}, strict=options.strict
    )


@no_grad()
def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """{"state": by name of the parameter, "param_groups": options, with names of parameters} of all `optimizers` together.

    An optimizer that has no state yet takes a step of length zero, which is not counted, so that there are tensors to load
    into; not while there are gradients.
    """
    options = options or StateDictOptions()
    names = _names(model)
    frozen = _frozen(model) if options.ignore_frozen_params else set()
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        _init_optim_state(optimizer)
        numbered = optimizer.state_dict()
        for group, live in zip(numbered["param_groups"], optimizer.param_groups, strict=True):
            called = [_name_of(p, names) for p in live["params"]]
            of = {
                name: numbered["state"][n]
                for n, name in zip(group["params"], called, strict=True)
                if n in numbered["state"] and name not in frozen
            }
            state.update(of)
            groups.append({**group, "params": called})
    made: dict[str, Any] = {"state": state, "param_groups": groups}
    return _delivered(_flattened(made) if options.flatten_optimizer_state_dict else made, options)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Give each of `optimizers` its part of what `get_optimizer_state_dict` returned, nested or flat."""
    options = options or StateDictOptions()
    state = _received(optim_state_dict, options)
    frozen = _frozen(model) if options.ignore_frozen_params else set()
    for optimizer in _listed(optimizers):
        numbered = numbered_state_dict(model, optimizer, state, frozen, options.strict)
        optimizer.load_state_dict(numbered)


def numbered_state_dict(
    model: Module,
    optimizer: Optimizer,
    state: Mapping[str, Any],
    frozen: Collection[str] = (),
    strict: bool = False,
) -> dict[str, Any]:
    """What `optimizer.load_state_dict` takes, of a state by names; frozen: names of which nothing is taken over.

    strict: RuntimeError where it has no state for a parameter that is trained, and for others has.
    """
    names = _names(model)
    called = [[_name_of(p, names) for p in group["params"]] for group in optimizer.param_groups]
    part = state if "state" in state else _nested(state, called)
    found = {name: group for group in part["param_groups"] for name in group["params"]}
    held = optimizer.state_dict()
    wanted = {name for group in called for name in group}.difference(frozen)
    if missing := sorted(wanted - found.keys()):
        raise KeyError(
            f"the optimizer's state dict has no parameter {missing[0]!r} in its param_groups, which "
            f"{type(optimizer).__name__} updates; it has {', '.join(sorted(found)) or 'none'}"
        )
    numbered: dict[str, Any] = {"state": {}, "param_groups": []}
    for group, members in zip(held["param_groups"], called, strict=True):
        saved = next((found[name] for name in members if name in found), {})
        numbered["param_groups"].append({**group, **saved, "params": group["params"]})
        for number, name in zip(group["params"], members, strict=True):
            if name in part["state"]:
                numbered["state"][number] = part["state"][name]
            elif name in frozen and number in held["state"]:
                numbered["state"][number] = held["state"][number]
            elif strict and part["state"] and name not in frozen and _trained(model, name):
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients but has "
                    "no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
    return numbered


def _listed(optimizers: Optimizers) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _modules(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
    """`module` and all below it by name; what wraps a module for training in parallel, or as `torch.compile`, adds none."""
    while getattr(module, "adds_no_name", False) or "_orig_mod" in vars(module):
        module = module._orig_mod if "_orig_mod" in vars(module) else module.module
    yield prefix, module
    for name, part in module.named_children():
        yield from _modules(part, f"{prefix}.{name}" if prefix else name)


def _parameters(model: Module) -> Iterator[tuple[str, Parameter]]:
    for prefix, part in _modules(model, ""):
        for name, parameter in part.named_parameters(recurse=False):
            yield (f"{prefix}.{name}" if prefix else name), parameter


def _plain(name: str) -> str:
    """The name without that of a module that `torch.compile` has wrapped."""
    return name.replace("_orig_mod.", "")


def _trained(model: Module, name: str) -> bool:
    return any(parameter.requires_grad for one, parameter in _parameters(model) if one == name)


def _names(model: Module) -> dict[Tensor, str]:
    """The name of each parameter; of one that has several, the first."""
    found: dict[Tensor, str] = {}
    for name, parameter in _parameters(model):
        found.setdefault(parameter, name)
    return found


def parameter_names(model: Module, parameters: Iterable[Tensor]) -> list[str]:
    """What `model` calls `parameters`. ValueError if one is none of its."""
    names = _names(model)
    return [_name_of(p, names) for p in parameters]


def _name_of(parameter: Tensor, names: Mapping[Tensor, str]) -> str:
    if parameter not in names:
        raise ValueError(
            f"the optimizer updates a parameter of shape {list(parameter.shape)} that is none of the model's: pass the model "
            "and the optimizer that belong together, and make the optimizer after fully_shard"
        )
    return names[parameter]


def _frozen(model: Module) -> set[str]:
    return {name for name, parameter in _parameters(model) if not parameter.requires_grad}


def _init_optim_state(optimizer: Optimizer) -> None:
    """Let an optimizer without state make it, by a step that changes no parameter."""
    if optimizer.state:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if any(p.grad is not None for p in parameters):
        return  # between backward and the first step, whose gradients a step for nothing would take away
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
    for p in parameters:
        p.grad = p.detach().clone().zero_() if isinstance(p, DTensor) else zeros_like(p)
    optimizer.step()
    for values in optimizer.state.values():
        if "step" in values:
            values["step"] = values["step"] * 0
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def _delivered(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """`state` with tensors as `options` want them."""
    first = not is_initialized() or get_rank() == 0
    here = first or not options.full_state_dict

    def made(value: Tensor) -> Tensor | None:
        if options.full_state_dict and isinstance(value, DTensor):
            value = value.whole()
        if not options.cpu_offload:
            return value
        return value.cpu() if here else None  # at once, so that a GPU has room for one whole tensor at a time

    if not (options.full_state_dict or options.cpu_offload):
        return state
    state = tree_map_only(Tensor, made, state)
    return state if here or not options.cpu_offload else {}


def _received(state: Mapping[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """`state`, on all ranks that of rank 0 where `options` say so."""
    given: list[Any] = [dict(state)]
    if options.broadcast_from_rank0 and is_initialized():
        broadcast_object_list(given, src=0)
    return given[0]


def _flattened(nested: Mapping[str, Any]) -> dict[str, Any]:
    out = {f"state.{name}.{key}": v for name, values in nested["state"].items() for key, v in values.items()}
    for group in nested["param_groups"]:
        for name in group["params"]:
            out.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
    return out


def _nested(flat: Mapping[str, Any], groups: list[list[str]]) -> dict[str, Any]:
    """The inverse of `_flattened`, in the groups of an optimizer."""

    def below(prefix: str) -> dict[str, Any]:
        # The names of values have no dots; those of parameters may begin alike.
        rest = {key.removeprefix(prefix): value for key, value in flat.items() if key.startswith(prefix)}
        return {key: value for key, value in rest.items() if "." not in key}

    state = {name: found for group in groups for name in group if (found := below(f"state.{name}."))}
    made = []
    for group in groups:
        there = [name for name in group if below(f"param_groups.{name}.")]
        made.append({**(below(f"param_groups.{there[0]}.") if there else {}), "params": there})
    return {"state": state, "param_groups": made}
