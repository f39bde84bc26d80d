"""The mean over all tokens, however they fall on the ranks: `ddprun -n 4 examples/features/exact_mean.py`.

Each rank's loss is a mean over its own sequences, of which ranks have different numbers. `loss_weight` tells how many.
"""

import zlib

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(64, 16), torch.randint(0, 8, (64,))
bounds = [64 * r * r // ranks**2 for r in range(ranks + 1)]  # the last rank has the most
mine = slice(bounds[rank], bounds[rank + 1])
early, late = x[mine].split([1, len(x[mine]) - 1])

for _ in range(20):
    optimizer.zero_grad()
    for part, target, more in ((early, y[mine][:1], True), (late, y[mine][1:], False)):
        model.require_backward_grad_sync = not more  # as within `no_sync`
        model.loss_weight(len(target))
        F.cross_entropy(model(part), target).backward()
    optimizer.step()

if rank == 0:
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(f"loss {F.cross_entropy(model.module(x), y):.4f}, weights {zlib.crc32(weights):08x}")
dist.destroy_process_group()
