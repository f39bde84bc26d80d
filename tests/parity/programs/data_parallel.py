"""Programs of data parallelism, as PyTorch's users write them. Each returns its losses."""

import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def perceptron() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(steps: int, size: int = 6):
    """Another batch for each rank and step."""
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        yield torch.randn(size, 8, generator=generator), torch.randint(0, 4, (size,), generator=generator)


def mean(value: torch.Tensor) -> float:
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def digits() -> list[float]:
    """A CNN on pictures, with a sampler that is shuffled anew each epoch, and a test set by all_reduce."""
    torch.manual_seed(0)
    pictures, labels = torch.randn(40, 1, 8, 8), torch.arange(40) % 4
    data = TensorDataset(pictures, labels)
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=5, sampler=sampler)
    model = DDP(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 4)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(mean(loss))
        scheduler.step()
    model.eval()
    with torch.no_grad():
        right = (
            (model(pictures[dist.get_rank() :: 2]).argmax(1) == labels[dist.get_rank() :: 2]).sum().float()
        )
    return [*losses, mean(right)]


def accumulation() -> list[float]:
    """Two batches a step: the first within no_sync."""
    model = DDP(perceptron())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for i, (x, y) in enumerate(batches(6)):
        if i % 2 == 0:
            with model.no_sync():
                (F.cross_entropy(model(x), y) / 2).backward()
            continue
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return losses


def zero() -> list[float]:
    """Optimizer state that is divided among the ranks, and put together for a file."""
    model = DDP(perceptron())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-2)
    losses = train(model, optimizer)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        losses.append(float(len(optimizer.state_dict()["state"])))
    return losses


def halves() -> list[float]:
    """Gradients that travel in 16 bits."""
    model = DDP(perceptron())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.05))


def train(model: nn.Module, optimizer) -> list[float]:
    losses = []
    for x, y in batches(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


def mixed_precision() -> list[float]:
    model = DDP(perceptron())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    losses = []
    for x, y in batches(4):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(mean(loss))
    return losses


def moving_average() -> list[float]:
    """A second model that follows the first."""
    model = DDP(perceptron())
    shadow = copy.deepcopy(model.module).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in batches(4):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(shadow.parameters(), model.module.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        losses.append(mean(F.cross_entropy(shadow(x), y)))
    return losses


def uneven() -> list[float]:
    """Rank 1 has fewer batches."""
    model = DDP(perceptron())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for x, y in batches(5 - 2 * dist.get_rank()):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return [p.detach().sum().item() for p in model.parameters()]


def shared_statistics() -> list[float]:
    """A CNN with BatchNorm, whose buffers are rank 0's, in training and in evaluation."""
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(4):
        x = torch.randn(3 + dist.get_rank(), 2, 5, 5, generator=generator)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    model.eval()
    with torch.no_grad():
        return [*losses, mean(model(torch.ones(1, 2, 5, 5)).sum()), net[1].running_var.sum().item()]


def adversaries() -> list[float]:
    """A generator and a discriminator, each in its own DDP."""
    torch.manual_seed(3)
    make = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
    judge = DDP(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)), broadcast_buffers=False)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2, betas=(0.5, 0.999)) for m in (make, judge)]
    generator = torch.Generator().manual_seed(7 + dist.get_rank())
    losses = []
    for _ in range(3):
        true, noise = torch.randn(8, 2, generator=generator) + 3, torch.randn(8, 4, generator=generator)
        optimizers[1].zero_grad()
        both = judge(torch.cat([true, make(noise).detach()]))
        loss = F.binary_cross_entropy_with_logits(both, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)]))
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        cheated = F.binary_cross_entropy_with_logits(judge(make(noise)), torch.ones(8, 1))
        cheated.backward()
        optimizers[0].step()
        losses += [mean(loss), mean(cheated)]
    return losses


def distillation() -> list[float]:
    """A frozen teacher beside the student."""
    teacher = perceptron().eval().requires_grad_(False)
    torch.manual_seed(4)
    student = DDP(nn.Linear(8, 4), find_unused_parameters=True)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.2)
    losses = []
    for x, y in batches(4):
        out = student(x)
        soft = F.kl_div(F.log_softmax(out / 2, 1), F.softmax(teacher(x) / 2, 1), reduction="batchmean") * 4
        loss = 0.5 * soft + 0.5 * F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


def resumed() -> list[float]:
    """Rank 0 saves, all load; then they go on as if nothing had been."""
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names, src=0)
    path = os.path.join(names[0], "checkpoint.pt")
    model = DDP(perceptron())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = list(batches(6))
    losses = []
    for step, (x, y) in enumerate(data):
        if step == 3:
            if dist.get_rank() == 0:
                torch.save(
                    {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                    path,
                )
            dist.barrier()
            saved = torch.load(path, map_location="cpu", weights_only=True)
            fresh = perceptron()
            fresh.load_state_dict(saved["model"])
            model = DDP(fresh)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            optimizer.load_state_dict(saved["optimizer"])
            assert saved["step"] == 3
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


PROGRAMS = [
    digits, accumulation, zero, halves, mixed_precision, moving_average, uneven, shared_statistics, adversaries,
    distillation, resumed,
]  # fmt: skip
