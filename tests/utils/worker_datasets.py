"""Datasets, and functions on batches, that are sent to worker processes."""

import os
import random
import signal
import time
from collections import namedtuple

import numpy as np

import ddpgrad
from ddpgrad.utils import data

Point = namedtuple("Point", "x y")


class OwnError(Exception):
    """An exception that wants two arguments."""

    def __init__(self, what: str, where: int) -> None:
        super().__init__(f"{what} at {where}")


class Numbers(data.Dataset):
    """Sample i is i."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class Draws(Numbers):
    """Sample i is i and what each global generator draws next."""

    def __getitem__(self, index):
        return index, random.random(), np.random.random(), ddpgrad.rand(2)


class Structures(Numbers):
    """Samples of every kind that collate knows."""

    def __getitem__(self, index):
        return {
            "image": np.full((3, 4), index, np.uint8),
            "half": ddpgrad.full((5,), index, dtype=ddpgrad.bfloat16),
            "name": f"sample {index}",
            "point": Point(np.float32(index), [index, 0.5]),
            "empty": ddpgrad.zeros(0),
        }


class Wide(Numbers):
    """Sample i is an array whose size grows with i."""

    def __getitem__(self, index):
        return np.full(1000 * (index + 1), index, np.float32)


class Fails(Numbers):
    """Sample 5 raises, kills its process or takes for ever, as `how` says."""

    def __init__(self, count: int, how: str) -> None:
        super().__init__(count)
        self.how = how

    def __getitem__(self, index):
        if index == 5:
            match self.how:
                case "key":
                    raise KeyError("five")
                case "own":
                    raise OwnError("five", index)
                case "stop":
                    raise StopIteration
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "exit":
                    os._exit(3)
                case "sleep":
                    time.sleep(600)
        return index


class Shares(data.IterableDataset):
    """0 to count-1, of which a worker reads its share."""

    def __init__(self, count: int, length: int | None = None) -> None:
        self.count = count
        if length is not None:
            self.length = length

    def __len__(self) -> int:
        if not hasattr(self, "length"):
            raise TypeError("no length")
        return self.length

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(self.count) if info is None else range(info.id, self.count, info.num_workers))


class Who(Numbers):
    """Sample i says which process reads it, and what its worker knows."""

    def __getitem__(self, index):
        info = data.get_worker_info()
        return (
            os.getpid(),
            info.id,
            info.num_workers,
            info.seed,
            info.dataset is self,
            os.environ.get("WORLD_SIZE"),
        )


def mark(worker_id: int) -> None:
    """A worker_init_fn that changes the copy of the dataset in its worker."""
    data.get_worker_info().dataset.count += 100 * (worker_id + 1)


class Counted(Numbers):
    """Sample i is the length that `mark` gave to this worker's copy."""

    def __getitem__(self, index):
        return self.count


def total(batch):
    return sum(batch)


class Texts(Numbers):
    """Samples without arrays, larger than what a connection holds."""

    def __getitem__(self, index):
        return f"{index} " * 200_000


def as_text(batch):
    return "".join(map(str, batch))
