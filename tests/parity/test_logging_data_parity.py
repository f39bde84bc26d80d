"""What DistributedDataParallel says of itself has PyTorch's names, and its values where they do not depend on the machine."""

import json
import os
import subprocess
import sys
from typing import Any

import torch

import ddpgrad

ALIKE = (
    "module_name world_size rank num_parameter_tensors total_parameter_size_bytes num_buckets_reduced bucket_sizes "
    "has_rebuilt_buckets rebuilt_bucket_sizes "
    "unused_parameter_size device_ids output_device is_multi_device_module find_unused_parameters has_sync_bn"
)
# Settings of Gloo's, CUDA's and PyTorch's own.
NOT_THERE = {
    "cuda_visible_devices", "gloo_device_transport", "gloo_num_threads", "gloo_socket_ifname", "torch_distributed_debug",
}  # fmt: skip


# PyTorch has waited, as one of these was freed, for a thread of Gloo's that waited for the interpreter.
KEPT: list[Any] = []


def told(t: Any) -> dict[str, Any]:
    t.distributed.init_process_group("gloo", store=t.distributed.HashStore(), rank=0, world_size=1)
    try:
        layers = [t.nn.Linear(6, 20), t.nn.Tanh(), t.nn.Linear(20, 4)]
        model = t.nn.parallel.DistributedDataParallel(t.nn.Sequential(*layers))
        for _ in range(10):  # PyTorch takes the times of these
            model(t.ones(2, 6)).sum().backward()
        KEPT.append(model)
        return model._get_ddp_logging_data()
    finally:
        t.distributed.destroy_process_group()


def test_names_and_values_are_pytorchs():
    run = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120, check=True)
    theirs, ours = json.loads(run.stdout), told(ddpgrad)
    assert theirs.keys() - ours.keys() == NOT_THERE
    for name in ALIKE.split():
        assert ours[name] == theirs[name], name
    for name in (
        "rebuilt_per_bucket_param_indices",
        "prev_iteration_grad_ready_order_indices",
    ):  # one bucket, in any order
        assert sorted(ours[name]) == sorted(theirs[name]), name
    for name in theirs:
        if "_time" in name:
            assert isinstance(ours[name], int) and 0 <= ours[name] < 2 * theirs[name] + 1e9, name


if __name__ == "__main__":
    print(json.dumps(told(torch)), flush=True)
    os._exit(0)  # and frees nothing
