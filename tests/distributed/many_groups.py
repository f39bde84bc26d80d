"""Groups that come and go; an MPI library has room for 2,000 communicators or so at a time, most of which are taken here."""

from mpi4py import MPI

import ddpgrad as torch
import ddpgrad.distributed as dist

dist.init_process_group("mpi")
taken = [MPI.COMM_SELF.Dup() for _ in range(1900)]
for _ in range(100):
    group = dist.new_group(backend="mpi")
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    assert total.item() == 2
    dist.destroy_process_group(group)
print("ok")
