"""Divide a model among the ranks: `ddprun -n 2 examples/features/fully_shard.py`.

Each rank keeps its rows of the parameters, gradients and optimizer state; a block is whole only while it computes.
Losses and weights have the bits that DistributedDataParallel gives them.
"""

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(4)], nn.Linear(32, 10))
for block in model[:4]:  # the parts first, what is left with the whole
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

x, y = torch.randn(64, 32), torch.randint(0, 10, (64,))
for _ in range(20):
    loss = F.cross_entropy(model(x.chunk(ranks)[rank]), y.chunk(ranks)[rank])
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

mine = sum(p.to_local().numel() for p in model.parameters())
weights = {name: value.full_tensor() for name, value in model.state_dict().items()}  # on all ranks together
if rank == 0:
    print(f"loss {loss.item():.4f}, norm {norm.item():.4f}")
    print(f"rank 0 keeps {mine} of {sum(w.numel() for w in weights.values())} parameters")
dist.destroy_process_group()
