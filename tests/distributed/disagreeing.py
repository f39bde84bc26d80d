"""The last rank does something else than the others, who sum three times; prints what each rank is told.

    disagreeing.py FAULT TRANSPORT|auto [HOSTS]

FAULT "plain" does the same as "dtype" through MPI itself, and prints what that says is the sum.
"""

import sys

import contract

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import DistributedError

fault, transport = sys.argv[1], sys.argv[2]


def train(wrong: bool) -> None:
    """Sums a weight, a bias and a loss, as the others do; or not."""
    weight, bias, op = torch.ones(8), torch.ones(8), dist.ReduceOp.SUM
    if wrong and fault == "shape":
        weight = torch.ones(2, 4)
    if wrong and fault == "dtype":
        weight = torch.ones(8, dtype=torch.int32)
    if wrong and fault == "op":
        op = dist.ReduceOp.MAX
    dist.barrier()
    if wrong and fault == "early exit":
        return
    if wrong and fault == "swapped order":
        dist.all_reduce(bias)
    if not (wrong and fault == "missing call"):
        dist.all_reduce(weight, op)
    if not (wrong and fault == "swapped order"):
        dist.all_reduce(bias)
    dist.all_reduce(torch.ones(()))
    print(f"[{dist.get_rank()}] summed: {weight.tolist()}", flush=True)


def by_mpi() -> None:
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    array = np.ones(8, np.int32 if comm.rank == comm.size - 1 else np.float32)
    comm.Allreduce(MPI.IN_PLACE, array)
    print(f"[{comm.rank}] summed: {array.tolist()}", flush=True)


if fault == "plain":
    by_mpi()
    sys.exit(0)
if len(sys.argv) > 3:
    contract.pretend_hosts(int(sys.argv[3]))
dist.init_process_group(None if transport == "auto" else transport)
try:
    train(dist.get_rank() == dist.get_world_size() - 1)
except DistributedError as error:
    print(f"[{dist.get_rank()}] {type(error).__name__}: {error}", flush=True)
    raise
