"""utils.data beside PyTorch's: collation, datasets, and which exception each mistake raises."""

import collections
from collections import namedtuple

import numpy as np
import pytest
import torch

import ddpgrad
from ddpgrad.random import fork_rng

Point = namedtuple("Point", "x y")


class MyList(list):
    """A sequence of the program's own."""


class MyDict(dict):
    """A mapping of the program's own."""


def plain(value):
    """Tensors as (dtype, values); the kinds of containers kept."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [plain(part) for part in value]
    return value


SAMPLES = {
    "tensors": lambda t: [t.ones(2), t.zeros(2)],
    "arrays": lambda t: [np.arange(3), np.arange(3) * 2],
    "transposed arrays": lambda t: [np.arange(6.0).reshape(2, 3).T] * 2,
    "scalars": lambda t: [np.float32(1), np.float32(2)],
    "NumPy bools": lambda t: [np.bool_(True), np.bool_(False)],
    "half scalars": lambda t: [np.float16(1), np.float16(2)],
    "0-d arrays": lambda t: [np.array(1), np.array(2)],
    "bools": lambda t: [True, False],
    "ints": lambda t: [1, 2],
    "ints and floats": lambda t: [1, 2.5],
    "floats and ints": lambda t: [2.5, 1],
    "texts": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "tuples": lambda t: [(1, "a"), (2, "b")],
    "lists": lambda t: [[1, [2.0]], [3, [4.0]]],
    "ranges": lambda t: [range(2), range(2)],
    "named tuples": lambda t: [Point(1, t.ones(1)), Point(2, t.zeros(1))],
    "own list": lambda t: [MyList([1, 2]), MyList([3, 4])],
    "own dict": lambda t: [MyDict(a=1), MyDict(a=2)],
    "ordered": lambda t: [collections.OrderedDict(b=1, a=2.0)] * 2,
    "deque": lambda t: [collections.deque([1, 2])] * 2,
    "empty lists": lambda t: [[], []],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_collate(name):
    make = SAMPLES[name]
    ours = ddpgrad.utils.data.default_collate(make(ddpgrad))
    assert plain(ours) == plain(torch.utils.data.default_collate(make(torch)))
    ours = ddpgrad.utils.data.default_convert(make(ddpgrad)[0])
    assert plain(ours) == plain(torch.utils.data.default_convert(make(torch)[0]))


def test_collate_maps():
    """The extension that PyTorch documents: one function more for a type of the program's own."""
    found = []
    for lib in (ddpgrad, torch):
        module = lib.utils.data._utils.collate

        def points(batch, *, collate_fn_map, lib=lib):
            return lib.tensor([[p.x, p.y] for p in batch])

        functions = {**module.default_collate_fn_map, Point: points}
        batch = [{"at": Point(i, i + 1), "n": i} for i in range(3)]
        found.append(plain(module.collate(batch, collate_fn_map=functions)))
    assert found[0] == found[1]


def test_subset_asks_for_both_methods():
    for data in (torch.utils.data, ddpgrad.utils.data):
        half = type("Half", (data.Subset,), {"__getitem__": lambda self, index: 0})
        with pytest.raises(NotImplementedError, match="__getitems__"):
            half(range(3), [0])


def test_datasets_give_the_same_samples():
    found = []
    for lib in (torch, ddpgrad):
        data = lib.utils.data

        class Evens(data.IterableDataset):
            def __iter__(self):
                return iter(range(0, 8, 2))

            def __len__(self):
                return 4

        tensors = data.TensorDataset(lib.arange(6).reshape(3, 2), lib.arange(3))
        stacked = data.StackDataset(a=tensors, b=data.Subset(range(9), [8, 4, 2]))
        both = tensors + data.StackDataset(lib.ones(2, 2), lib.zeros(2))
        chained = Evens() + Evens()
        with fork_rng():
            lib.manual_seed(4)
            parts = data.random_split(range(10), [0.33, 0.33, 0.34])
        found.append(
            [
                [plain(stacked[i]) for i in range(3)],
                plain(stacked.__getitems__([2, 0])),
                [plain(both[i]) for i in (0, 3, -1)],
                (list(chained), len(chained), type(chained).__name__),
                [list(part.indices) for part in parts],
                plain(data.Subset(tensors, [2, 0])[[1, 0]]),
                [plain(batch) for batch in data.DataLoader(stacked, 2)],
            ]
        )
    assert found[0] == found[1]
