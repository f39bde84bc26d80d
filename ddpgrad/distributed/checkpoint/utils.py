"""Steps that all ranks make together, parts of state dicts by index, and parts of files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.errors import DistributedError
from ...core.tensor import Tensor
from ..collectives import barrier
from ..messages import all_gather_object, broadcast_object_list, gather_object, scatter_object_list
from ..process_group import ProcessGroup, get_global_rank, get_rank, get_world_size
from ..tensor import DTensor
from .api import CheckpointException, _is_wrapped_exception, _wrap_exception
from .exchange import packed, portable, unpacked
from .metadata import MetadataIndex

T = TypeVar("T")
R = TypeVar("R")


class _DistWrapper:
    """The ranks that make or read one checkpoint together. What fails on one raises CheckpointException on all."""

    def __init__(self, group: ProcessGroup | None, use_dist: bool, coordinator_rank: int) -> None:
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        self.rank = self.global_coordinator_rank = 0
        self.is_coordinator = True
        if use_dist:
            self.global_coordinator_rank = (
                coordinator_rank if group is None else get_global_rank(group, coordinator_rank)
            )
            self.rank = get_rank(group)
            self.is_coordinator = self.rank == coordinator_rank

    def get_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return get_world_size(self.group) if self.use_dist else 1

    def gather_object(self, object: Any) -> list[Any] | None:
        """What each rank has; None elsewhere than on the coordinator."""
        if not self.use_dist:
            return [object]
        found: list[Any] | None = [None] * self.get_world_size() if self.is_coordinator else None
        gather_object(packed(object), found, dst=self.global_coordinator_rank, group=self.group)
        return None if found is None else [unpacked(one) for one in found]

    def all_gather_object(self, object: Any) -> list[Any]:
        """What each rank has."""
        if not self.use_dist:
            return [object]
        found: list[Any] = [None] * self.get_world_size()
        all_gather_object(found, packed(object), group=self.group)
        return [unpacked(one) for one in found]

    def broadcast_object(self, object: Any) -> Any:
        """What the coordinator has."""
        if not self.use_dist:
            return object
        given = [packed(object) if self.is_coordinator else None]
        broadcast_object_list(given, src=self.global_coordinator_rank, group=self.group)
        return unpacked(given[0])  # type: ignore[arg-type]

    def scatter_object(self, object_list: list[Any] | None) -> Any:
        """This rank's item of the list that the coordinator has."""
        if not self.use_dist:
            assert object_list is not None
            return object_list[0]
        given = None if object_list is None else [packed(one) for one in object_list]
        mine: list[Any] = [None]
        scatter_object_list(mine, given, src=self.global_coordinator_rank, group=self.group)
        return unpacked(mine[0])

    def reduce_scatter(
        self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], list[R]]
    ) -> R:
        """This rank's item of the list that `reduce_fun`, on the coordinator, makes of what each rank's `map_fun` returns."""
        return _checked(self.scatter_object(self._reduced(step, map_fun, reduce_fun, self.get_world_size())))

    def all_reduce(self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], R]) -> R:
        """What `reduce_fun`, on the coordinator, makes of what each rank's `map_fun` returns."""
        return _checked(self.broadcast_object(self._reduced(step, map_fun, reduce_fun)))

    def all_gather(self, step: str, map_fun: Callable[[], T]) -> list[T]:
        """What each rank's `map_fun` returns."""
        found = self.all_gather_object(self._attempt(map_fun))
        if failures := {i: one for i, one in enumerate(found) if _is_wrapped_exception(one)}:
            raise CheckpointException(step, failures)
        return found

    def broadcast(self, step: str, map_fun: Callable[[], T]) -> T:
        """What `map_fun` returns on the coordinator."""
        result: Any = self._attempt(map_fun) if self.is_coordinator else None
        if _is_wrapped_exception(result):
            result = CheckpointException(step, {self.rank: result})
        return _checked(self.broadcast_object(result))

    def barrier(self) -> None:
        if self.use_dist:
            barrier(self.group)

    def _reduced(
        self, step: str, map_fun: Callable[[], Any], reduce_fun: Callable[[list[Any]], Any], copies: int = 0
    ) -> Any:
        """On the coordinator the result, or the error, of which there is one for each of the `copies`; elsewhere None."""
        found = self.gather_object(self._attempt(map_fun))
        if found is None:
            return None
        failures = {i: one for i, one in enumerate(found) if _is_wrapped_exception(one)}
        if not failures:
            result = self._attempt(lambda: reduce_fun(found))
            if not _is_wrapped_exception(result):
                return result
            failures = {self.rank: result}
        error = CheckpointException(step, failures)
        return [error] * copies if copies else error

    def _attempt(self, action: Callable[[], T]) -> Any:
        """The result of `action`, or its error. What stops a rank altogether is no matter of the checkpoint."""
        try:
            return action()
        except DistributedError:
            raise
        except Exception as error:
            failure = _wrap_exception(error)
            return portable(failure) if self.use_dist else failure


def _checked(result: Any) -> Any:
    if isinstance(result, CheckpointException):
        raise result
    return result


def find_tensor_shard(tensor: Tensor, index: MetadataIndex) -> Tensor:
    """What this rank has of `tensor`, which begins at `index.offset`. Classes of a program may have `__get_tensor_shard__`."""
    if hasattr(tensor, "__get_tensor_shard__"):
        return tensor.__get_tensor_shard__(index)  # type: ignore[attr-defined]
    begin = tuple([0] * tensor.ndim)
    if isinstance(tensor, DTensor):
        begin = tuple(start for start, _ in tensor._layout.spans)
    if index.offset is not None and tuple(index.offset) != begin:
        raise ValueError(
            f"FQN: '{index.fqn}' has no part on this rank that begins at {index.offset}: its part begins at {begin}"
        )
    return tensor.part() if isinstance(tensor, DTensor) else tensor


def find_state_dict_object(state_dict: dict[str, Any], index: MetadataIndex) -> Any:
    """What `state_dict` has by that name, of a tensor the part that begins at `index.offset`."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    found = state_dict[index.fqn]
    if isinstance(found, Tensor):
        return find_tensor_shard(found, index)
    if index.offset is not None:
        raise ValueError(f"FQN: '{index.fqn}' is no tensor, can't find by offset: '{index.offset}'")
    return found


class _ReaderView(io.RawIOBase):
    """`length` bytes of a binary file from `offset` on, as a file."""

    def __init__(self, base_stream: Any, offset: int, length: int) -> None:
        super().__init__()
        self.base_stream, self.offset, self.length = base_stream, offset, length
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        from_begin = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self.tell() if whence == os.SEEK_CUR else 0,
            os.SEEK_END: self.length,
        }
        at = max(from_begin[whence] + offset, 0)
        return self.base_stream.seek(self.offset + at) - self.offset

    def tell(self) -> int:
        return self.base_stream.tell() - self.offset

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer).cast("B")[: max(self.length - self.tell(), 0)]
        return self.base_stream.readinto(room)


def _create_file_view(file: Any, offset: int, length: int) -> _ReaderView:
    return _ReaderView(file, offset, length)
