"""One contract for all transports: right results, and the same bits whatever the processes."""

from __future__ import annotations

import re
from functools import cache

import collective_contract
import pytest

from ddpgrad.distributed import host

DIGEST = re.compile("[0-9a-f]{64}")


@cache
def digest_of_one_process(ranks: int) -> str:
    digests = host.simulate(lambda: collective_contract.check(host.current().communicator()), ranks)
    assert len(set(digests)) == 1
    return digests[0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8])
def test_ranks_of_one_process(ranks):
    assert len(digest_of_one_process(ranks)) == 64


@pytest.mark.parametrize(("ranks", "procs"), [(2, 2), (3, 2), (4, 2), (4, 4)])
def test_shared_memory(start_job, ranks, procs):
    for process in start_job(ranks, procs, "collective_contract.py").ended():
        assert process.code == 0, process.output
        assert set(DIGEST.findall(process.output)) == {digest_of_one_process(ranks)}


@pytest.mark.parametrize("transport", ["mpi", "shm"])
@pytest.mark.parametrize(("ranks", "procs"), [(2, 2), (3, 2), (3, 3)])
def test_under_mpi(mpi_job, ranks, procs, transport):
    ended = mpi_job(ranks, procs, "collective_contract.py", transport)
    assert ended.code == 0, ended.output
    assert set(DIGEST.findall(ended.output)) == {digest_of_one_process(ranks)}
