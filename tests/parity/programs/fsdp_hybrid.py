"""Steps on a mesh of 2 x 2 ranks, by fully_shard and FullyShardedDataParallel, and what the mesh says; writes what rank 3 finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def train(wrap, clip):
    torch.manual_seed(0)
    net = wrap(nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 7), nn.GELU(), nn.Linear(7, 3)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    torch.manual_seed(1)
    x, y = (t.chunk(4)[dist.get_rank()] for t in (torch.randn(24, 6), torch.randint(0, 3, (24,))))
    told = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        norm = clip(net)
        told += [loss.item(), (norm.full_tensor() if hasattr(norm, "full_tensor") else norm).item()]
        optimizer.step()
        optimizer.zero_grad()
    return net, told


def by_fully_shard(mesh):
    def wrap(net):
        fully_shard(net[2], mesh=mesh, reshard_after_forward=False)
        return fully_shard(net, mesh=mesh)

    net, told = train(wrap, lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5))
    for p in net.parameters():
        told += [[str(placement) for placement in p.placements], list(p.to_local().shape)]
        told += p.full_tensor().flatten().tolist()
    return told


def by_fsdp(mesh, strategy, **options):
    policy = ModuleWrapPolicy({nn.Linear})

    def wrap(net):
        return FSDP(
            net, auto_wrap_policy=policy, sharding_strategy=strategy, device_id=torch.device("cpu"), use_orig_params=True,
            **options,
        )  # fmt: skip

    net, told = train(wrap, lambda m: m.clip_grad_norm_(0.5))
    with FSDP.summon_full_params(net):
        return told + [value.item() for p in net.parameters() for value in p.detach().flatten()]


def divided_twice():
    """Tensor and sequence parallelism, then fully_shard on the other dimension of the mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(10, 6), nn.LayerNorm(6), nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10)
    )
    plan = {
        "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "1": SequenceParallel(),
        "2": ColwiseParallel(input_layouts=Shard(1)),
        "4": RowwiseParallel(),
    }
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model[2], mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    words = (torch.arange(24).reshape(4, 6) * 3 % 10).chunk(2)[mesh["dp"].get_local_rank()]
    told = [str([p.placements for p in model.parameters()])]
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        told += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor().item()]
        optimizer.step()
    return [*told, *[p.full_tensor().tolist() for p in model.parameters()]]


def facts(mesh):
    told = [
        mesh.ndim,
        list(mesh.shape),
        mesh.size(),
        mesh.size(1),
        list(mesh.mesh_dim_names),
        mesh.get_coordinate(),
    ]
    told += [mesh.get_local_rank("shard"), mesh.get_local_rank(0), mesh.get_rank(), mesh.mesh.tolist()]
    told += [dist.get_process_group_ranks(mesh.get_group(dim)) for dim in (0, 1, "shard")]
    for part in (mesh["shard"], mesh["replicate"], mesh["replicate", "shard"], mesh._flatten()):
        told += [part.ndim, part.mesh.tolist(), list(part.mesh_dim_names), part.size(), part.get_coordinate()]
    again = DeviceMesh.from_group(mesh.get_all_groups(), "cpu", mesh.mesh, mesh_dim_names=mesh.mesh_dim_names)
    told += [again == mesh, again["shard"].mesh.tolist()]
    for placements in ([Replicate(), Shard(0)], [Shard(0), Replicate()], [Replicate(), Replicate()]):
        x = distribute_tensor(torch.arange(10.0).reshape(5, 2), mesh, placements)
        told += [x.to_local().tolist(), x.full_tensor().tolist(), list(x.shape)]
    return told


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    groups = mesh.get_group("shard"), mesh.get_group("replicate")
    found = {
        "facts": facts(mesh),
        "fully_shard": by_fully_shard(mesh),
        "HYBRID_SHARD": by_fsdp(mesh, ShardingStrategy.HYBRID_SHARD, device_mesh=mesh),
        "_HYBRID_SHARD_ZERO2": by_fsdp(mesh, ShardingStrategy._HYBRID_SHARD_ZERO2, process_group=groups),
    }
    found["divided_twice"] = divided_twice()
    if dist.get_rank() == 3:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
