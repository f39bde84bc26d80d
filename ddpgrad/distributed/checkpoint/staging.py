"""Copies of state dicts, which stay as they are while training goes on: `async_save` writes those."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ...autograd.grad_mode import no_grad
from ...compat import accelerator
from ...core.tensor import Tensor
from ..tensor import DTensor


@runtime_checkable
class AsyncStager(Protocol):
    """What copies the state dict for `async_save`, at once or in a Future of `concurrent.futures`.

    With `should_synchronize_after_execute`, `async_save` calls `synchronize_staging` before it returns.
    """

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> Future[dict[str, Any]] | dict[str, Any]:
        """A copy of `state_dict`."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self) -> None:
        """Wait until the state dict may be changed."""
        warnings.warn(
            "`synchronize_staging` is deprecated: wait for staging_completion of what async_save returns",
            FutureWarning,
            stacklevel=2,
        )

    def close(self) -> None:
        """Give up what the stager holds."""


@dataclass
class StagingOptions:
    """How `DefaultStager` copies.

    use_async_staging: in a thread, while `async_save` returns. use_non_blocking_copy: needs an accelerator. Pinned and shared
    memory make no difference to copies on the CPU, which are all that there are.
    """

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Copies onto the CPU. `close` it after the last use."""

    def __init__(self, config: StagingOptions | None = None) -> None:
        self._config = config or StagingOptions()
        if self._config.use_non_blocking_copy and not accelerator.is_available():
            raise AssertionError("Non-blocking copy requires that the current accelerator is available.")
        self._pool = ThreadPoolExecutor(max_workers=1) if self._config.use_async_staging else None
        self._future: Future[dict[str, Any]] | None = None

    def stage(self, state_dict: dict[str, Any], **kwargs: Any) -> Future[dict[str, Any]] | dict[str, Any]:
        if self._pool is None:
            return staged(state_dict)
        self._future = self._pool.submit(staged, state_dict)
        return self._future

    def synchronize_staging(self) -> None:
        if self._future is not None:
            self._future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class BlockingAsyncStager(AsyncStager):
    """Copies onto the CPU before `stage` returns. cache_staged_state_dict: into the memory of the last copy."""

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict
        self.type_check = type_check
        self.state_dict_cache: dict[str, Any] | None = None

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        made = staged(state_dict, self.state_dict_cache)
        self.state_dict_cache = made if self.cache_staged_state_dict else None
        return made

    def synchronize_staging(self) -> None:
        """Nothing: `stage` returns when all is copied."""

    def close(self) -> None:
        """Nothing: there are no threads."""


@no_grad()
def staged(value: Any, room: Any = None) -> Any:
    """A copy of `value` on the CPU, whatever it is made of. room: the last copy, whose memory is used where it fits."""
    if isinstance(value, Tensor):
        if isinstance(room, Tensor) and (room.shape, room.dtype) == (value.shape, value.dtype):
            part, to = (one.part() if isinstance(one, DTensor) else one for one in (value, room))
            if part.shape == to.shape:
                to.copy_(part)
                return room
        if isinstance(value, DTensor):
            return value._with(value.part().to("cpu", copy=True)._array)
        return value.detach().to("cpu", copy=True)
    if type(value) is dict or (isinstance(value, Mapping) and not hasattr(value, "state_dict")):
        held = room if isinstance(room, Mapping) else {}
        return {key: staged(one, held.get(key)) for key, one in value.items()}
    if type(value) in (list, tuple):
        held = room if type(room) is type(value) and len(room) == len(value) else [None] * len(value)
        copies = [staged(one, old) for one, old in zip(value, held, strict=True)]
        return copies if type(value) is list else tuple(copies)
    return copy.deepcopy(value)
