"""What `fully_shard` does with parameters on GPUs, as a program; every rank prints what it has found, in JSON.

sharded_on_gpus.py BACKEND
"""

import gc
import json
import sys
from typing import Any

from replicas import perceptron
from sharded import CASES, adamw, batch, build, digest, loss_of, sharded, trained

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

STEPS = 5
SIZE = 1 << 18
"""Bytes of a layer's parameters in `memory`."""
LAYERS = 8


def both(case: str) -> list[list[Any]]:
    """Losses, norms and the digest of the parameters, under DistributedDataParallel and divided."""
    return [trained(divided, STEPS, device="cuda", **CASES[case]) for divided in (False, True)]


def perceptrons() -> list[list[Any]]:
    """Losses, norms and the digest of a perceptron, likewise. Of some of its parameters not every rank has rows."""
    found = []
    for divided in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(perceptron(), nn.Linear(4, 1)).cuda()
        net = fully_shard(model) if divided else DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(100 + dist.get_rank())
        told: list[Any] = []
        for _ in range(STEPS):
            loss = net(torch.randn(8, 6).cuda()).square().mean()
            loss.backward()
            told += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 0.1).item()]
            optimizer.step()
            optimizer.zero_grad()
        found.append([*told, digest(model)])
    return found


def in_16_bits() -> list[Any]:
    """Losses and the digest where groups compute in bfloat16; parts and their gradients have 32 bits."""
    model = sharded(build(device="cuda"), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    optimizer, told = adamw(model.parameters()), []
    for _ in range(STEPS):
        loss = loss_of(model, batch("cuda"))
        loss.backward()
        told.append(loss.item())
        optimizer.step()
        assert {(p.grad.dtype, p.grad.device.type) for p in model.parameters()} == {(torch.float32, "cuda")}
        optimizer.zero_grad()
    return [*told, digest(model)]


def held() -> int:
    gc.collect()
    return torch.cuda.memory_allocated()


def memory() -> dict[str, float]:
    """What a rank that has a GPU to itself holds there, in layers: all of them divided, one gathered, at most in forward ..."""
    x = torch.randn(1, 256).cuda()
    (x @ torch.ones(256, 256).cuda()).sum()  # libraries keep what they need for products
    started, found = held(), {"forward": 0.0}

    def note(moment: str) -> None:
        found[moment] = max(found.get(moment, 0.0), (held() - started) / SIZE)

    model = nn.Sequential(*[nn.Linear(256, SIZE // 1024, bias=False) for _ in range(LAYERS)]).cuda()
    for layer in model:
        fully_shard(layer)
        layer.register_forward_pre_hook(lambda *_: note("forward"))
    fully_shard(model)
    note("divided")
    model[0].unshard()
    note("gathered")
    model[0].reshard()
    note("resharded")
    loss = model(x).sum()
    note("after forward")
    loss.backward()
    note("after backward")
    return found


if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    result = {
        **{case: both(case) for case in CASES},
        "perceptron": perceptrons(),
        "16 bits": in_16_bits(),
        "memory": memory(),
        "rank": dist.get_rank(),
    }
    sys.stdout.write(f"found {json.dumps(result)}\n")
    dist.destroy_process_group()
