"""`Join`: a training loop in which ranks have different numbers of batches, for models that can be joined."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..ddp.data_parallel import DistributedDataParallel


class Join:
    """Around a training loop: what `DistributedDataParallel.join` of the model among `joinables` is.

    kwargs: divide_by_initial_world_size. NotImplementedError for anything else than one such model: an optimizer whose
    state is divided takes no part in the steps of others.
    """

    def __init__(
        self,
        joinables: Sequence[Any],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        others = [type(one).__name__ for one in joinables if not isinstance(one, DistributedDataParallel)]
        if others or len(joinables) > 1:
            raise NotImplementedError(
                f"Join: one DistributedDataParallel can be joined here, got {', '.join(type(one).__name__ for one in joinables)}"
            )
        self._context: AbstractContextManager[None] = joinables[0].join(
            enable=enable, throw_on_early_termination=throw_on_early_termination, **kwargs
        )

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._context.__exit__(*error)
