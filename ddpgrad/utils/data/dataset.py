"""Datasets: samples by index, or one after another."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

import numpy as np

from ... import ops  # noqa: F401 - gives the class Tensor its methods
from ...backend.registry import to_device
from ...core.tensor import Tensor, wrap
from ...random import Generator, rank_generator

T_co = TypeVar("T_co", covariant=True)

BatchReader = Callable[[Sequence[int]], list[Tensor]]


class Dataset(Generic[T_co]):
    """Samples by index: subclasses define `__getitem__`, and `__len__` for most samplers."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(
            f"Subclasses of Dataset should implement __getitem__. {type(self).__name__} does not"
        )

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples one after another: subclasses define `__iter__`.

    Every worker of a DataLoader iterates over a copy: `get_worker_info` says which share is a worker's.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is element i of every tensor; all have the same first dimension."""

    def __init__(self, *tensors: Tensor) -> None:
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) > 1:
            raise AssertionError(f"Size mismatch between tensors: their first dimensions are {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Sample i is sample i of every dataset: a tuple of them, or a dict where they are given by name."""

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if args and kwargs:
            raise ValueError(
                "StackDataset: datasets by position make tuples, by name dicts, but both types are given"
            )
        if not args and not kwargs:
            raise ValueError("StackDataset: At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = [_length(dataset) for dataset in self.parts()]
        if len(set(lengths)) > 1:
            raise ValueError(f"Size mismatch between datasets: their lengths are {lengths}")
        self._length = lengths[0]

    def parts(self) -> Iterable[Any]:
        """The datasets, without names."""
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def __getitem__(self, index: Any) -> Any:
        return self._sample([dataset[index] for dataset in self.parts()])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        columns = [read_samples(dataset, indices) for dataset in self.parts()]
        for column in columns:
            if len(column) != len(indices):
                raise ValueError(
                    f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}"
                )
        return [self._sample(values) for values in zip(*columns, strict=True)]

    def _sample(self, values: Sequence[Any]) -> Any:
        if isinstance(self.datasets, dict):
            return dict(zip(self.datasets, values, strict=True))
        return tuple(values)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """The samples of several datasets, one dataset after the other."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: datasets should not be an empty iterable")
        for position, dataset in enumerate(self.datasets):
            if isinstance(dataset, IterableDataset):
                raise AssertionError(
                    f"ConcatDataset does not support IterableDataset (number {position} is one); use ChainDataset"
                )
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """How many samples there are up to the end of each of several datasets."""
        return list(itertools.accumulate(map(_length, sequence)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        position = index + len(self) if index < 0 else index
        if position < 0:
            raise ValueError(
                f"index {index}: its absolute value should not exceed dataset length {len(self)}"
            )
        if position >= len(self):
            raise IndexError(f"index {index} is out of range for a dataset of {len(self)} samples")
        which = bisect.bisect_right(self.cumulative_sizes, position)
        first = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][position - first]


class ChainDataset(IterableDataset[T_co]):
    """The samples of several iterable datasets, one dataset after the other."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(_length(dataset) for dataset in self._checked())

    def _checked(self) -> Iterator[IterableDataset[T_co]]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(
                    f"ChainDataset only supports IterableDataset, found {type(dataset).__name__}"
                )
            yield dataset


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`.

    A subclass that defines `__getitem__` defines `__getitems__` as well: a DataLoader asks for that.
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{kind.__name__} overrides __getitem__ but not __getitems__, which a DataLoader reads batches "
                "by. Define it too, such as: return [self[i] for i in indices]"
            )
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[T_co]:
        return read_samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Split `dataset` at random into parts of the given lengths, or of the given fractions of 1.

    Fractions are rounded down; what is left goes to the first parts, one sample each.
    """
    total = _length(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if not all(0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"fractions of a dataset lie between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for extra in range(total - sum(sizes)):
            sizes[extra % len(sizes)] += 1
        for position, size in enumerate(sizes):
            if size == 0:
                warnings.warn(f"part {position} of the split is empty", stacklevel=2)
    else:
        sizes = cast("list[int]", list(lengths))
    if sum(sizes) != total:
        raise ValueError(
            "Sum of input lengths does not equal the length of the input dataset! "
            f"The lengths {sizes} sum to {sum(sizes)}, but the dataset has {total} samples"
        )
    order = (rank_generator() if generator is None else generator).permutation(total).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def read_samples(dataset: Dataset[T_co], indices: Sequence[int]) -> list[T_co]:
    """The samples at `indices`, at once where the dataset defines `__getitems__`."""
    together: Callable[[Sequence[int]], list[T_co]] | None = getattr(dataset, "__getitems__", None)
    return [dataset[i] for i in indices] if together is None else together(indices)


def batch_reader(dataset: Dataset[Any]) -> BatchReader | None:
    """A function that reads a whole batch by one indexing per tensor, or None if `dataset` has none.

    Its result equals `default_collate` of the samples one by one.
    """
    if isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__:
        tensors = dataset.tensors
        return lambda indices: [_rows(tensor, indices) for tensor in tensors]
    if not isinstance(dataset, Subset):
        return None
    kind = type(dataset)
    if kind.__getitem__ is not Subset.__getitem__ or kind.__getitems__ is not Subset.__getitems__:
        return None
    inner, chosen = batch_reader(dataset.dataset), dataset.indices
    return None if inner is None else lambda indices: inner([chosen[i] for i in indices])


def _rows(tensor: Tensor, indices: Sequence[int]) -> Tensor:
    index = np.asarray(indices, dtype=np.int64)
    return tensor[wrap(to_device(index, tensor.device))]


def _length(dataset: Dataset[Any]) -> int:
    return len(cast(Sized, dataset))
