"""A transformer under tensor, sequence and loss parallelism, as users write it, on two ranks; rank 0 writes what it finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import copy
import json
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

WORDS, WIDTH, HEADS = 32, 16, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        lead = x.shape[:2]
        q, k, v = (one(x).view(*lead, -1, WIDTH // HEADS).transpose(1, 2) for one in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(*lead, -1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.up, self.gate = nn.Linear(WIDTH, 40, bias=False), nn.Linear(WIDTH, 40, bias=False)
        self.down = nn.Linear(40, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.first_norm(x))
        y = self.second_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.out = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def whole(t):
    return t.full_tensor() if isinstance(t, DTensor) else t


def trained(model, parallel_loss=False, **options):
    """Losses, norms of gradients, and sums of parameters."""
    optimizer, told = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options), []
    for step in range(3):
        words = (torch.arange(16).reshape(2, 8) * (step + 3)) % WORDS
        optimizer.zero_grad()

        def loss(words=words):
            return F.cross_entropy(model(words).flatten(0, 1), words.roll(-1).flatten())

        if parallel_loss:
            with loss_parallel():
                found = loss()
                found.backward()
        else:
            found = loss()
            found.backward()
        norm = nn.utils.clip_grad_norm_([p for p in model.parameters() if isinstance(p, DTensor)], 1.0)
        optimizer.step()
        told += [whole(found).item(), whole(norm).item()]
    return told, [whole(p).double().abs().sum().item() for p in model.parameters()]


def simple(model, mesh):
    style = {f"attention.{name}": ColwiseParallel() for name in "qkv"} | {"attention.o": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            style | {"up": ColwiseParallel(), "gate": ColwiseParallel(), "down": RowwiseParallel()},
        )
    return model


def by_sequence(model, mesh, parallel_loss=False):
    outer = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "out": ColwiseParallel(
            input_layouts=Shard(1),
            output_layouts=Shard(-1) if parallel_loss else Replicate(),
            use_local_output=not parallel_loss,
        ),
    }
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    inner = {
        "first_norm": SequenceParallel(),
        "second_norm": SequenceParallel(),
        "attention": gathered,
        "attention.[qkv]": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=Shard(1)),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "gate": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, outer)
    for block in model.blocks:
        parallelize_module(block, mesh, inner)
    return model


def arithmetic(mesh):
    """Values and gradients of expressions, for operands that lie anyhow."""
    torch.manual_seed(1)
    a, b, c = (torch.randn(*size, dtype=torch.float64) for size in ((4, 6), (4, 6), (6, 5)))
    b = b.abs() + 0.5
    told = []
    expressions = [
        lambda x, y, z: (x * y + 1).exp().mean(0) @ z,
        lambda x, y, z: F.layer_norm(x @ z, (5,)).softmax(-1).sum(1),
        lambda x, y, z: torch.cat([x, y.t().reshape(4, 6)], 1).view(4, 3, 4).transpose(0, 1)[1:].amax(2),
        lambda x, y, z: (x - x.mean(1, keepdim=True)).cumsum(0).sort(1)[0][:, ::2].norm(),
        lambda x, y, z: torch.where(x > 0, x / y, y.log()).logsumexp(0) + z.t().sum(0),
        lambda x, y, z: F.gelu(F.linear(x, z.t(), z[0])).var(0) * z.square().sum(),
    ]
    places = [Shard(0), Shard(1), Replicate()]
    for expression in expressions:
        for i in range(9):
            operands = [
                distribute_tensor(value, mesh, [place]).requires_grad_()
                for value, place in ((a, places[i % 3]), (b, places[i // 3]), (c, places[(i + i // 3) % 3]))
            ]
            found = expression(*operands)
            (found * found).sum().backward()
            told.append(
                [whole(found).tolist()] + [whole(x.grad).tolist() for x in operands if x.grad is not None]
            )
    part = DTensor.from_local(torch.ones(2, 2) * (dist.get_rank() + 1), mesh, [Partial()])
    with implicit_replication():
        told.append(whole((part + torch.ones(2, 2)) * 2 - part @ torch.eye(2)).tolist())
    return told


def main(file):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Words()
    told = {"arithmetic": arithmetic(mesh), "simple": trained(simple(copy.deepcopy(model), mesh))}
    told["by sequence"] = trained(by_sequence(copy.deepcopy(model), mesh))
    told["loss, too"] = trained(by_sequence(copy.deepcopy(model), mesh, True), parallel_loss=True)
    told["foreach"] = trained(by_sequence(copy.deepcopy(model), mesh), foreach=True)
    block = parallelize_module(
        Block(),
        mesh,
        {
            "attention": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
            "first_norm": SequenceParallel(use_local_output=True),
        },
    )
    told["state"] = [[name, list(value.shape)] for name, value in block.state_dict().items()]
    if dist.get_rank() == 0:
        with open(file, "w") as out:
            json.dump(told, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
