"""Tensors beside PyTorch's: random indexes, and memory that is shared."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ddpgrad


@st.composite
def indexed(draw: Any) -> tuple[tuple[int, ...], list[Any]]:
    """A shape, and the parts of an index into it: ints, slices, None, Ellipsis, bools, masks and integer arrays."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    parts: list[Any] = []
    common = draw(st.sampled_from([(2,), (1,), (3, 1)]))
    dim = 0
    while dim < len(shape):
        n = shape[dim]
        places = st.integers(-n, n - 1) if n else st.nothing()
        kinds = ["slice", "mask", *(["int", "array", "scalar"] if n else [])]
        kinds += ["none", "bool", "ellipsis"] if len(parts) < 5 else []
        kind = draw(st.sampled_from(kinds))
        if kind == "ellipsis" and Ellipsis not in [p for p in parts if not isinstance(p, np.ndarray)]:
            parts.append(Ellipsis)
            dim += draw(st.integers(0, len(shape) - dim))
            continue
        if kind in ("none", "bool", "ellipsis"):
            parts.append(None if kind != "bool" else draw(st.booleans()))
            continue
        bound = st.none() | st.integers(-n - 1, n + 1)
        if kind == "slice":
            parts.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2]))))
        elif kind == "mask":
            parts.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
        elif kind == "array":
            size = int(np.prod(common))
            parts.append(np.array(draw(st.lists(places, min_size=size, max_size=size))).reshape(common))
        else:
            place = draw(places)
            parts.append(place if kind == "int" else np.array(place))
        dim += 1
    return shape, parts


def _outcome(library: Any, shape: tuple[int, ...], parts: list[Any]) -> Any:
    """What reading and writing at the index give, with gradients; the name of the error where they fail."""
    index = tuple(library.tensor(p) if isinstance(p, np.ndarray) else p for p in parts)
    x = library.arange(float(np.prod(shape)), dtype=library.float64).reshape(shape) + 1
    x.requires_grad_()
    try:
        y = x[index]
        written = x * 1
        value = library.tensor(5.0, dtype=library.float64, requires_grad=True)
        written[index] = value
    except Exception as error:
        return isinstance(error, IndexError), isinstance(error, RuntimeError)
    (grad,) = library.autograd.grad((y * y).sum(), x)
    grads = library.autograd.grad((written * written).sum(), (x, value))
    arrays = [t.detach().numpy().tolist() for t in (y, grad, written, *grads)]
    return arrays, tuple(y.shape), y.is_contiguous(), y._is_view()


@settings(max_examples=150)
@given(indexed())
@example(((2, 3, 2, 2), [np.array([0, 1]), np.array([2, 0]), None]))
def test_indexing(case: tuple[tuple[int, ...], list[Any]]):
    assert _outcome(ddpgrad, *case) == _outcome(torch, *case)


DTYPES = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64")


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("writer", "reader"), [(ddpgrad, torch), (torch, ddpgrad)])
def test_dlpack_shares_memory_in_both_directions(writer: Any, reader: Any, name: str):
    source = writer.zeros(2, 3, dtype=getattr(writer, name))
    ways = [
        source,
        source.__dlpack__(),
        source.__dlpack__(max_version=(1, 0)),
        writer.utils.dlpack.to_dlpack(source),
    ]
    for number, way in enumerate(ways):
        shared = reader.utils.dlpack.from_dlpack(way)
        assert str(shared.dtype) == str(source.dtype) and shared.data_ptr() == source.data_ptr()
        shared[0, number % 3] = 1
        assert bool(source[0, number % 3] == 1)
    assert source.__dlpack_device__() == (1, 0)
    own = reader.from_dlpack(source.__dlpack__(copy=True))
    assert own.data_ptr() != source.data_ptr()
