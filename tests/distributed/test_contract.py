"""One contract for all transports and shapes of world: right results, and the same bits whatever the processes."""

import re
from functools import cache

import contract
import pytest
from matrices import thinned

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.distributed.ranks import host

DIGEST = re.compile("[0-9a-f]{64}")


@cache
def digest_of_one_process(ranks: int) -> str:
    digests = host.simulate(contract.check, ranks)
    assert len(set(digests)) == 1
    return digests[0]


@pytest.mark.parametrize("ranks", thinned([1, 4], 1))
def test_ranks_of_one_process(ranks):
    assert len(digest_of_one_process(ranks)) == 64


@pytest.mark.parametrize(("ranks", "procs"), thinned([(2, 2), (3, 2), (8, 3)], (3, 2)))
def test_shared_memory(start_job, ranks, procs):
    for process in start_job(ranks, procs, "contract.py", "auto").ended():
        assert process.code == 0, process.output
        assert set(DIGEST.findall(process.output)) == {digest_of_one_process(ranks)}


@pytest.mark.parametrize(("transport", "ranks", "procs"), thinned([("mpi", 5, 3), ("shm", 3, 2)]))
def test_under_mpi(mpi_job, ranks, procs, transport):
    ended = mpi_job(ranks, procs, "contract.py", transport)
    assert ended.code == 0, ended.output
    assert set(DIGEST.findall(ended.output)) == {digest_of_one_process(ranks)}


def test_groups_give_back_what_mpi_has_few_of(mpi_job):
    ended = mpi_job(2, 2, "many_groups.py")
    assert ended.code == 0, ended.output
    assert ended.output.count("ok") == 2


# pytest-mpi skips what is called mpi
@pytest.mark.parametrize("transport", thinned(["shm", "mpi"], "mpi"), ids="by-{}".format)
def test_what_does_not_fit_at_once_goes_in_pieces(mpi_job, transport):
    """2^31 elements and more, in small: every limit of a transport is 64 KiB, so that some fit and some do not."""
    ended = mpi_job(4, 2, "contract.py", transport, str(1 << 16))
    assert ended.code == 0, ended.output
    assert set(DIGEST.findall(ended.output)) == {digest_of_one_process(4)}


@pytest.mark.parametrize(
    ("ranks", "procs", "hosts", "limit"),
    thinned(
        [
            (6, 4, 2, "0"),  # hosts that have no part of the tree of their own
            (5, 3, 3, "65536"),
        ]
    ),
)
def test_several_hosts(mpi_job, ranks, procs, hosts, limit):
    ended = mpi_job(ranks, procs, "contract.py", "hierarchical", limit, str(hosts))
    assert ended.code == 0, ended.output
    assert set(DIGEST.findall(ended.output)) == {digest_of_one_process(ranks)}


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs GPUs, CuPy and NCCL")
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_between_gpus(start_job, ranks):
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    for process in start_job(ranks, ranks, "contract.py", "nccl").ended():
        assert process.code == 0, process.output
        assert set(DIGEST.findall(process.output)) == {digest_of_one_process(ranks)}


@pytest.mark.gpu
def test_models_on_gpus_get_the_same_bits_however_gradients_travel(start_job):
    digests = set()
    for backend, procs in (("gloo", 1), ("gloo", 2), ("nccl", 2)):
        if backend == "nccl" and (torch.cuda.device_count() < 2 or not dist.is_nccl_available()):
            continue
        for process in start_job(2, procs, "on_gpus.py", backend).ended():
            assert process.code == 0, process.output
            digests |= set(DIGEST.findall(process.output))
    assert len(digests) == 1
