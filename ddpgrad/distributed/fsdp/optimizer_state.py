"""State dicts of optimizers under `FullyShardedDataParallel`: by names of parameters or by their numbers, whole or by rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.tensor import Tensor
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer
from ...utils._pytree import tree_map_only
from ..checkpoint.state_dict import get_optimizer_state_dict, numbered_state_dict, parameter_names
from ..messages import broadcast_object_list
from ..process_group import ProcessGroup, get_rank
from ..tensor import DTensor
from .api import OptimStateKeyType, StateDictSettings, StateDictType

OptimInput = Iterable[Tensor] | Iterable[dict[str, Any]]
_State = dict[str, Any]


class OptimizerStates:
    """What `FullyShardedDataParallel` has for the state of optimizers."""

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """How tensors are given."""
        raise NotImplementedError

    @classmethod
    def optim_state_dict(
        cls,
        model: Module,
        optim: Optimizer,
        optim_state_dict: Mapping[str, Any] | None = None,
        group: ProcessGroup | None = None,
    ) -> _State:
        """The optimizer's state by names of parameters, as `set_state_dict_type` said. Collective.

        optim_state_dict: what `optim.state_dict()` returned, perhaps changed since; by default its present state.
        """
        settings = cls.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        alone = getattr(config, "rank0_only", False)
        return _named(model, optim, optim_state_dict, whole, config.offload_to_cpu, alone)

    @staticmethod
    def full_optim_state_dict(
        model: Module,
        optim: Optimizer,
        optim_input: OptimInput | None = None,
        rank0_only: bool = True,
        group: ProcessGroup | None = None,
    ) -> _State:
        """The optimizer's state by names, with whole tensors in host memory; rank0_only: the other ranks get {}. Collective."""
        return _named(model, optim, None, True, True, rank0_only)

    @staticmethod
    def sharded_optim_state_dict(
        model: Module, optim: Optimizer, group: ProcessGroup | None = None
    ) -> _State:
        """The optimizer's state by names, with DTensors."""
        return _named(model, optim, None, False, False, False)

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Optimizer,
        optim_state_dict: Mapping[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: ProcessGroup | None = None,
    ) -> _State:
        """What `optim.load_state_dict` takes, of what `optim_state_dict` gave on any number of ranks."""
        state = numbered_state_dict(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(state)
        return state

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: Mapping[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: OptimInput | None = None,
        optim: Optimizer | None = None,
    ) -> _State:
        """The same state with names of parameters as keys, or with their numbers in `optim`.

        optim_input: what the optimizer was made of, in place of it; by default the parameters of `model`.
        """
        groups: list[Any] = list(
            optim.param_groups if optim is not None else optim_input or model.parameters()
        )
        groups = groups if groups and isinstance(groups[0], dict) else [{"params": groups}]
        named = parameter_names(model, [p for group in groups for p in group["params"]])
        to_names = optim_state_key_type is OptimStateKeyType.PARAM_NAME
        keys: dict[Any, Any] = dict(enumerate(named) if to_names else map(reversed, enumerate(named)))  # type: ignore[arg-type]
        keys.update({key: key for key in [*keys.values()]})  # what has such keys already keeps them
        try:
            return {
                **optim_state_dict,
                "state": {keys[key]: values for key, values in optim_state_dict["state"].items()},
                "param_groups": [
                    {**group, "params": [keys[key] for key in group["params"]]}
                    for group in optim_state_dict["param_groups"]
                ],
            }
        except KeyError as error:
            raise ValueError(
                f"the optimizer's state has a parameter {error}, and the model these: {', '.join(named)}"
            ) from None

    @classmethod
    def shard_full_optim_state_dict(
        cls,
        full_optim_state_dict: Mapping[str, Any],
        model: Module,
        optim_input: OptimInput | None = None,
        optim: Optimizer | None = None,
    ) -> _State:
        """What the optimizer's `load_state_dict` takes, of which it keeps this rank's rows, of what `full_optim_state_dict` gave."""
        return cls.rekey_optim_state_dict(
            full_optim_state_dict, OptimStateKeyType.PARAM_ID, model, optim_input, optim
        )

    @classmethod
    def flatten_sharded_optim_state_dict(
        cls, sharded_optim_state_dict: Mapping[str, Any], model: Module, optim: Optimizer
    ) -> _State:
        """What `optim.load_state_dict` takes, of what `sharded_optim_state_dict` gave."""
        return cls.shard_full_optim_state_dict(sharded_optim_state_dict, model, optim=optim)

    @classmethod
    def scatter_full_optim_state_dict(
        cls,
        full_optim_state_dict: Mapping[str, Any] | None,
        model: Module,
        optim_input: OptimInput | None = None,
        optim: Optimizer | None = None,
        group: ProcessGroup | None = None,
    ) -> _State:
        """As `shard_full_optim_state_dict`, of the state that rank 0 has. Collective."""
        given: list[Any] = [full_optim_state_dict]
        broadcast_object_list(given, src=0)
        return cls.shard_full_optim_state_dict(given[0], model, optim_input, optim)


def _named(
    model: Module,
    optim: Optimizer,
    given: Mapping[str, Any] | None,
    whole: bool,
    to_host: bool,
    rank0_only: bool,
) -> _State:
    by_name = OptimStateKeyType.PARAM_NAME
    state: _State = (
        get_optimizer_state_dict(model, optim)
        if given is None
        else OptimizerStates.rekey_optim_state_dict(given, by_name, model, optim=optim)
    )
    dropped = rank0_only and get_rank() > 0

    def delivered(value: Tensor) -> Tensor | None:
        if whole and isinstance(value, DTensor):
            value = value.whole()
        # One by one, so that a GPU has room for one whole tensor at a time.
        return None if dropped else value.cpu() if to_host else value

    state = tree_map_only(Tensor, delivered, state)
    return {} if dropped else state
