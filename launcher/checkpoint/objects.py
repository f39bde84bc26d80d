"""The objects of a checkpoint: their names, the states that they give, and take again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ddpgrad import Tensor, nn
from ddpgrad.core.errors import CheckpointError, DistributedError
from ddpgrad.distributed import is_initialized
from ddpgrad.distributed.ranks import world
from ddpgrad.optim import Optimizer

from . import generators, shards
from .manifest import check_name
from .shards import Share, Source

GENERATORS = "generators"
"""The object that holds every rank's random generators."""


def check_names(names: Collection[str]) -> None:
    """Refuse names that cannot stand beside each other in a checkpoint."""
    for name in names:
        check_name(name)
    if len({name.casefold() for name in (*names, GENERATORS)}) < len(names) + 1:
        raise CheckpointError(
            f"the names {sorted(names)} collide with each other or with {GENERATORS!r} on a file "
            "system that ignores case"
        )


def small_states(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The states that every rank has for itself, without those of `_large_states`."""
    own = {name: objects[name].state_dict() for name in _own(objects) if not _is_large(objects[name])}
    return {**own, GENERATORS: generators.states()}


def _large_states(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The states of models and optimizers that every rank has for itself."""
    return {name: objects[name].state_dict() for name in _own(objects) if _is_large(objects[name])}


def own_shares(objects: Mapping[str, Any], rank: int, ranks: int, sharded: bool) -> list[Share]:
    """The shares of this rank; see `shards.shares`. CheckpointError for a model whose parameters are NaN."""
    for name, obj in objects.items():
        if isinstance(obj, nn.Module):
            _refuse_nan(name, obj)
    apart = {*_own(objects)}
    shared = {name: obj for name, obj in objects.items() if name not in apart}
    own = small_states(objects) if sharded or ranks == 1 else {}
    return shards.shares(shared, {**own, **_large_states(objects)}, rank, ranks, sharded)


def _refuse_nan(name: str, model: nn.Module) -> None:
    """What is NaN stays NaN, and would take the place of a checkpoint that is worth something."""
    for parameter, p in model.named_parameters():
        local: Tensor = getattr(p, "to_local", p.detach)()
        # The sum is one pass without memory of its own; it is NaN for infinities of both signs, too.
        if p.requires_grad and (total := local.sum().item()) != total and local.isnan().any():
            if is_initialized():
                world.current().last_checks.raise_error()  # which knows the rank and step where that began
            raise CheckpointError(
                f"{name!r} is not saved: its parameter '{parameter}' is NaN; earlier checkpoints stay as they are"
            )


def _own(objects: Mapping[str, Any]) -> list[str]:
    """The names of what every rank has for itself: a model, too, if the optimizer that trains it is among them."""
    own = [name for name, obj in objects.items() if getattr(obj, "state_is_per_rank", False)]
    groups = [group for name in own for group in getattr(objects[name], "param_groups", ())]
    trained = {id(p) for group in groups for p in group["params"]}
    if not trained:
        return own
    models = {name: obj for name, obj in objects.items() if isinstance(obj, nn.Module) and name not in own}
    return own + [name for name, m in models.items() if any(id(p) in trained for p in m.parameters())]


def _is_large(obj: Any) -> bool:
    return isinstance(obj, (nn.Module, Optimizer))


def restore_all(objects: Mapping[str, Any], states: Mapping[str, Any], source: Source) -> None:
    """Give each of `objects` its state, which is from `source`; CheckpointError if one does not fit."""
    for name, obj in objects.items():
        try:
            _restore(obj, states[name])
        except DistributedError:  # of an object whose ranks load together
            raise
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            files = ", ".join(source.objects[name][1])
            raise CheckpointError(
                f"{source.name} ({files}) does not fit {name!r}, a {type(obj).__name__}: {error}"
            ) from error


def _restore(obj: Any, state: Any) -> None:
    if hasattr(obj, "load_state_dict"):
        obj.load_state_dict(state)
    else:
        obj.clear()
        obj.update(state) if isinstance(obj, dict) else obj.extend(state)
