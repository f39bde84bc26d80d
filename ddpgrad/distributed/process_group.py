"""Process groups, with PyTorch's names: the ranks that take part in a collective.

Source of names and arguments: https://pytorch.org/docs/stable/distributed.html. Groups are
local to a rank (see `rank_local`), so that several ranks of one process have their own.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import device as devices
from ..core import environment, upcalls
from ..core.errors import LaunchError
from ..core.rank_local import RankLocal
from ..version import __version__
from . import backends
from .communicator.communicator import Communicator
from .ranks import world

if TYPE_CHECKING:
    from .rendezvous.meeting import Asked
    from .store import Store


class ProcessGroup:
    """The ranks that take part in collectives; `communicator` carries them.

    ranks: the members' numbers in the world, ascending; a member's place there is its rank
    within the group. backend: the name that the program gave for whichever transport suits, as "gloo"; None if none.
    timeout: seconds that a collective may wait; None: DDPGRAD_TIMEOUT.
    """

    def __init__(
        self,
        communicator: Communicator,
        ranks: Sequence[int],
        local_rank: int,
        backend: str | None = None,
        description: str = "",
        timeout: float | None = None,
    ) -> None:
        self.communicator = communicator
        self.ranks = tuple(ranks)
        self.local_rank = local_rank
        self.backend = backend or communicator.transport
        self.group_desc = description
        self.timeout = environment.timeout() if timeout is None else timeout
        self.monitored = 0  # how often `monitored_barrier` was called
        self.store: Store | None = None

    def name(self) -> str:
        """As `get_backend` has it."""
        return self.backend

    def rank(self) -> int:
        return self.communicator.rank

    def size(self) -> int:
        return self.communicator.size

    def place(self, rank: int, what: str = "rank") -> int:
        """Where `rank` of the world stands within this group; `ValueError` if it is no member."""
        try:
            return self.ranks.index(rank)
        except ValueError:
            raise ValueError(
                f"{what} {rank!r} is not part of this group, which has the ranks {list(self.ranks)}"
            ) from None

    def __getattr__(self, name: str) -> Any:
        """Collectives as methods; see `group_methods`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return upcalls.group_method(self, name)

    def __repr__(self) -> str:
        c = self.communicator
        return f"ProcessGroup(rank={c.rank}, size={c.size}, transport={c.transport!r})"


class _Groups(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group; None before `init_process_group`, which stands for it in arguments."""
        mine = groups.get()
        return mine[0] if mine else None


class GroupMember(metaclass=_Groups):
    """Marks of groups: `NON_GROUP_MEMBER` is returned by `new_group` to ranks outside the group."""

    NON_GROUP_MEMBER = object()


class OutsideError(ValueError):
    """This rank asks something of a group that it is not part of."""


group = GroupMember

groups: RankLocal[list[ProcessGroup]] = RankLocal(list)
"""Those that this rank is in, the default one first."""


def is_available() -> bool:
    """True: every installation can communicate."""
    return True


def is_initialized() -> bool:
    """True when this rank has called `init_process_group`."""
    return bool(groups.get())


def is_torchelastic_launched() -> bool:
    """True where torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in environment.rendezvous()


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    **options: Any,
) -> None:
    """Meet the other ranks: of the job that ddprun, mpirun or Slurm started, else those that come to the same place.

    backend: None, or 'gloo', chooses: threads in this process, shared memory on one host, MPI between
    hosts; 'virtual' and 'shm' insist, and so does 'mpi' where MPI started the ranks; 'shm,mpi' takes shm where there is room for it. All of
    these carry tensors of GPUs through host memory; 'nccl' goes from GPU to GPU, and needs one for
    each rank. timeout: seconds (or a timedelta) that a collective, and this call, may wait.

    Where no such launcher is, ranks meet by `init_method`: `env://`, the default (MASTER_ADDR, MASTER_PORT, RANK,
    WORLD_SIZE, as torchrun and Kubeflow set them), `tcp://HOST:PORT`, where rank 0 listens, or `file://PATH`; or in a
    `store`. rank and world_size may be arguments, or stand behind the address (`?rank=0&world_size=2`). On one host
    they then meet in shared memory, on several begin MPI (MPICH). With nothing said this is the only rank. Under a
    launcher world_size and rank are only checked against what it says, but for the only rank of a job, and processes
    that a rank has started: where they name another world they meet it.

    Raises ValueError for a place that is named in part, LaunchError where ranks contradict each other or the
    launcher, TransportError if ranks do not come in time.
    """
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    name = backends.check("init_process_group", backend)
    hosted = world.join(_asked(init_method, rank, world_size, store, seconds(timeout)))
    for what, given, actual in (("world_size", world_size, hosted.world_size), ("rank", rank, hosted.rank)):
        if given not in (-1, actual):
            raise LaunchError(
                f"init_process_group({what}={given}): the launcher says {what} {actual}. Start the ranks with "
                f"`ddprun -n {world_size if world_size > 0 else 'N'} script.py` or mpirun, and leave {what} out."
            )
    devices.set_local_rank(hosted.local_rank)
    try:
        wanted = backends.transport(name, hosted.world.launch.mpi)
        communicator = hosted.communicator(wanted, seconds(timeout))
        # Other versions compute other bits, if they understand each other at all: ranks that differ are told so here.
        communicator.barrier(label=f"init_process_group with {_versions()}")
    except BaseException:
        hosted.world.leave()
        raise
    shown = name if wanted is None else None
    everyone = range(hosted.world_size)
    made = ProcessGroup(communicator, everyone, hosted.local_rank, shown, "default_pg", seconds(timeout))
    made.store = store if hosted.world.met is None else hosted.world.met.store
    groups.get().append(made)


def _asked(
    init_method: str | None, rank: int, world_size: int, store: Store | None, timeout: float | None
) -> Asked | None:
    """What the arguments say about where ranks meet; None: nothing, and the environment nothing new."""
    silent = init_method is None and store is None and rank == -1 and world_size == -1
    if silent and (world.settled() or not environment.rendezvous()):
        return None
    from .rendezvous.meeting import Asked

    return Asked(init_method, rank, world_size, store, timeout)


def _versions() -> str:
    """The versions that must be the same on all ranks, so that they compute the same bits."""
    python = ".".join(map(str, sys.version_info[:2]))
    numba = "with" if environment.numba_enabled() else "without"
    return f"ddpgrad {__version__}, NumPy {np.__version__}, Python {python}, {numba} Numba"


def seconds(timeout: timedelta | float | None) -> float | None:
    """A limit as PyTorch's programs give it, in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of `ranks` of the world (all by default); `GroupMember.NON_GROUP_MEMBER` on other ranks.

    Every rank of the world calls it, with the same ranks and in the same order, whether it is a
    member or not; or ranks name groups that have no rank in common. That is checked: MismatchError.
    use_local_synchronization: only the members need to call. Within the group ranks are numbered in ascending order.
    """
    whole = default_group()
    chosen = sorted(range(whole.size()) if ranks is None else map(operator.index, ranks))
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: ranks must differ, got {chosen}")
    wrong = [rank for rank in chosen if not 0 <= rank < whole.size()]
    if wrong or not chosen:
        named = f"Rank {wrong[0]} is out of range: " if wrong else ""
        raise ValueError(
            f"{named}new_group: ranks must be from 0 to {whole.size() - 1} and not empty, got {chosen}"
        )
    if backend is None and whole.backend != whole.communicator.transport:
        backend = whole.backend  # the name that the program gave is that of all groups, as in PyTorch
    name = backends.check("new_group", backend)
    if not use_local_synchronization:
        # Ranks that disagree are told so here; and all are at this line before a smaller group meets.
        everyone = whole.communicator.all_gather_object(chosen)
        if any(everyone[member] != named for named in everyone for member in named):
            whole.communicator.barrier(label=f"new_group({chosen})")
    hosted = world.current()
    wanted = backends.transport(name, hosted.world.launch.mpi)
    communicator = hosted.group(chosen, wanted, seconds(timeout), use_local_synchronization)
    if communicator is None:
        return GroupMember.NON_GROUP_MEMBER
    # A program reads back the name that it gave, where that is not a transport's.
    shown = name if wanted is None else None
    described = group_desc or "undefined"
    made = ProcessGroup(communicator, chosen, hosted.local_rank, shown, described, seconds(timeout))
    groups.get().append(made)
    return made


def new_subgroups(
    group_size: int | None = None, group: ProcessGroup | None = None, **options: Any
) -> tuple[ProcessGroup, list[Any]]:
    """The ranks of `group` as groups of `group_size` neighbours (default: the ranks of a host): (mine, all of them)."""
    ranks = list(resolve(group).ranks)
    size = len(ranks)
    if group_size is None:
        group_size = world.current().local_world_size
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by '{group_size=}'")
    starts = range(0, size, group_size)
    return new_subgroups_by_enumeration([ranks[first : first + group_size] for first in starts], **options)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], **options: Any
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks: (the one that this rank is in, all of them)."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    places: dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in places:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {places[rank]} and {ranks}")
            places[rank] = ranks
    made = [new_group(ranks, **options) for ranks in ranks_per_subgroup_list]
    mine = next((g for g in made if isinstance(g, ProcessGroup)), None)
    return mine, made


def split_group(
    parent_pg: ProcessGroup | None = None, split_ranks: Sequence[Sequence[int]] | None = None, **options: Any
) -> ProcessGroup | None:
    """The group of `split_ranks` that this rank is in, with ranks as `parent_pg` numbers them; None if in none.

    Every rank of the world calls it.
    """
    parent = resolve(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    mine, _ = new_subgroups_by_enumeration([[parent.ranks[r] for r in ranks] for ranks in split_ranks])
    return mine


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave `group`, or all groups; after that `init_process_group` may be called again.

    DistributedError if parameters of a DistributedDataParallel are NaN, and CheckpointError if one that `async_save` was to
    write is lost, when all groups are left; ValueError for a group that was left before.
    """
    if is_outside(group):
        return
    left, mine = resolve(group), groups.get()
    if left not in mine:
        raise ValueError("Invalid process group specified: destroy_process_group was called for it already")
    if left is mine[0] and sys.exception() is None:  # which would hide the error of what is left so
        world.current().last_checks.raise_error()
    for gone in list(mine) if left is mine[0] else [left]:
        gone.communicator.close()
        mine.remove(gone)
    if not mine:
        world.current().world.leave()


def default_group() -> ProcessGroup:
    """This rank's group of all ranks; `ValueError` before `init_process_group`."""
    if not (mine := groups.get()):
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    return mine[0]


def resolve(group: Any) -> ProcessGroup:
    """`group`, or the default one for None; `OutsideError`, a ValueError, on a rank that is outside it."""
    if group is None:
        return default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        raise OutsideError(
            f"Invalid process group specified: rank {get_rank()} is not part of the group that it uses; ask "
            "`get_rank(group) >= 0` before"
        )
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"expected a ProcessGroup, as new_group() returns it, got {type(group).__name__}")
    return group


def get_rank(group: Any = None) -> int:
    """This rank's number in the group; -1 outside it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    """The number of ranks in the group; -1 outside it."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else resolve(group).size()


def get_local_rank(group: ProcessGroup | None = None) -> int:
    """This rank's index among those on its host."""
    return resolve(group).local_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """LOCAL_RANK, where that is set, else `fallback_rank`, or this rank's index among those on its host."""
    if (told := environment.rendezvous().get("LOCAL_RANK")) is not None:
        return int(told)
    return world.current().local_rank if fallback_rank is None else int(fallback_rank)


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The backend of each kind of device, as "cpu:shm,cuda:shm"."""
    return ",".join(f"{kind}:{get_backend(group)}" for kind in ("cpu", "cuda"))


def get_pg_count() -> int:
    """How many process groups this rank is in."""
    return len(groups.get())


def get_backend(group: ProcessGroup | None = None) -> str:
    """The transport in use: 'virtual', 'shm', 'mpi' ...; "gloo" if the program asked for that, since programs look at it.

    The transport itself is always in `group.communicator.transport`.
    """
    return resolve(group).backend


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The members' numbers in the world, by rank within the group."""
    return list(resolve(group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number within `group` of a rank of the world."""
    return resolve(group).place(global_rank, "Global rank")


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The number in the world of a rank of `group`."""
    ranks = resolve(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of a group of {len(ranks)} ranks")
    return ranks[group_rank]


def is_outside(group: Any) -> bool:
    """Whether this rank is outside of `group`."""
    return group is GroupMember.NON_GROUP_MEMBER
