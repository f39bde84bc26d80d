"""Fifty steps of a sharded model on two ranks, offloaded and with 16-bit gathering, too; writes what rank 0 finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 27), nn.Linear(27, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), Block(10), Block(10), nn.Linear(10, 3))


def train(steps, policy=None, normalised=True, wide=False, offload=None):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    options = {
        "mesh": mesh,
        "mp_policy": policy or MixedPrecisionPolicy(),
        "offload_policy": offload or OffloadPolicy(),
    }
    net = model()
    if not normalised:
        net[1].norm = net[2].norm = nn.Identity()
    if wide:
        net.double()
    for part in net:
        if isinstance(part, Block):
            fully_shard(part, **options)
    fully_shard(net, **options)
    # Adam turns the rounding of a gradient near zero into a whole step.
    rounded = policy is not None or wide
    optimizer = (torch.optim.SGD if rounded else torch.optim.AdamW)(
        net.parameters(), lr=1e-1 if rounded else 1e-2
    )
    torch.manual_seed(1)
    x, y = torch.randn(24, 6), torch.randint(0, 3, (24,))
    x = x.double() if wide else x
    share = slice(dist.get_rank() * 12, dist.get_rank() * 12 + 12)
    found = []
    for _ in range(steps):
        out = net(x[share])
        loss = torch.nn.functional.cross_entropy(out if wide else out.float(), y[share])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    for p in net.state_dict().values():
        local = p.to_local()
        found += [list(p.shape), list(local.shape), str(p.placements[0])]
        found += p.full_tensor().flatten().tolist()
    return found


dist.init_process_group("gloo")
bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fp16 = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
results = {
    "plain": train(50),
    "offloaded": train(50, offload=CPUOffloadPolicy(pin_memory=False)),
    # PyTorch's layer norm keeps means and deviations in 16 bits for backward, which rounds otherwise.
    "bfloat16 with norms": train(20, policy=bf16),
    "bfloat16": train(50, policy=bf16, normalised=False),
    "float16": train(20, policy=fp16, normalised=False),
    "float64": train(20, wide=True),
}
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(results, file)
dist.destroy_process_group()
