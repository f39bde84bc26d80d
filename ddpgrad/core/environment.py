"""The environment variables that the launcher, MPI and Slurm set; the only module that reads `os.environ`.

Everything else asks the functions here, so that one page lists every variable that can
change a run.

    DDPGRAD_JOB          random token of this job; ranks of one host meet under it
    DDPGRAD_PROCS        number of processes of the job
    DDPGRAD_PROC         index of this process
    DDPGRAD_PID          number of the process that is a rank; what it starts inherits all of these, and is none
    WORLD_SIZE           number of ranks (logical workers)
    RANK, MASTER_ADDR, MASTER_PORT, LOCAL_RANK, TORCHELASTIC_...
                         where no launcher of ours or MPI's is: which rank this is, and where the ranks meet
    DDPGRAD_DEBUGGER     1: the user debugs; waiting is never cut short
    DDPGRAD_TIMEOUT      seconds that a collective may wait for other ranks
    DDPGRAD_TOKEN        a secret of the job: who does not know it is refused where ranks meet
    DDPRUN_RESTART_COUNT how often ddprun has started the job again after a failure
    DDPGRAD_TRANSPORT    between processes: 'shm', 'mpi', or 'shm,mpi': shm where there is enough shared memory
    OMP_NUM_THREADS      (or OPENBLAS_, MKL_) set: BLAS threads are left as they are
    DDPGRAD_NUMBA        0: portable NumPy kernels only
    DDPGRAD_MKL          0: no products by MKL, though it is installed
    DDPGRAD_CHECK_REPLICAS  steps between two checks that replicas are equal; 0: never
    DDPGRAD_VERIFY       N: about one in N sums of gradients is made a second time, and compared
    DDPGRAD_ONLY_RANK    the rank in which breakpoint() stops, where several share a process
    DDPGRAD_TRACE        folder: every process records there what its ranks did when
    DDPGRAD_LOG_DIR      folder for what is known of a failure, where no ddprun --log-dir names one
    TORCH_DISTRIBUTED_DEBUG  OFF, INFO or DETAIL: what programs read back; here all is always checked
    DDPGRAD_CONFIG       how ddprun was started, as JSON: see launcher/job/run_config.py
    DDPGRAD_SNAPSHOTS    where a job that may be started again keeps its state: see launcher/job/snapshot_memory.py
    DDPGRAD_AS_TORCH     1: imports of torch are answered with ddpgrad
    SLURM_JOB_ID, ...    the allocation that ddprun is called in; SLURM_MPI_TYPE: how srun talks to MPI
    TORCH_HOME           the folder that `torch.hub.get_dir()` names; else below XDG_CACHE_HOME, or ~/.cache
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import LaunchError

# (rank, size) pairs that MPI launchers and Slurm export, before MPI starts.
MPI_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)  # fmt: skip

# What torchrun, Kubeflow and programs themselves set; the first four are those of `env://`.
_RENDEZVOUS = (
    "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip

_LOCAL_VARIABLES = (("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"))  # fmt: skip

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""The variables that say how many threads a library may use in each process."""


@dataclass(frozen=True)
class Launch:
    """Which ranks of which world this process hosts, and who started it.

    Ranks are dealt to processes in contiguous blocks; the first `world_size % procs`
    processes host one rank more than the others.

    A group of some of the ranks is a smaller world, with ranks and processes numbered anew:
    `group` then says, for each of its processes, its number in the whole world and the ranks
    there that it contributes.
    """

    world_size: int = 1
    procs: int = 1
    proc: int = 0
    job: str | None = None
    mpi: bool = False
    group: tuple[tuple[int, tuple[int, ...]], ...] | None = None

    @property
    def ranks(self) -> range:
        """The ranks that this process hosts."""
        return self.block(self.proc)

    def block(self, proc: int) -> range:
        """The contiguous block of ranks that process `proc` hosts."""
        if self.group is None:
            return ranks_of(proc, self.procs, self.world_size)
        before = sum(len(ranks) for _, ranks in self.group[:proc])
        return range(before, before + len(self.group[proc][1]))

    def world_rank(self, rank: int) -> int:
        """What `rank` is called in the whole world: the number that messages show."""
        if self.group is None:
            return rank
        return [number for _, ranks in self.group for number in ranks][rank]

    def subset(self, ranks: Sequence[int]) -> Launch | None:
        """The group of `ranks`, in ascending order, as this process sees it; None if it hosts none of them."""
        wanted = set(ranks)
        hosted = [(proc, tuple(r for r in self.block(proc) if r in wanted)) for proc in range(self.procs)]
        group = tuple((proc, here) for proc, here in hosted if here)
        place = next((i for i, (proc, _) in enumerate(group) if proc == self.proc), None)
        return None if place is None else Launch(len(ranks), len(group), place, self.job, self.mpi, group)


def ranks_of(proc: int, procs: int, world_size: int) -> range:
    """The contiguous block of ranks that process `proc` of `procs` hosts."""
    share, extra = divmod(world_size, procs)
    first = proc * share + min(proc, extra)
    return range(first, first + share + (proc < extra))


def launch() -> Launch:
    """Read how this process was started: by ddprun, by an MPI launcher, or by neither: then alone."""
    return launched() or Launch()


def launched() -> Launch | None:
    """What ddprun or an MPI launcher says about this process; None if neither started it."""
    env = os.environ
    under_mpi = mpi_rank_and_size()
    if "DDPGRAD_PROCS" in env:
        procs = _integer("DDPGRAD_PROCS")
        mpi = "DDPGRAD_PROC" not in env
        if mpi and under_mpi is None:
            raise LaunchError(
                "ddprun --mpi started this process, but no MPI rank is in its environment (looked for OMPI_COMM_WORLD_RANK, "
                "PMI_RANK, PMIX_RANK, SLURM_PROCID). The mpiexec in use is of an unknown kind; start the script with plain mpirun."
            )
        if mpi and under_mpi is not None and under_mpi[1] != procs:
            raise LaunchError(
                f"ddprun asked for {procs} processes, but the MPI launcher started {under_mpi[1]}. The launcher and the MPI "
                "library are of different kinds; run `ddprun` with the mpiexec of the installed MPI first on PATH."
            )
        proc = under_mpi[0] if mpi and under_mpi is not None else _integer("DDPGRAD_PROC")
        world_size = _integer("WORLD_SIZE", str(procs))  # programs remove it, and say a world by arguments
        return Launch(world_size, procs, proc, env.get("DDPGRAD_JOB"), mpi)
    # mpiexec or srun may have started torchrun, whose workers meet by themselves.
    if under_mpi is not None and under_mpi[1] > 1 and "TORCHELASTIC_RUN_ID" not in env:
        rank, size = under_mpi
        return Launch(size, size, rank, None, True)
    return None


def started_by_rank() -> bool:
    """Whether a rank of ddprun's has started this process: what `launched` says is that rank's."""
    return os.environ.get("DDPGRAD_PID", str(os.getpid())) != str(os.getpid())


def rendezvous() -> dict[str, str]:
    """The variables by which ranks meet that neither ddprun nor MPI started, as far as they are set."""
    return {name: os.environ[name] for name in _RENDEZVOUS if os.environ.get(name)}


def rank_and_size() -> tuple[int, int]:
    """RANK and WORLD_SIZE; -1 where one is not set."""
    return _integer("RANK", "-1"), _integer("WORLD_SIZE", "-1")


def mpi_rank_and_size() -> tuple[int, int] | None:
    """Which of how many processes mpiexec or srun has started this one as; None where neither has."""
    # Slurm's numbers alone say nothing about MPI: a script that names a meeting place wants that, unless ddprun has named it.
    met = "DDPGRAD_PROCS" not in os.environ and all(os.environ.get(name) for name in _RENDEZVOUS[:4])
    for rank, size in MPI_VARIABLES:
        if rank in os.environ and size in os.environ and not (met and rank == "SLURM_PROCID"):
            return _integer(rank), _integer(size)
    return None


def started_together(by_hand: bool = False) -> tuple[str, int] | None:
    """How many of this process mpiexec, srun or torchrun has started, where that is several, and the variable that says so.

    by_hand: or a shell, which has set RANK and WORLD_SIZE. None for a process that ddprun has started.
    """
    if "DDPGRAD_PROCS" in os.environ:
        return None
    named = ("RANK", "WORLD_SIZE")
    first = (named,) if "TORCHELASTIC_RUN_ID" in os.environ else ()
    for rank, size in (*first, *MPI_VARIABLES, *((named,) if by_hand else ())):
        if rank in os.environ and size in os.environ:
            count = _integer(size)
            return (size, count) if count > 1 else None
    return None


def export_rank() -> None:
    """Set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE where mpiexec or srun has started several of this process.

    Not where the program's own say who it is and where it meets the others.
    """
    under_mpi = mpi_rank_and_size()
    if started_together() is None or under_mpi is None or rendezvous().keys() >= {*_RENDEZVOUS[:4]}:
        return
    export(RANK=str(under_mpi[0]), WORLD_SIZE=str(under_mpi[1]))
    if local := local_rank_and_size():
        export(LOCAL_RANK=str(local[0]), LOCAL_WORLD_SIZE=str(local[1]))


def local_rank_and_size() -> tuple[int, int] | None:
    """This process's number among those of its host, and how many those are, where MPI or Slurm said it."""
    env = os.environ
    for rank, size in _LOCAL_VARIABLES:
        if rank in env and size in env:
            return _integer(rank), _integer(size)
    if "SLURM_LOCALID" in env and "SLURM_STEP_TASKS_PER_NODE" in env:
        # As in "4(x2),3": two hosts with four tasks each, then one with three.
        counts: list[int] = []
        for part in env["SLURM_STEP_TASKS_PER_NODE"].split(","):
            count, _, times = part.rstrip(")").partition("(x")
            counts += [int(count)] * int(times or 1)
        return _integer("SLURM_LOCALID"), counts[_integer("SLURM_NODEID")]
    return None


def _integer(name: str, otherwise: str = "") -> int:
    text = os.environ.get(name) or otherwise
    if not text.strip().isdecimal():
        raise LaunchError(f"environment variable {name} must be an integer, 0 or more, got {text!r}")
    return int(text)


@dataclass(frozen=True)
class Allocation:
    """What Slurm has given to the job that this process runs in."""

    nodes: int
    tasks: int | None
    """How many tasks were asked for, if that was said."""
    mpi_type: str | None
    """How `srun` is to talk to the MPI library, if that was said."""


def slurm_allocation() -> Allocation | None:
    """The Slurm allocation in which this process could start tasks; None outside one, and in a task."""
    if "SLURM_JOB_ID" not in os.environ or "SLURM_STEP_ID" in os.environ:
        return None
    tasks = _integer("SLURM_NTASKS") if "SLURM_NTASKS" in os.environ else None
    return Allocation(_integer("SLURM_JOB_NUM_NODES", "1"), tasks, os.environ.get("SLURM_MPI_TYPE"))


def slurm_hosts() -> str | None:
    """The hosts of the Slurm allocation, in Slurm's spelling, such as 'node[1-4]'."""
    return os.environ.get("SLURM_JOB_NODELIST")


def debugger() -> bool:
    """True when the user debugs: no wait is cut short."""
    return os.environ.get("DDPGRAD_DEBUGGER") == "1"


def timeout() -> float:
    """Seconds that a collective may wait for other ranks before it is called a stall."""
    text = os.environ.get("DDPGRAD_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds > 0:
        return seconds
    raise LaunchError(f"environment variable DDPGRAD_TIMEOUT must be seconds, more than 0, got {text!r}")


def token() -> bytes:
    """The secret that the ranks of a job share, DDPGRAD_TOKEN; empty if there is none."""
    return os.environ.get("DDPGRAD_TOKEN", "").encode()


def restart_count() -> int:
    """How often ddprun has started this job again after a failure."""
    return _integer("DDPRUN_RESTART_COUNT", "0")


def transport() -> str | None:
    """The transport between processes that the user insists on, if any."""
    return os.environ.get("DDPGRAD_TRANSPORT") or None


def blas_threads_chosen() -> bool:
    """True when the user, or ddprun, said how many threads BLAS may use."""
    return any(name in os.environ for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"))


def allocator_chosen() -> bool:
    """True when the user has set up the C library's memory allocation."""
    return any(map(os.environ.get, ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")))


def numba_enabled() -> bool:
    """False when the user asked for portable NumPy kernels only."""
    return _integer("DDPGRAD_NUMBA", "1") != 0


def mkl_enabled() -> bool:
    """False when the user wants no products by MKL."""
    return _integer("DDPGRAD_MKL", "1") != 0


def distributed_debug() -> str:
    """What TORCH_DISTRIBUTED_DEBUG says, 'OFF' by default; LaunchError for a level that PyTorch does not have."""
    level = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if level not in ("OFF", "INFO", "DETAIL"):
        raise LaunchError(f"TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, got {level!r}")
    return level


def as_torch() -> bool:
    """True when ddprun was asked to answer the script's imports of `torch`."""
    return os.environ.get("DDPGRAD_AS_TORCH") == "1"


def steps_between_replica_checks() -> int:
    """After how many steps the ranks compare their parameters; 0: never."""
    return _integer("DDPGRAD_CHECK_REPLICAS", "100")


def verified_sums() -> int:
    """One in how many sums of gradients is made a second time; 0: none."""
    return _integer("DDPGRAD_VERIFY", "0")


def only_rank() -> int | None:
    """The only rank in which breakpoint() is to stop, if the user chose one."""
    return _integer("DDPGRAD_ONLY_RANK") if "DDPGRAD_ONLY_RANK" in os.environ else None


def trace_folder() -> str | None:
    """Where a record of what the ranks did when is wanted, if anywhere."""
    return os.environ.get("DDPGRAD_TRACE") or None


def log_dir() -> str | None:
    """Where the ranks themselves are to write down what is known of a failure, if anywhere."""
    return os.environ.get("DDPGRAD_LOG_DIR") or None


def snapshot_memory() -> str | None:
    """Where the launcher keeps memory for the state of a job that it may start again, if it does."""
    return os.environ.get("DDPGRAD_SNAPSHOTS") or None


def job_config() -> str | None:
    """How ddprun has started this job, as JSON; None where it has not."""
    return os.environ.get("DDPGRAD_CONFIG")


def mapping() -> MutableMapping[str, str]:
    """What programs see as their environment."""
    return os.environ


def replace(seen: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Let programs see `seen` as their environment; returns what they saw before."""
    before = os.environ
    os.environ = seen  # noqa: B003 - another view of the same variables
    return before


def child_environment(**variables: str) -> dict[str, str]:
    """This process's environment with `variables` set: what a launcher gives its children."""
    return {**os.environ, **variables}


def export(**variables: str) -> None:
    """Set `variables` in this process's environment, for programs that read it themselves."""
    os.environ.update(variables)


def ranks() -> dict[str, str]:
    """What the calling rank sees of who it is, for processes that work for it."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    return {name: os.environ[name] for name in names if name in os.environ}


def be_worker(**ranks: str) -> None:
    """Remove what would make this process a rank: a rank has started it. ranks: which one it works for (`ranks()`)."""
    for name in ("DDPGRAD_JOB", "DDPGRAD_PROCS", "DDPGRAD_PROC", *_RENDEZVOUS, *sum(MPI_VARIABLES, ())):
        os.environ.pop(name, None)
    os.environ.update(ranks)


@contextmanager
def as_process_manager(fd: int, rank: int, size: int) -> Iterator[None]:
    """Within it, an MPI library that begins finds its process manager at the other end of `fd` (PMI-1)."""
    others = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(("PMI_", "PMIX_"))}
    own = {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}
    os.environ.update(own)
    try:
        yield
    finally:
        # What this process starts later is no part of that world.
        for name in own:
            os.environ.pop(name, None)
        os.environ.update(others)


def torch_home() -> str:
    """The folder where PyTorch's libraries keep what they download."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))
