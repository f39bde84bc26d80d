"""Datasets for tests: in a module of its own, which workers can import."""

from collections.abc import Iterator

import ddpgrad as torch
from ddpgrad.utils.data import Dataset, IterableDataset


class Stream(IterableDataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


class Numbered(Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int):
        return i, torch.tensor([float(i), 1.0, i % 3.0]), torch.tensor(i % 2)


class Several(IterableDataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self):
        return map(Numbered(1000).__getitem__, range(self.size))
