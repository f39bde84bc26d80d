"""Groups that come and go; an MPI library has room for 2,000 communicators or so at a time."""

import ddpgrad as torch
import ddpgrad.distributed as dist

dist.init_process_group("mpi")
for number in range(1000):
    group = dist.new_group()
    if number % 100 == 0:
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
        assert total.item() == 2
    dist.destroy_process_group(group)
print("ok")
