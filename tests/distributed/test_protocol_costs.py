"""What the protocol costs with more and more ranks: its own code, over a simulated network (`cluster/simulated_job.py`)."""

from math import ceil, log2

import numpy as np
import pytest
import simulated_job
import simulated_mpi
from matrices import thinned
from simulation import Simulation

from ddpgrad.distributed.communicator.communicator import Alone, Communicator
from ddpgrad.distributed.protocol import tree


@pytest.mark.parametrize(
    "ranks", [2, 7, 40, 128, pytest.param(1_000, marks=pytest.mark.full)], ids="{}-ranks".format
)
def test_a_barrier_takes_the_logarithm_of_the_ranks(ranks):
    found = simulated_job.barrier(ranks)
    assert found.rounds == ceil(log2(ranks))
    assert found.messages == 2 * found.rounds


@pytest.mark.parametrize(
    "ranks", [40, 128, pytest.param(1_000, marks=pytest.mark.full)], ids="{}-ranks".format
)
def test_an_agreement_takes_the_logarithm_of_the_ranks(ranks):
    found = simulated_job.agreement(ranks)
    assert found.rounds <= 3 * ceil(log2(ranks))
    assert found.messages <= 4 * ceil(log2(ranks))


def test_a_checkpoint_takes_the_logarithm_of_the_ranks_but_for_what_rank_0_has_to_write():
    few, many = simulated_job.checkpoint(40), simulated_job.checkpoint(80)
    doublings = log2(80) / log2(40)
    assert many.messages < 1.2 * doublings * few.messages
    assert many.rounds < 1.2 * doublings * few.rounds
    assert many.nbytes < 1.2 * 2 * few.nbytes  # the states of all ranks' generators


def test_a_meeting_costs_a_rank_as_much_whatever_their_number():
    """All ranks know one address only: who is there answers each of them, but no more."""
    few, many = simulated_job.meeting(32), simulated_job.meeting(128)
    assert many.messages < 1.2 * 4 * few.messages
    assert many.nbytes < 1.2 * 4 * few.nbytes


@pytest.mark.parametrize(
    ("op", "dtype"),
    thinned([("sum", np.float32), ("avg", np.float16), ("max", np.int64)], ("avg", np.float16)),
)
def test_a_small_sum_of_many_ranks_has_the_bits_of_every_other(op, dtype):
    """33 to 77 ranks go up a tree of processes; of some numbers parts of the tree over ranks are missing."""
    for ranks in (33, 37, 64, 77):
        arrays = [
            (np.random.default_rng(rank).standard_normal(9) * 100).astype(dtype) for rank in range(ranks)
        ]
        expected = [array.copy() for array in arrays]
        tree.reduce_into(expected, [array.copy() for array in arrays], op)
        simulation = Simulation()
        with simulated_mpi.joined(simulated_mpi.World(simulation, ranks)) as make:

            def program(rank: int) -> None:
                Communicator(rank, ranks, "mpi", Alone(make(rank))).all_reduce(arrays[rank], op)  # noqa: B023

            simulation.run(program, ranks)
        for array in arrays:
            np.testing.assert_array_equal(array, expected[0])
