"""How fast a DataLoader's workers feed the CNN example, beside PyTorch's DataLoader with the same dataset.

    python examples/benchmarks/loader.py               # some 20 s
    python examples/benchmarks/loader.py --workers 1

Images of 28x28 pixels are moved, turned over and scaled by NumPy, one by one. First both loaders hand out
batches as fast as they can, in turns within one run; the figure is the ratio of the medians. Then
vision.ConvNet is trained on the batches of each, in turns with batches that are in memory already: the figures
are the time of an epoch, and what steps wait for a batch: the median, and the share of the whole.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

SIDE, PADDING = 28, 4


class Images:
    """`count` images of random digits' size, augmented when they are read. A dataset for both libraries."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (count, SIDE, SIDE), dtype=np.uint8)
        self.labels = rng.integers(0, 10, count)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        padded = np.pad(self.pixels[index], PADDING)
        top, left = random.randrange(2 * PADDING + 1), random.randrange(2 * PADDING + 1)
        image = padded[top : top + SIDE, left : left + SIDE]
        if random.random() < 0.5:
            image = image[:, ::-1]
        return ((image / np.float32(255) - 0.5) / 0.25).astype(np.float32)[None], int(self.labels[index])


def drain(batches: Iterable[Any]) -> float:
    """Seconds of an epoch in which nothing is done with the batches, after the first of them."""
    iterator = iter(batches)
    next(iterator)
    began = perf_counter()
    for _ in iterator:
        pass
    return perf_counter() - began


class Training:
    """vision.ConvNet, and what it takes to train it on batches from anywhere."""

    def __init__(self) -> None:
        sys.path.append(str(Path(__file__).parents[1]))
        import vision

        import ddpgrad as torch

        self.model = vision.ConvNet(SIDE, width=16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def epoch(self, loader: Iterable[Any]) -> tuple[float, list[float]]:
        """(seconds, seconds that each step waited for its batch), after the first batch."""
        import ddpgrad as torch
        import ddpgrad.nn.functional as F

        waits: list[float] = []
        batches = iter(loader)
        next(batches)
        began = perf_counter()
        while True:
            asked = perf_counter()
            batch = next(batches, None)
            if batch is None:
                return perf_counter() - began, waits
            waits.append(perf_counter() - asked)
            x, y = (torch.from_numpy(array.numpy()) for array in batch)
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--images", type=int, default=12800, help="in an epoch (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=5, help="epochs of each library (default: %(default)s)")
    args = p.parse_args()
    import torch.utils.data

    import ddpgrad.utils.data

    torch.set_num_threads(1)
    dataset = Images(args.images)
    options = {"num_workers": args.workers, "persistent_workers": args.workers > 0, "shuffle": True}
    loaders: dict[str, Callable[[], Any]] = {
        "ddpgrad": lambda: ddpgrad.utils.data.DataLoader(dataset, args.batch, **options),  # pyright: ignore
        "ddpgrad, seed_samples=False": lambda: ddpgrad.utils.data.DataLoader(
            dataset,  # pyright: ignore[reportArgumentType]
            args.batch,
            seed_samples=False,
            **options,
        ),
        "PyTorch": lambda: torch.utils.data.DataLoader(dataset, args.batch, **options),  # pyright: ignore
    }
    made = {name: make() for name, make in loaders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for number in range(args.rounds + 1):
        for name, loader in made.items():
            taken = drain(loader)
            if number:  # the first starts the workers
                seconds[name].append(taken)
    theirs = median(seconds["PyTorch"])
    for name, times in seconds.items():
        rate = (args.images - args.batch) / median(times)
        print(f"{name:28s} {rate:9.0f} images/s   {theirs / median(times):5.2f} x PyTorch's rate")
    del made["ddpgrad, seed_samples=False"]
    compare_training({**made, "in memory": list(made["ddpgrad"])}, args.rounds)


def compare_training(sources: dict[str, Iterable[Any]], rounds: int) -> None:
    """Print the medians of epochs on each source of batches, in turns."""
    training = Training()
    epochs: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in sources}
    for number in range(rounds + 1):
        for name, source in sources.items():
            epoch = training.epoch(source)
            if number:  # the first compiles the kernels
                epochs[name].append(epoch)
    for name, done in epochs.items():
        total, waits = sum(seconds for seconds, _ in done), [wait for _, waits in done for wait in waits]
        print(
            f"training, batches {name + ':':12s} {median(seconds for seconds, _ in done):6.3f} s an epoch; "
            f"steps wait {1e3 * median(waits):.2f} ms, {sum(waits) / total:.1%} of the time"
        )


if __name__ == "__main__":
    main()
