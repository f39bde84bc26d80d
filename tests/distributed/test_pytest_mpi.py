"""Tests that run on several MPI processes (pytest-mpi), and the test that starts them.

`mpiexec -n 2 python -m pytest --only-mpi tests/distributed` runs the marked ones; in an ordinary run
they are skipped, and `test_start_the_marked_tests` does just that.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

MARKED = 2


def test_start_the_marked_tests():
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    mpiexec = shutil.which("mpiexec", path=here)
    if mpiexec is None:
        pytest.skip("no mpiexec on PATH: pip install 'ddpgrad[mpich]'")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=600).stdout
    flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in version else []
    command = [mpiexec, *flags, "-n", "2", sys.executable, "-m", "pytest", "--only-mpi"]
    done = subprocess.run(
        [*command, "-v", "-p", "no:cacheprovider", __file__], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(f"{MARKED} passed") == 2, done.stdout[-3000:]  # on each process


@pytest.fixture
def group():
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


@pytest.mark.mpi(min_size=2)
def test_collectives_on_tensors(group: None):
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (rank, size, "mpi")
    x = torch.full((3,), rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [size * (size + 1) / 2] * 3
    rows = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(rows, torch.tensor([rank, -rank]))
    assert [r.tolist() for r in rows] == [[r, -r] for r in range(size)]
    told = [{"rank": rank}] if rank == 1 else [None]
    dist.broadcast_object_list(told, src=1)
    assert told == [{"rank": 1}]


@pytest.mark.mpi(min_size=2)
def test_gradients_are_averaged(group: None):
    torch.manual_seed(dist.get_rank())  # different at first; DDP takes over rank 0's
    model = nn.Linear(3, 2)
    ddp = DistributedDataParallel(model)
    ddp(torch.full((1, 3), float(dist.get_rank()))).sum().backward()
    mean = (dist.get_world_size() - 1) / 2
    np.testing.assert_allclose(model.weight.grad.numpy(), np.full((2, 3), mean))
