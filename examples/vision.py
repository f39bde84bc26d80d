"""What the image examples share: their network, and how several ranks train and test it.

The lines that make the loop distributed are marked (1) to (5), as in train_gpt.py.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.launcher import loggers
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset

Split = tuple[TensorDataset, TensorDataset]


class ConvNet(nn.Module):
    """Images (B, 1, side, side) -> logits (B, classes): two convolution blocks, then two layers."""

    def __init__(self, side: int, width: int = 32, classes: int = 10, dropout: float = 0.3) -> None:
        super().__init__()
        self.features = nn.Sequential(*self.block(1, width), *self.block(width, 2 * width))
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * (side // 4) ** 2, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, classes),
        )

    @staticmethod
    def block(channels: int, width: int) -> list[nn.Module]:
        """Convolution, normalisation, ReLU; then half the side."""
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


def options(description: str | None, epochs: int, batch: int) -> argparse.ArgumentParser:
    """The options that the image examples have in common; `epochs` and `batch` are defaults."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epochs", type=int, default=epochs, help="passes over the images (default: %(default)s)")
    p.add_argument(
        "--batch", type=int, default=batch, help="images a step, over all ranks (default: %(default)s)"
    )
    p.add_argument(
        "--width", type=int, default=32, help="channels of the first convolution (default: %(default)s)"
    )
    p.add_argument("--lr", type=float, default=2e-3, help="learning rate at the start (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu", help="cpu or cuda")
    loggers.add_option(p)
    return p


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset, device: str) -> float:
    """Share of the test images that are told right; every rank takes its part of them."""
    for buffer in model.buffers():
        dist.broadcast(buffer)  # each rank went on with statistics of its own after the last forward
    model.eval()
    right = dist.Mean()
    mine = DistributedSampler(test, shuffle=False, even=False)  # every image once
    for x, y in DataLoader(test, batch_size=250, sampler=mine):
        right.update(model(x.to(device)).argmax(dim=1).cpu() == y)
    model.train()
    return right.compute()


def replicas(model: nn.Module) -> tuple[bool, str]:
    """Whether parameters and buffers have the same bits on all ranks, and a hash of rank 0's."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy(force=True).tobytes())
    hashes: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hashes, digest.hexdigest())
    return len(set(hashes)) == 1, hashes[0][:16]


def train(args: argparse.Namespace, load: Callable[[], Split]) -> float:
    """Train a ConvNet on the images that `load` gives as (training, test); its test accuracy.

    Images are float32 (N, 1, side, side), labels int64 (N,). `load` runs in a process group.
    """
    dist.init_process_group()  # (1) meet the other ranks
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if args.batch % ranks:
        raise SystemExit(
            f"--batch {args.batch} must be a multiple of the number of ranks, {ranks}: try {-(-args.batch // ranks) * ranks}"
        )
    training, test = load()
    sampler = DistributedSampler(training, seed=args.seed)  # (2) every rank its own share of the images
    loader = DataLoader(training, batch_size=args.batch // ranks, sampler=sampler, drop_last=True)
    if not len(loader):
        raise SystemExit(f"--batch {args.batch} is more than the {len(training)} training images")

    torch.manual_seed(args.seed)
    model = ConvNet(training.tensors[0].shape[-1], args.width).to(args.device)
    ddp = DDP(model)  # (3) average the gradients over the ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    torch.manual_seed(args.seed + 1 + rank)  # dropout differs between ranks

    folder = Path("runs") / Path(sys.argv[0]).stem
    log = loggers.start(folder, args.log, settings=vars(args)) if args.log else loggers.Loggers()
    began, right = time.perf_counter(), accuracy(model, test, args.device)
    for epoch in range(args.epochs):
        total = torch.zeros((), dtype=torch.float64)
        for x, y in loader:
            loss = F.cross_entropy(ddp(x.to(args.device)), y.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() / len(loader)
        dist.all_reduce(total, dist.ReduceOp.AVG)  # (4) the loss over all ranks' images
        right = accuracy(model, test, args.device)
        log.log(epoch + 1, {"loss": total, "accuracy": right})
        if rank == 0:
            print(
                f"epoch {epoch + 1:2d}/{args.epochs}  loss {total.item():.4f}  test accuracy {right:.2%}",
                flush=True,
            )

    log.close()
    same, digest = replicas(model)
    if rank == 0:
        print(f"test accuracy {right:.2%} after {time.perf_counter() - began:.1f} s on {ranks} ranks by "
              f"{dist.get_backend()}, replicas {'bit-identical' if same else 'DIFFERENT'} ({digest})", flush=True)  # fmt: skip
    dist.destroy_process_group()  # (5) leave together
    return right
