"""Options of `save` and `load` under PyTorch's names. Which rank writes what is decided in `state_dict_saver`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class DefaultSavePlanner:
    """How a state dict is written. What several ranks have alike is written by the first of them, whatever is said here."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        _check_flat(self, flatten_state_dict)


class DefaultLoadPlanner:
    """How a state dict is loaded. allow_partial_load: keys that the checkpoint does not hold stay as they are."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        _check_flat(self, flatten_state_dict)
        self.allow_partial_load = allow_partial_load


def checked(planner: T | None, kind: type[T]) -> T:
    """`planner`, or a `kind`; planners of the program's own would plan for PyTorch's files and are refused."""
    if planner is not None and type(planner) is not kind:
        raise NotImplementedError(
            f"planner={type(planner).__name__}: expected a {kind.__name__} or None: the files are ddpgrad's, and no class of "
            "the program decides about them. Change the state dict before save, or after load"
        )
    return planner or kind()


def _check_flat(planner: object, flatten: bool) -> None:
    if not flatten:
        raise NotImplementedError(
            f"{type(planner).__name__}(flatten_state_dict=False): expected True: keys within nested dicts are always joined by dots"
        )
