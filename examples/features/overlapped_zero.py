"""Optimizer state divided among the ranks, updated within backward: `ddprun -n 2 examples/features/overlapped_zero.py`.

Each rank keeps the optimizer state of its parameters alone. As soon as a bucket has its average, its parameters are updated
and sent, while other gradients are still computed. Gradients travel in bfloat16 here, which `bf16_compress_wrapper` does.
"""

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step_interleaved
from ddpgrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_wrapper
from ddpgrad.distributed.optim import ZeroRedundancyOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(
    *[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())], nn.Linear(64, 1)
)
model = DistributedDataParallel(model, bucket_cap_mb=0.02)
zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, overlap_with_ddp=True, lr=3e-3)
model.register_comm_hook(
    None, hook_with_zero_step_interleaved(bf16_compress_wrapper(allreduce_hook), model, zero)
)

x = torch.randn(64, 64)
x, y = x.chunk(ranks)[rank], x[:, :8].sum(1, keepdim=True).chunk(ranks)[rank]
for _ in range(60):
    model.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()  # a whole step; the first two only show in which order gradients come

kept = sum(t.numel() for state in zero.optim.state.values() for t in state.values() if t.ndim)
both = 2 * sum(p.numel() for p in model.parameters())
print(f"rank {rank}: loss {loss.item():.4f}, keeps {kept} of {both} numbers of AdamW's state")
dist.destroy_process_group()
