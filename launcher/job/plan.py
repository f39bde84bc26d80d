"""The plan of a job: its ranks, processes and hosts, and the command and environment of each process."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError

from .hosts import Host, deal, slots, spelt
from .screen import Screen

if TYPE_CHECKING:
    from .nodes import Nodes

_MOST_RANKS = 1_000_000


@dataclass(frozen=True)
class Plan:
    """One job: `world_size` ranks in `procs` processes, each running `target` with `arguments`."""

    world_size: int
    procs: int
    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    debug: bool = False
    only_rank: int | None = None
    mpi: bool = False
    """Whether mpiexec or srun starts the processes, instead of ddprun itself."""
    slurm: bool = False
    nnodes: int = 1
    node_rank: int | None = None
    rdzv_id: str = ""
    mpiexec: str | None = None
    timeout: float | None = None
    threads: int | None = None
    as_torch: bool = False
    watchdog: float | None = None
    max_restarts: int = 0
    min_procs: int | None = None
    spares: int = 0
    verify: int = 0
    """One in how many sums of gradients is made a second time; 0: none."""
    restart_count: int = 0
    hosts: tuple[Host, ...] = ()
    """The hosts on which mpiexec starts the processes; none: this host, or those that Slurm chooses."""
    hosts_from: str | None = None
    """The file with the hosts, where it is read again when it has changed."""
    most_procs: int = 0
    """In how many processes the job goes on when hosts join; 0: in as many as it began with."""
    metrics: tuple[str, int] | None = None
    """Host and port where the launcher tells of the job, if it is to; port 0: any free one."""
    log_dir: Path | None = None
    trace: Path | None = None
    nodes: Nodes | None = None
    """The other ddprun instances that are part of the job."""
    screen: Screen = field(default_factory=Screen)
    command_line: tuple[str, ...] = ()
    """ddprun's arguments, as they were given."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of those, ddprun's own options, by their names."""
    config: str = ""
    """The job as it was started, as JSON (run_config.py)."""
    snapshots: str = ""
    """Where its state is kept in memory from one attempt to the next (snapshot_memory.py); '': nowhere."""
    address: str = "127.0.0.1"
    job: str = field(default_factory=lambda: secrets.token_hex(6))
    port: int = field(default_factory=lambda: free_port())

    def check(self) -> None:
        """Raise LaunchError, saying what to change, if the plan cannot be carried out."""
        n, procs = self.world_size, self.procs
        if n < 1:
            raise LaunchError(f"-n {n}: at least one rank is needed")
        if n > _MOST_RANKS:
            raise LaunchError(f"-n {n}: at most {_MOST_RANKS} ranks are possible")
        if procs < 1:
            raise LaunchError(f"--procs {procs}: at least one process is needed")
        if procs > n:
            raise LaunchError(
                f"--procs {procs} is more than -n {n} ranks: every process must host at least one rank. "
                f"Use --procs {n} or fewer, or -n {procs}."
            )
        if self.debug and procs != 1:
            raise LaunchError(f"--debug hosts all ranks in one process, but --procs {procs} was given")
        if self.only_rank is not None and not (self.debug and 0 <= self.only_rank < n):
            raise LaunchError(
                f"--only-rank {self.only_rank} chooses one of the ranks 0 to {n - 1} of a --debug run; "
                "add --debug, or change the number"
            )
        if self.debug and self.mpi:
            raise LaunchError("--debug runs all ranks in one process without MPI; leave out --mpi")
        if self.hosts and slots(self.hosts) < procs:
            raise LaunchError(
                f"--hosts {spelt(self.hosts)} has room for {slots(self.hosts)} processes, and the job has {procs}: give each "
                "host a number, as in node1:4,node2:4, or host several ranks in a process with --procs"
            )
        if self.slurm and self.procs % self.nnodes:
            raise LaunchError(
                f"--procs {procs} processes cannot be dealt evenly to --nnodes {self.nnodes}; give a multiple of it"
            )
        if self.mpiexec is not None and not self.mpi:
            raise LaunchError(f"--mpiexec {self.mpiexec} has a meaning only with --mpi")
        if self.timeout is not None and not self.timeout > 0:
            raise LaunchError(f"--timeout {self.timeout:g}: the seconds must be positive")
        if self.threads is not None and self.threads < 1:
            raise LaunchError(f"--threads {self.threads}: at least one thread is needed")
        if self.watchdog is not None and not self.watchdog > 0:
            raise LaunchError(f"--watchdog {self.watchdog:g}: the seconds must be positive")
        if self.max_restarts < 0:
            raise LaunchError(f"--max-restarts {self.max_restarts}: the number must not be negative")
        if self.min_procs is not None and not (
            self.min_procs >= 1 and (self.min_procs <= procs or self.awaits_nodes)
        ):
            raise LaunchError(
                f"--min-procs {self.min_procs}: give a number from 1 to the {procs} processes of the job"
            )
        if not 0 <= self.spares <= procs:
            raise LaunchError(f"--spares {self.spares}: give a number up to that of the {procs} processes")
        if self.spares and (self.mpi or self.nnodes > 1 or self.max_restarts == 0):
            raise LaunchError(
                f"--spares {self.spares} is for restarts (--max-restarts N) of processes that ddprun itself starts: "
                "without --mpi, --hosts, --nnodes, --debug and Slurm"
            )
        beside = self.watchdog, self.max_restarts, self.log_dir, self.metrics
        if self.debug and (any(beside) or self.screen.only is not None):
            raise LaunchError(
                "--debug has this terminal and no launcher beside it: leave out --watchdog, --max-restarts, --log-dir, "
                "--metrics and --local-ranks-filter"
            )
        if self.screen.only and not self.awaits_nodes and not self.shown().only:
            raise LaunchError(
                f"--local-ranks-filter {','.join(map(str, sorted(self.screen.only)))}: no host has such a rank, and "
                f"nothing would be shown; the job has {self.world_size} ranks, numbered on each host from 0"
            )
        self._check_target()

    def _check_target(self) -> None:
        here = current_folder()
        if self.module and self.target.endswith(".py") and os.path.exists(self.target):
            raise LaunchError(f"-m takes a module's name: give {self.target[:-3]}, or leave out -m")
        if self.module:
            # The top-level name only: looking deeper would import the user's package here.
            top = self.target.partition(".")[0]
            # All finders are asked: packages that are installed to be edited have some of their own.
            found = (self.as_torch and top == "torch") or PathFinder.find_spec(top, [str(here)])
            if not found and not any(finder.find_spec(top, None) for finder in sys.meta_path):
                raise LaunchError(f"no module named {top!r} in {here} or on Python's path")
        elif not os.path.exists(self.target):  # no error for a name that no file can have, as Path's is
            raise LaunchError(f"script {self.target} does not exist (looked in {here})")
        elif not Path(self.target).is_file():
            raise LaunchError(f"script {self.target} is not a file")

    @property
    def awaits_nodes(self) -> bool:
        """Whether other ddprun instances have yet to join; their processes are not counted here."""
        return self.nnodes > 1 and not self.slurm and self.nodes is None

    def ranks(self, proc: int) -> range:
        """The ranks that process `proc` hosts."""
        return environment.ranks_of(proc, self.procs, self.world_size)

    def shown(self) -> Screen:
        """The selection of output by ranks of the job. Where Slurm chooses the hosts, it deals equally many to each."""
        if self.hosts:
            dealt = [procs for _, procs in deal(self.hosts, self.procs)]
        else:
            each = self.procs // self.nnodes if self.slurm else self.procs
            dealt = [range(begin, begin + each) for begin in range(0, self.procs, each)]
        return self.screen.of_ranks(
            range(self.ranks(procs[0])[0], self.ranks(procs[-1])[-1] + 1) for procs in dealt
        )

    def environment(self, proc: int | None) -> dict[str, str]:
        """The environment of process `proc`; None: of a process that learns its number from MPI."""
        variables = {
            "WORLD_SIZE": str(self.world_size),
            "DDPGRAD_JOB": self.job,
            "DDPGRAD_PROCS": str(self.procs),
            # ddpgrad needs no address; scripts written for torchrun read one.
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "DDPRUN_RESTART_COUNT": str(self.restart_count),
            "TORCHELASTIC_RESTART_COUNT": str(self.restart_count),
            "DDPGRAD_SNAPSHOTS": self.snapshots,
        }
        if self.as_torch:
            variables["DDPGRAD_AS_TORCH"] = "1"
        if self.debug:
            variables["DDPGRAD_DEBUGGER"] = "1"
        if self.only_rank is not None:
            variables["DDPGRAD_ONLY_RANK"] = str(self.only_rank)
        if self.config:
            variables["DDPGRAD_CONFIG"] = self.config
        if self.trace is not None:
            variables["DDPGRAD_TRACE"] = str(self.trace.absolute())
        if self.verify:
            variables["DDPGRAD_VERIFY"] = str(self.verify)
        if self.timeout is not None:
            variables["DDPGRAD_TIMEOUT"] = f"{self.timeout:g}"
        result = environment.child_environment(**variables)
        result.pop("DDPGRAD_PROC", None)  # an outer job's
        if proc is not None:
            result["DDPGRAD_PROC"] = str(proc)
        for name in environment.THREADS:
            # N processes with a thread pool each on every core would slow one another down.
            if self.threads is not None:
                result[name] = str(self.threads)
            else:
                result.setdefault(name, "1")
        return result

    def command(self, report: str, *, agent: bool = False) -> list[str]:
        """The command line of one process; `report` is the address of the launcher's channel (see `failure/channel.py`).

        agent: with an agent before it (see agent.py), where the launcher does not start it itself.
        """
        # -P: modules in the working directory must not shadow those of the launcher.
        if not agent:
            begin = ["ddpgrad.launcher.job.process_main", report]
        else:
            begin = [
                "ddpgrad.launcher.job.agent_proxy" if self.hosts else "ddpgrad.launcher.job.agent",
                report,
                self.job,
            ]
        return [sys.executable, "-P", "-m", *begin, *self.program]

    def spare_command(self, report: str, control: int) -> list[str]:
        """The command line of a process that waits to become one of the job; see preloading.py."""
        return [sys.executable, "-P", "-m", "ddpgrad.launcher.job.preloading", str(control), report]

    @property
    def program(self) -> list[str]:
        """The program and its arguments, as process_main.py takes them."""
        return ["module" if self.module else "script", self.target, *self.arguments]


def new_job() -> dict[str, Any]:
    """The fields of a Plan that no two attempts share."""
    return {"job": secrets.token_hex(6), "port": free_port()}


def current_folder() -> Path:
    """The folder that this process is in. LaunchError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise LaunchError("the current folder does not exist any more: cd to one that does") from None


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def label(ranks: range) -> str:
    """'rank 3' or 'ranks 4-7'."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
