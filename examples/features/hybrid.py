"""A model divided within each half of the ranks and replicated over both: `ddprun -n 4 examples/features/hybrid.py`.

Rows of parameters go between the ranks of a half only, say those of a host; gradients are averaged over all. The checkpoint is
read by any number of ranks, here by plain DistributedDataParallel, which goes on with the same bits.
"""

import tempfile

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel

dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
x = torch.arange(8.0 * 16).reshape(8, 16).sin().chunk(ranks)[rank]


def train(model: nn.Module, steps: int) -> nn.Module:
    """The model after so many steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    return model


torch.manual_seed(0)
divided = train(fully_shard(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)), mesh=mesh), 20)
folder = dist.on_rank_zero(tempfile.mkdtemp)
dcp.save(divided.state_dict(), checkpoint_id=folder)
whole = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)))
state = whole.state_dict()
dcp.load(state, checkpoint_id=folder)
whole.load_state_dict(state)
train(divided, 20), train(whole, 20)
pairs = [(p.full_tensor(), q) for p, q in zip(divided.parameters(), whole.parameters(), strict=True)]
if rank == 0:
    kept = sum(p.to_local().numel() for p in divided.parameters())
    print(f"rank 0 keeps {kept} of {sum(q.numel() for _, q in pairs)} parameters; the bits of plain DDP: "
          f"{all(torch.equal(p, q) for p, q in pairs)}")  # fmt: skip
dist.destroy_process_group()
