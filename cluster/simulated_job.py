"""What the steps of a job's protocol cost with any number of ranks: its own code, over a simulated network."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simulated_mpi
import simulated_store
from simulation import Network, Simulation

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.core import rank_local
from ddpgrad.core.environment import Launch
from ddpgrad.distributed.ranks.world import HostedRank, World
from ddpgrad.launcher.checkpoint.checkpointer import Checkpointer

CLUSTER = Network(latency=10e-6, rate=12.5e9, handling=1e-6)
"""MPI between hosts, by 100 Gbit/s."""
SOCKETS = Network(latency=50e-6, rate=1.25e9, handling=20e-6)
"""TCP between Python programs, by 10 Gbit/s."""


@dataclass(frozen=True)
class Figures:
    """Virtual seconds; at the busiest process its messages and bytes, both ways; and the longest chain of messages."""

    ranks: int
    seconds: float
    messages: int
    nbytes: int
    rounds: int

    @classmethod
    def of(cls, simulation: Simulation, ranks: int) -> Figures:
        busiest = simulation.busiest()
        return cls(ranks, simulation.seconds, busiest.messages, busiest.nbytes, simulation.rounds())


def meeting(ranks: int, ranks_per_host: int = 8) -> Figures:
    """Ranks that nobody started together find each other at rank 0's store."""
    simulation = Simulation(SOCKETS)
    with simulated_store.meeting(simulation, ranks, ranks_per_host) as meet:
        simulation.run(meet, ranks)
    return Figures.of(simulation, ranks)


def over_mpi(step: Callable[[], object], ranks: int) -> Figures:
    """`step()` on all ranks of a world over MPI, each on a host of its own, when they have a process group."""
    simulation = Simulation(CLUSTER)
    hosted: list[HostedRank | None] = [None] * ranks

    def begin(rank: int) -> None:
        world = World(Launch(ranks, ranks, rank, mpi=True))
        world._chosen.update({None: "mpi", "mpi": "mpi"})
        world._transports["mpi"] = make(rank)
        world._ranks_here = [rank]
        hosted[rank] = world.hosted[0]
        as_rank(rank, lambda: dist.init_process_group("mpi"))

    def as_rank(rank: int, act: Callable[[], object]) -> None:
        here = hosted[rank]
        assert here is not None
        rank_local.bind(here)
        act()

    with simulated_mpi.joined(simulated_mpi.World(simulation, ranks)) as make:
        simulation.run(begin, ranks)
        simulation.forget()
        simulation.run(lambda rank: as_rank(rank, step), ranks)
    return Figures.of(simulation, ranks)


def barrier(ranks: int) -> Figures:
    """All learn that all have come, and are about to do the same: what comes before each collective."""
    return over_mpi(dist.barrier, ranks)


def agreement(ranks: int) -> Figures:
    """One number of each rank becomes one answer: `agree`, a small all-reduce."""

    def step() -> None:
        if dist.agree(dist.get_rank()) != ranks - 1:
            raise AssertionError("the ranks have agreed on something else")

    return over_mpi(step, ranks)


def large_sum(ranks: int) -> Figures:
    """An all-reduce of 4 MiB."""

    def step() -> None:
        whole = torch.ones(1 << 20)
        dist.all_reduce(whole)
        if not np.all(whole.numpy() == ranks):
            raise AssertionError("the sum is wrong")

    return over_mpi(step, ranks)


def checkpoint(ranks: int) -> Figures:
    """`Checkpointer.save` of a small model: rank 0 writes, and has the state of every rank's generators to write."""
    with tempfile.TemporaryDirectory() as folder:
        return over_mpi(lambda: Checkpointer(folder).save(1, model=torch.nn.Linear(4, 4)), ranks)


STEPS: dict[str, Callable[[int], Figures]] = {
    "meeting": meeting,
    "barrier": barrier,
    "agreement": agreement,
    "checkpoint": checkpoint,
    "sum of 4 MiB": large_sum,
}
