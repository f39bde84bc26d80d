"""Samplers: the order, and the batches, in which samples of a dataset are read.

Random samplers draw PyTorch's numbers, and draw them when PyTorch does, so that the same
seed gives the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from ...core.tensor import Tensor, wrap
from ...random import Generator, rank_generator

T_co = TypeVar("T_co", covariant=True)

_CHUNK = 32  # PyTorch draws indices with replacement in chunks of this size


class Sampler(Generic[T_co]):
    """An order of indices: subclasses define `__iter__`, and `__len__` where it is known.

    A sampler whose order depends on more than a generator may define `follow_epoch(epoch)`,
    called by the DataLoader in every epoch, and `state_dict` and `load_state_dict`, which
    hold what decides the order, not a position in it: the DataLoader counts.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2 … in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, or drawn with replacement.

    num_samples: how many to draw, by default the length of `data_source`; beyond that
    length, without replacement, permutations follow each other. generator: by default a
    new one in every epoch, seeded from the rank's default generator.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got {replacement=}")
        self.data_source = data_source
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples
        _check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(rank_generator().raw64() % (1 << 63))
        if self.replacement:
            whole, rest = divmod(self.num_samples, _CHUNK)
            for count in itertools.chain(itertools.repeat(_CHUNK, whole), (rest,)):
                yield from generator.integers(0, n, count).tolist()
        else:
            # A last permutation is drawn even where nothing is left for it: a generator that is
            # used over several epochs must stay in step with PyTorch's.
            for _ in range(self.num_samples // n):
                yield from generator.permutation(n).tolist()
            yield from generator.permutation(n).tolist()[: self.num_samples % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = rank_generator() if self.generator is None else self.generator
        for position in generator.permutation(len(self.indices)).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices, each drawn in proportion to its weight."""

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray | Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got {replacement=}")
        numbers = weights.numpy(force=True) if isinstance(weights, Tensor) else weights
        self.weights: Tensor = wrap(np.array(numbers, dtype=np.float64))
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = rank_generator() if self.generator is None else self.generator
        yield from generator.multinomial(
            np.asarray(self.weights, np.float64), self.num_samples, self.replacement
        ).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of `sampler`; the last may be shorter, or is dropped."""

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got {drop_last=}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        samples = len(self.sampler)  # pyright: ignore[reportArgumentType]  # a TypeError says so if unsized
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")
