"""What programs take from `torch.distributed.distributed_c10d` beside the documented names."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np

from ..backend.device import Device
from ..core import environment
from ..core.tensor import Tensor, wrap
from .collectives import broadcast
from .objects import pack, unpack
from .process_group import ProcessGroup, default_group, groups, is_outside, resolve
from .protocol import plain_data
from .store import DistStoreError, HashStore, PrefixStore, Store
from .tcp_store import TCPStore
from .tensor_work import Work

_log = logging.getLogger("ddpgrad.distributed")
STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"


def _get_default_store() -> Store:
    """The store of the default group: the one in which its ranks have met, else one that rank 0 serves at MASTER_PORT."""
    g = default_group()
    if g.store is None:
        g.store = HashStore() if g.size() == 1 else _served(g)
    store = PrefixStore("default_pg", g.store)
    store.set_timeout(min(g.timeout, 1e8))
    return store


def _set_pg_timeout(timeout: timedelta | float, group: ProcessGroup | None = None) -> None:
    """Let collectives of `group` that begin from now on wait for so long. Programs call it after a first step, which takes longer."""
    if is_outside(group):
        raise ValueError("Invalid process group specified: this rank is no member of it")
    g = resolve(group)
    g.timeout = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    g.communicator.wait_at_most(g.timeout)


def _served(g: ProcessGroup) -> Store:
    place = environment.rendezvous()
    if not {"MASTER_ADDR", "MASTER_PORT"} <= place.keys():
        raise RuntimeError(
            "the ranks have no store: nothing says where rank 0 could serve one. Set MASTER_ADDR and MASTER_PORT, or call "
            "init_process_group with a store"
        )
    return TCPStore(
        place["MASTER_ADDR"], int(place["MASTER_PORT"]), is_master=g.rank() == 0, multi_tenant=True
    )


def _store_based_barrier(
    rank: int,
    store: Store,
    group_name: str,
    rendezvous_count: int,
    timeout: timedelta,
    logging_interval: timedelta = timedelta(seconds=10),
) -> None:
    """Return when `rendezvous_count` callers have come; DistStoreError after `timeout`."""
    key = f"{STORE_BASED_BARRIER_PREFIX}:{group_name}"
    come = store.add(key, 1)
    began = told = time.monotonic()
    while come < rendezvous_count:
        time.sleep(0.01)
        come = store.add(key, 0)
        now = time.monotonic()
        joined = f"(world_size={rendezvous_count}, num_workers_joined={come}, timeout={timeout})"
        if now - began > timeout.total_seconds():
            raise DistStoreError(
                f"Timed out initializing process group in store based barrier on rank {rank}, for key: {key} {joined}"
            )
        if now - told > logging_interval.total_seconds():
            told = now
            _log.info("Waiting in store based barrier on rank %d, for key: %s %s", rank, key, joined)


class _CoalescingManager:
    """The works of a `_coalescing_manager`."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextmanager
def _coalescing_manager(
    group: ProcessGroup | None = None, device: Any = None, async_ops: bool = False
) -> Iterator[_CoalescingManager]:
    """Collectives within it, each of which begins at once here; at its end they are done unless `async_ops`."""
    resolve(group)
    manager = _CoalescingManager()
    yield manager
    if not async_ops:
        manager.wait()


def _broadcast_coalesced(
    process_group: ProcessGroup, tensors: Sequence[Tensor], buffer_size: int, src: int = 0
) -> None:
    """Overwrite `tensors` with those of rank `src` of the group."""
    works = [broadcast(t, group=process_group, async_op=True, group_src=src) for t in tensors]
    for work in works:
        if work is not None:
            work.wait()


def _object_to_tensor(obj: Any, device: Any, group: ProcessGroup | None = None) -> tuple[Tensor, Tensor]:
    """`obj` as bytes, in a tensor, and their number, in another."""
    data = np.frombuffer(plain_data.encode(pack(obj)), np.uint8).copy()
    return wrap(data).to(device), wrap(np.array([data.size])).to(device)


def _tensor_to_object(tensor: Tensor, tensor_size: int | Tensor, group: ProcessGroup | None = None) -> Any:
    """The object whose bytes begin `tensor`."""
    return unpack(plain_data.decode(tensor.numpy(force=True)[: int(tensor_size)].tobytes()))


def _get_process_group_name(pg: ProcessGroup) -> str:
    """The name of a group, the same for all its members."""
    return pg.group_name


def _resolve_process_group(group_name: str) -> ProcessGroup:
    """The group that has this name."""
    for group in groups.get():
        if group.group_name == group_name:
            return group
    raise RuntimeError(f"Could not resolve the process group registered under the name {group_name}")


def _get_group_size(group: ProcessGroup | None) -> int:
    """The number of ranks in the group."""
    return resolve(group).size()


def _get_pg_default_device(group: ProcessGroup | None = None) -> Any:
    """The device of the tensors that the group's backend carries: objects travel as such."""
    return Device("cuda" if resolve(group).backend == "nccl" else "cpu")
