"""Ranks that meet once in 20 steps, by 8 bits a parameter: `ddprun -n 4 examples/features/diloco.py`.

Between two meetings each rank trains on its own data by itself, as where the link between hosts is slow.
"""

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.algorithms.diloco import DiLoCo
from ddpgrad.distributed.optim import PostLocalSGDOptimizer

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
x = torch.randn(1024, 16)
y = teacher(x).argmax(1)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
averager = DiLoCo(model.parameters(), sync_every=20, should_quantize=True)
optimizer = PostLocalSGDOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), averager)

for _ in range(200):
    rows = torch.randint(0, 1024 // ranks, (32,)) * ranks + rank  # a rank sees its own share only
    optimizer.zero_grad()
    F.cross_entropy(model(x[rows]), y[rows]).backward()
    optimizer.step()
averager.synchronize()

right = (model(x).argmax(1) == y).float().mean().item()
if rank == 0:
    print(f"{right:.1%} right, on all {ranks} shares, after 10 meetings")
dist.destroy_process_group()
