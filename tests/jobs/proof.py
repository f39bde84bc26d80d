"""Trains each of the cases `MODEL-OPTIMIZER-MODE` for 20 steps; rank 0 prints {case: hash of losses and parameters}.

Started by `test_proof.py` with one world size and several numbers of processes.
"""

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import same_bits

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.algorithms.ddp_comm_hooks import default_hooks
from ddpgrad.distributed.algorithms.diloco import DiLoCo
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.optim import PostLocalSGDOptimizer
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 20  # an epoch has 8


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 5))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 6)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.3), nn.Flatten(), nn.Linear(48, 5),
    )  # fmt: skip


class Words(nn.Module):
    """The small GPT, on numbers made into words."""

    def __init__(self) -> None:
        super().__init__()
        self.net = same_bits.Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = (x[:, :12].abs() * 20).long().clamp(0, 63)
        return self.net(words).mean(1)[:, :5]


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn, "gpt": Words}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def train(case: str, folder: Path, stop: int, resume: bool) -> str:
    """The hash of the losses and of the parameters and buffers after `stop` steps."""
    model_name, optimizer_name, mode = case.split("-")
    captured, mode = mode.endswith("captured"), mode.removesuffix("captured")
    rng = np.random.default_rng(0)
    data = TensorDataset(
        torch.tensor(rng.normal(size=(264, 24)).astype(np.float32)), torch.tensor(rng.integers(0, 5, 264))
    )
    parts = 2 if mode.endswith("parts") else 1
    sampler = DistributedSampler(data, accumulate=parts)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    torch.manual_seed(7)
    model = MODELS[model_name]()
    sharded, averager = mode.startswith(("sharded", "hybrid")), None
    if sharded:
        mesh = dist.init_device_mesh("cpu", (4, 2)) if mode.startswith("hybrid") else None
        ddp: Any = fully_shard(model, mesh=mesh)
    elif mode.startswith("diloco"):  # trains apart; parts are under way where the run stops
        ddp, bits8 = model, mode == "diloco8"
        averager = DiLoCo(
            model.parameters(),
            4,
            fragments=2,
            fragment_sync_delay=2 * bits8,
            fragment_update_alpha=bits8 * 0.5,
            should_quantize=bits8,
        )
    else:
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)  # several buckets
    if mode == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    if averager is not None:
        optimizer = PostLocalSGDOptimizer(optimizer, averager)
    torch.manual_seed(100 + dist.get_rank())
    losses: dict[str, str] = {}
    saved = {"model": model, "optimizer": optimizer, "loader": loader, "losses": losses}
    checkpoints = Checkpointer(str(folder / case))
    step = (checkpoints.resume(**saved) or 0) if resume else 0

    def train_step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.zeros(())
        if parts > 1:
            for part, target in ddp.accumulate(parts, x, y):
                part_loss = F.cross_entropy(ddp(part), target)
                part_loss.backward()
                loss += part_loss.detach() / parts
        elif mode == "accumulate":
            with ddp.no_sync():
                (F.cross_entropy(ddp(x[:2]), y[:2]) / 2).backward()
            loss = F.cross_entropy(ddp(x[2:]), y[2:]) / 2
        else:
            loss = F.cross_entropy(ddp(x), y)
        if parts == 1:
            loss.backward()
        if mode == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().clone()

    run = torch.captured_step(train_step) if captured else train_step
    while step < stop:
        for x, y in loader:
            mean = run(x, y)
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses[str(step)] = float(mean.item()).hex()
            step += 1
            if step == stop:
                break
    assert not captured or run.code, run.why_not
    if stop < STEPS:
        checkpoints.save(step - 1, **saved)
    if averager is not None:
        averager.synchronize()
    digest = hashlib.sha256(json.dumps(losses).encode())
    assert len(losses) == stop
    if model_name == "cnn":  # running statistics are each rank's own until the next forward
        dist.broadcast(model[2].running_mean, 0)
        dist.broadcast(model[2].running_var, 0)
    for tensor in model.state_dict().values():
        tensor = tensor.full_tensor() if sharded and hasattr(tensor, "full_tensor") else tensor
        digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())
    hashes: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hashes, digest.hexdigest())
    assert len(set(hashes)) == 1, f"{case}: the replicas differ"
    return hashes[0]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("cases", nargs="+")
    p.add_argument("--folder", type=Path, required=True)
    p.add_argument("--stop", type=int, default=STEPS)
    p.add_argument("--resume", action="store_true")
    args = p.parse_args()
    dist.init_process_group()
    result = {case: train(case, args.folder, args.stop, args.resume) for case in args.cases}
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
