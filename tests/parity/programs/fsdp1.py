"""Ten steps under FullyShardedDataParallel on two ranks, by several policies; writes what rank 0 finds.

The same program for PyTorch and, with --as-torch, for ddpgrad.
"""

import json
import sys
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

POLICIES = {
    "none": None,
    "classes": ModuleWrapPolicy({nn.Linear}),
    "size": partial(size_based_auto_wrap_policy, min_num_params=500),
    "transformer": partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear, nn.Embedding}),
}


def train(policy, strategy):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 40), nn.GELU(), nn.Linear(40, 9))
    net = FSDP(
        net,
        auto_wrap_policy=policy,
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x, y = (torch.randint(0, 9, (12, 7)).chunk(2)[dist.get_rank()] for _ in range(2))
    told = []
    for _ in range(10):
        optimizer.zero_grad()
        with net.no_sync():
            loss = nn.functional.cross_entropy(net(x[:2]).reshape(-1, 9), y[:2].reshape(-1))
            loss.backward()
        loss = nn.functional.cross_entropy(net(x[2:]).reshape(-1, 9), y[2:].reshape(-1))
        loss.backward()
        told += [loss.item(), net.clip_grad_norm_(0.5).item()]
        optimizer.step()
    with FSDP.summon_full_params(net):
        told += [value.item() for p in net.parameters() for value in p.detach().flatten()[:3]]
    with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
        states = net.state_dict(), FSDP.optim_state_dict(net, optimizer)
    told += [[name, list(value.shape)] for name, value in states[0].items()]
    told += [sorted(states[1]["state"]), *(sorted(group["params"]) for group in states[1]["param_groups"])]
    told += [value.item() for tensor in states[0].values() for value in tensor.flatten()[:3]]
    return told


def main():
    dist.init_process_group("gloo")
    found = {
        f"{name} {strategy.name}": train(policy, strategy)
        for name, policy in POLICIES.items()
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP)
    }
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
