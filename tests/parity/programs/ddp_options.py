"""Fifty steps on two ranks under the rarer options of DistributedDataParallel; prints what rank 0 finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import json
import sys
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

STEPS = 50


def model(dtype=torch.float32):
    torch.manual_seed(0)
    # Each gradient has a multiple of 512 elements: so the channels of quantisation begin alike, padding or not.
    return nn.Sequential(
        nn.Linear(32, 32, bias=False),
        nn.Tanh(),
        nn.Linear(32, 64, bias=False),
        nn.Tanh(),
        nn.Linear(64, 8, bias=False),
    ).to(dtype)


def train(prepare, dtype=torch.float32):
    """Losses, and parameters at the end. prepare(net) -> (model, optimizer or None)."""
    net = model(dtype)
    ddp, optimizer = prepare(net)
    torch.manual_seed(1)
    x, y = torch.randn(24, 32).to(dtype), torch.randint(0, 8, (24,))
    share = slice(dist.get_rank() * 12, dist.get_rank() * 12 + 12)
    found = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(ddp(x[share]).to(dtype), y[share])
        loss.backward()
        dist.barrier()  # PyTorch does not wait for delayed gradients
        if optimizer is not None:
            optimizer.step()
        net.zero_grad()
        found.append(float(loss.detach()))
    for p in net.parameters():
        assert p.dtype == dtype
        found += p.detach().flatten().tolist()
    return found


def sgd(**options):
    return lambda net: (
        DistributedDataParallel(net, **options),
        torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9),
    )


def mixed(*dtypes):
    def prepare(net):
        ddp, optimizer = sgd(mixed_precision=_MixedPrecision(*dtypes))(net)
        # What PyTorch 2.13 finds in .grad after the first backward pass on a CPU is memory that nobody wrote.
        ddp(torch.ones(1, 32)).sum().backward()
        net.zero_grad()
        return ddp, optimizer

    return train(prepare)


def delayed(net):
    named = [(name, p) for name, p in net.named_parameters() if name != "0.weight"]
    options = {"delay_all_reduce_named_params": named, "param_to_hook_all_reduce": net[0].weight}
    return sgd(**options)(net)


def hooked(hook, state=lambda: None):
    def prepare(net):
        ddp, optimizer = sgd()(net)
        ddp.register_comm_hook(state(), hook)
        return ddp, optimizer

    return prepare


def power():
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=5, min_compression_rate=1)


def local(averager):
    """Ranks that train alone from the tenth step on, and meet in an average from time to time."""

    def prepare(net):
        alone, _ = dist.new_subgroups(1)
        state = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=10)
        ddp, optimizer = hooked(post_localSGD_hook.post_localSGD_hook, lambda: state)(net)
        return ddp, PostLocalSGDOptimizer(optimizer, averager())

    return prepare


def overlapped(make, optimizer, static=False, **options):
    def prepare(net):
        ddp = DistributedDataParallel(net, static_graph=static)
        zero = ZeroRedundancyOptimizer(net.parameters(), optimizer, overlap_with_ddp=True, **options)
        with mock.patch.object(dist, "get_backend", lambda group: "any"):  # PyTorch's refuses Gloo
            hook = make(default_hooks.allreduce_hook, ddp, zero)
        ddp.register_comm_hook(None, hook)
        return ddp, None

    return prepare


class Gathered:
    """PyTorch's hooks of quantisation know the futures of NCCL only, which have one tensor."""

    def __init__(self, tensors, tensor, group, async_op):
        real_all_gather(tensors, tensor, group)
        self.tensors = tensors

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([torch.stack(self.tensors)])
        return future


real_all_gather = dist.all_gather


class Nothing:
    """PyTorch's mixed precision waits for streams, which its CPU has none of."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass

    def nothing(self, *args, **kwargs):
        pass

    record = wait = wait_stream = nothing


dist.init_process_group("gloo")
streams = (
    mock.patch.object(torch, "Stream", Nothing, create=True),
    mock.patch.object(torch, "Event", Nothing, create=True),
    mock.patch.object(torch.accelerator, "current_stream", Nothing, create=True),
)
adam = torch.optim.AdamW
theirs = hasattr(quantization_hooks, "dist")
gathering = mock.patch.object(dist, "all_gather", Gathered if theirs else real_all_gather)
results = {
    "static": train(sgd(static_graph=True)),
    "caps": train(sgd(bucket_cap_mb_list=[0.001, 0.01])),
    "views": train(sgd(gradient_as_bucket_view=True)),
    # In float32 the power iteration enlarges the rounding of each product.
    "power": train(hooked(powerSGD_hook.powerSGD_hook, power), torch.float64),
    "local": train(local(lambda: PeriodicModelAverager(period=4, warmup_steps=10))),
    "local, levels": train(local(lambda: HierarchicalModelAverager({4: 2}, warmup_steps=10))),
    "delayed": train(delayed),
    "zero": train(overlapped(ddp_zero_hook.hook_with_zero_step, torch.optim.SGD, lr=0.2, momentum=0.9)),
    "zero, static": train(overlapped(ddp_zero_hook.hook_with_zero_step, adam, static=True, lr=1e-2)),
    "zero, interleaved": train(overlapped(ddp_zero_hook.hook_with_zero_step_interleaved, adam, lr=1e-2)),
}
with streams[0], streams[1], streams[2]:
    results |= {
        "float64": mixed(torch.float64),
        "float64, reduced in float32": mixed(torch.float64, torch.float32),
        "bfloat16": mixed(torch.bfloat16, torch.float32),
        "bfloat16, reduced in it": mixed(torch.bfloat16),
        "float64, reduced in float16": mixed(torch.float64, torch.float16),
    }
with gathering:
    results |= {
        "per tensor": train(hooked(quantization_hooks.quantization_pertensor_hook), torch.float64),
        "per channel": train(hooked(quantization_hooks.quantization_perchannel_hook), torch.float64),
    }
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(results, file)
dist.destroy_process_group()
