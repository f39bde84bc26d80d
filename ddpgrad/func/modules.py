"""Modules as functions of their parameters: `functional_call`, and the states of several modules stacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ..core.tensor import Tensor
from ..nn.modules.batchnorm import _BatchNorm as BatchNorm
from ..nn.modules.module import Module
from ..ops.shape.stacking import stack


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other parameters and buffers, by name; the module keeps its own.

    args: a tuple, or the only argument. tie_weights: what shares a tensor with a replaced one is
    replaced too. strict: `RuntimeError` unless the names are exactly those of the module; otherwise
    names that it does not have are left out. `ValueError` for a name in two dictionaries.
    """
    given = _merged(parameter_and_buffer_dicts)
    members = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    unexpected = [name for name in given if name not in members] if strict else []
    missing = [name for name in members if name not in given] if strict else []
    if unexpected or missing:
        lines = [f"Unexpected key(s): {', '.join(map(repr, unexpected))}."] if unexpected else []
        lines += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
        raise RuntimeError(
            f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(lines)
        )
    given = {name: tensor for name, tensor in given.items() if name in members}
    if tie_weights:
        given = _tied(given, members)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with ExitStack() as stack_of_exits:
        for name, tensor in given.items():
            owner, _, last = name.rpartition(".")
            attributes = module.get_submodule(owner).__dict__
            # Past the module's own __setattr__: the replacement is not registered.
            stack_of_exits.callback(attributes.__setitem__, last, attributes[last])
            attributes[last] = tensor
        return module(*arguments, **(kwargs or {}))


def _merged(dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if isinstance(dicts, Mapping):
        return dict(dicts)
    counts = Counter(name for part in dicts for name in part)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: tensor for part in dicts for name, tensor in part.items()}


def _tied(given: dict[str, Tensor], members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`given`, also under the other names of the tensors that it replaces."""
    replaced: dict[int, Tensor] = {}
    for name, tensor in given.items():
        first = replaced.setdefault(id(members[name]), tensor)
        if first is not tensor:
            raise ValueError(f"functional_call got several values for tied parameters, one of them '{name}'")
    return {name: replaced[id(own)] for name, own in members.items() if id(own) in replaced}


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let every batch norm in `root` use the statistics of the batch at hand, and keep none; in place.

    Running statistics are written to in forward, which a function of examples may not do.
    """
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of modules of one kind, by name, each stacked along a new first dimension.

    The results are leaves of their own: changes do not reach the modules.
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    return (
        _stacked([dict(model.named_parameters()) for model in models]),
        _stacked([dict(model.named_buffers()) for model in models]),
    )


def _stacked(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    found = {}
    for name, first in states[0].items():
        flags = {state[name].requires_grad for state in states}
        if len(flags) > 1:
            raise RuntimeError(f"Expected '{name}' of all models to have the same requires_grad")
        found[name] = stack([state[name].detach() for state in states]).requires_grad_(first.requires_grad)
    return found
