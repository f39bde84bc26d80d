"""Programs as users of fully_shard write them (torchtitan, PyTorch's tutorial), on four ranks; rank 0 writes what it finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import itertools
import json
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    full,
    ones,
    zeros,
)

WORDS, WIDTH = 40, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(WIDTH, 24, bias=False), nn.Linear(WIDTH, 24, bias=False)
        self.w2 = nn.Linear(24, WIDTH, bias=False)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x):
        h = self.attention_norm(x)
        q, k, v = (w(h).unflatten(-1, (2, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.wo(h)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(3)})
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        h = self.tok_embeddings(x)
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h))

    def init_weights(self):
        for p in self.parameters():
            nn.init.trunc_normal_(p, mean=0.0, std=0.02 if p.ndim > 1 else 1.0)


def whole():
    torch.manual_seed(0)
    model = Transformer()
    model.init_weights()
    return model


def sharded(**options):
    model = whole()
    for layer in model.layers.values():
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def loss_of(model, step):
    drawn = torch.Generator().manual_seed(100 + dist.get_rank() + 10 * step)
    x = torch.randint(0, WORDS, (4, 9), generator=drawn)
    return F.cross_entropy(model(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten())


def values(model):
    return [value for p in model.parameters() for value in p.full_tensor().flatten().tolist()][::7]


def steps(model, count=3, clip=1.0):
    optimizer, told = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(count):
        loss = loss_of(model, step)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        told += [loss.item(), norm.full_tensor().item()]
        optimizer.step()
        optimizer.zero_grad()
    return told + values(model)


def trainer():
    """As torchtitan applies it, and its training loop."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
    with torch.device("meta"):
        model = Transformer()
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.float32, torch.float32)}
    fully_shard(model.tok_embeddings, **options, reshard_after_forward=True)
    layers = list(model.layers.values())
    for i, layer in enumerate(layers):
        fully_shard(layer, **options, reshard_after_forward=i < len(layers) - 1)
    fully_shard([model.norm, model.output], **options, reshard_after_forward=False)
    fully_shard(model, **options)
    model.tok_embeddings.set_modules_to_forward_prefetch([layers[0]])
    for one, other in itertools.pairwise(layers):
        one.set_modules_to_forward_prefetch([other])
        other.set_modules_to_backward_prefetch([one])
    model.to_empty(device="cpu")
    given = whole().state_dict()
    with torch.no_grad():
        model.init_weights()
        for name, p in model.named_parameters():
            p.copy_(distribute_tensor(given[name], p.device_mesh, p.placements))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), foreach=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))
    told = []
    for step in range(5):
        optimizer.zero_grad()
        for micro in range(2):
            model.set_is_last_backward(micro == 1)
            model.set_requires_gradient_sync(micro == 1)
            loss = loss_of(model, 2 * step + micro) / 2
            loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients, 2.0, foreach=True)
        if isinstance(norm, DTensor):
            norm = norm.full_tensor()
        nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm, foreach=True)
        optimizer.step()
        scheduler.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        told += [norm.item(), mean.item()]
    return told + values(model)


def tutorial():
    """As PyTorch's tutorial loads a model that is made on meta, and saves it."""
    with torch.device("meta"):
        model = Transformer()
    for layer in model.layers.values():
        fully_shard(layer)
    fully_shard(model)
    own, given = model.state_dict(), {}
    for name, value in whole().state_dict().items():
        lies = own[name]
        given[name] = nn.Parameter(distribute_tensor(value, lies.device_mesh, lies.placements))
    model.load_state_dict(given, strict=False, assign=True)
    told = steps(model)
    return [*told, len(model.state_dict()), str(model.norm.weight.placements)]


def state_dicts():
    def made():
        model = sharded()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    model, optimizer = made()
    loss_of(model, 0).backward()
    optimizer.step()
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    of_model = states.get_model_state_dict(model, options=options)
    of_optimizer = states.get_optimizer_state_dict(model, optimizer, options=options)
    other, its = made()
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(other, of_model, options=options)
    states.set_optimizer_state_dict(other, its, of_optimizer, options=options)
    loss_of(other, 1).backward()
    its.step()
    return [sorted(of_model), sorted(of_optimizer.get("state", {})), *values(other)]


def hybrid():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    model, told = sharded(mesh=mesh["dp_replicate", "dp_shard"]), []
    for micro in range(2):
        model.set_requires_all_reduce(micro == 1)
        loss = loss_of(model, micro)
        loss.backward()
        told.append(loss.item())
    return told + steps(model)


def among_two():
    return steps(sharded(reshard_after_forward=2))


def by_columns():
    def choose(p):
        return Shard(1) if p.ndim == 2 else None

    model = sharded(shard_placement_fn=choose)
    lies = [[str(p.placements), list(p.shape), list(p.to_local().shape)] for p in model.parameters()]
    return lies + steps(model)


def checkpointed():
    model = whole()
    for name, layer in list(model.layers.items()):
        model.layers[name] = fully_shard(checkpoint_wrapper(layer, preserve_rng_state=False))
    fully_shard(model)
    told = steps(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [
        sorted(model.state_dict()),
        sorted(states.get_model_state_dict(model)),
        *told,
        len(optimizer.param_groups[0]["params"]),
    ]


def adapters():
    """Frozen weights, and small ones that are trained."""

    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.a = base, nn.Linear(base.in_features, 2, bias=False)
            self.b = nn.Linear(2, base.out_features, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    model = whole()
    torch.manual_seed(3)
    for layer in model.layers.values():
        layer.wq, layer.wv = Adapted(layer.wq), Adapted(layer.wv)
    for name, p in model.named_parameters():
        p.requires_grad_(".a." in name or ".b." in name)
    for layer in model.layers.values():
        fully_shard(layer)
    fully_shard(model)
    told = steps(model)
    return [sum(p.requires_grad for p in model.parameters()), *told]


def averages():
    """An average of the weights, an optimizer by hand, and evaluation between steps."""
    model, told = sharded(), []
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    moments = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(3):
        loss_of(model.train(), step).backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                moments[name].mul_(0.9).add_(p.grad * p.grad, alpha=0.1)
                p.sub_(0.01 * p.grad / (moments[name].sqrt() + 1e-3))
                average[name].lerp_(p, 0.1)
                p.grad = None
            told += [
                loss_of(model.eval(), 9).item(),
                (model.layers["0"].ffn_norm.weight - average["layers.0.ffn_norm.weight"])
                .norm()
                .full_tensor()
                .item(),
            ]
    return told + [value for p in average.values() for value in p.full_tensor().flatten().tolist()][::7]


def methods():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

        def encode(self, x):
            return torch.tanh(self.net(x))

        def forward(self, x):
            return self.head(self.encode(x))

    torch.manual_seed(0)
    model = fully_shard(Encoder())
    register_fsdp_forward_method(model, "encode")
    told, seen = [], []
    model.unshard(async_op=True).wait()
    told.append(isinstance(model.net.weight, DTensor))
    model.reshard()
    told.append(isinstance(model.net.weight, DTensor))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: seen.append(list(p.grad.shape)))
    model.set_reshard_after_backward(False)
    model.set_force_sum_reduction_for_comms(True)  # Gloo has no other for the factor
    model.set_gradient_divide_factor(8.0)
    model.encode(torch.ones(2, 8) * (1 + dist.get_rank())).sum().backward()
    told.append(isinstance(model.net.weight, DTensor))
    model.reshard()
    return [*told, sorted(seen), model.net.weight.grad.full_tensor().tolist(), model.head.weight.grad is None]


def branches():
    """Ranks that use different parameters."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.parts = nn.ModuleDict({name: nn.Linear(4, 4) for name in "abc"})

        def forward(self, x, name):
            return self.parts[name](self.parts["a"](x))

    model = fully_shard(Branches())
    model.set_reduce_scatter_unused_params(True)
    model(torch.ones(2, 4), "b" if dist.get_rank() else "c").sum().backward()
    return [p.grad.full_tensor().tolist() for p in model.parameters()]


def tensors():
    mesh, told = init_device_mesh("cpu", (dist.get_world_size(),)), []
    mine = torch.arange(4.0) + dist.get_rank()
    made = [zeros(6, 4, device_mesh=mesh, placements=[Shard(0)]), full((4,), 3.5, device_mesh=mesh)]
    made += [
        ones((5, 3), device_mesh=mesh, placements=[Shard(0)]),
        DTensor.from_local(mine, mesh, [Partial("avg")]),
    ]
    made += [
        DTensor.from_local(mine, mesh, [Partial()]).redistribute(placements=[lies])
        for lies in (Replicate(), Shard(0))
    ]
    torch.manual_seed(0)
    x, y = (distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)]) for _ in range(2))
    made += [
        x + y,
        x - 1,
        2 * x,
        x / y,
        -x,
        x.abs().sqrt(),
        x.pow(2),
        x.exp(),
        x.clamp(min=0),
        (x > y).float(),
        torch.ones_like(x),
    ]
    made += [
        x.sum(),
        x.mean(),
        x.norm(),
        x.max(),
        x.isnan().any(),
        x.sum(1),
        x.redistribute(placements=[Replicate()]) + 1,
    ]
    made += distribute_module(nn.BatchNorm1d(2), mesh).parameters()
    for t in made:
        told += [isinstance(t, DTensor), list(t.shape), t.full_tensor().tolist()]
    return [*told, str([t.placements for t in made[:6]])]


PROGRAMS = [
    trainer, tutorial, state_dicts, hybrid, among_two, by_columns, checkpointed, adapters, averages, methods, branches, tensors,
]  # fmt: skip

if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {}
    for program in PROGRAMS:
        found[program.__name__] = program()
        dist.barrier()
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()
