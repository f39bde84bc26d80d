"""Tensors beside PyTorch's: random indexes, memory that is shared, numbers that do not fit, shapes, conversions."""

import copy
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


NUMBERS = [0, -1, 300, 2.7, -3.5, True, float("nan"), float("inf"), 1e20]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_in_integers(number: Any, dtype: str):
    """What does not fit is an error in both libraries, and negative ints wrap round in unsigned types."""

    def outcome(library: Any, make: Any) -> Any:
        kind = getattr(library, dtype)
        try:
            return make(library, kind).tolist()
        except RuntimeError:
            return "error"

    makers = (
        lambda library, kind: library.tensor([number], dtype=kind),
        lambda library, kind: library.full((2,), number, dtype=kind),
        lambda library, kind: library.zeros(2, dtype=kind).fill_(number),
        lambda library, kind: library.zeros(2, dtype=kind).masked_fill(library.tensor([True, False]), number),
    )
    for make in makers:
        assert outcome(ddpgrad, make) == outcome(torch, make)


def _resized_out(library: Any) -> Any:
    """What `out=` of a wrong shape, a view, and the memory under it become."""
    memory = library.zeros(2, 4)
    row, column, empty = memory[0], memory.t()[1:, 0], library.zeros(0)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        library.add(library.arange(2.0), 1, out=row)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        library.mm(library.eye(2), library.eye(2), out=column)
    library.add(library.arange(2.0), 1, out=empty)
    return [part.tolist() for part in (memory, row, column, empty)]


@pytest.mark.parametrize(
    "probe",
    [
        lambda t: repr(t.zeros(2, 3, 4).shape[1:]),
        lambda t: [repr(a + b) for a in (t.zeros(3).shape, (2,)) for b in (t.zeros(2, 3).shape[:1],)],
        lambda t: repr(t.zeros(3).shape * 2),
        lambda t: t.zeros(2, 3, 4).shape[1:].numel(),
        lambda t: [str(t.zeros(1, dtype=kind).dtype) for kind in (bool, int, float, complex)],
        lambda t: [repr(t.finfo(t.bfloat16)), repr(t.finfo(t.float64)), repr(t.iinfo(t.int16))],
        lambda t: [str(t.float64.to_complex()), str(t.complex64.to_real()), t.can_cast(t.int8, t.uint8)],
        lambda t: t.arange(6.0).reshape(1, 2, 3).unsqueeze(0).stride(),
        lambda t: t.from_dlpack(t.utils.dlpack.to_dlpack(t.zeros(2, 3).t())).add_(1).tolist(),
        lambda t: copy.deepcopy(t.ones(2, requires_grad=True)).requires_grad,
        lambda t: t.sigmoid(t.tensor([2.0, -3.0], dtype=t.float16)).tolist(),
        lambda t: t.ones(3, 4)[:, [0, 2]].view(-1).tolist(),
        lambda t: [name in dir(t.zeros(2)) for name in ("__cuda_array_interface__", "shape", "imag")],
        _resized_out,
    ],
)
def test_behaviour(probe: Any):
    assert probe(ddpgrad) == probe(torch)


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


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: float(t.zeros(2)), ValueError),
        (lambda t: t.ones(2, dtype=t.complex64).max(), RuntimeError),
        (lambda t: t.ones(2, dtype=t.complex64).sort(), RuntimeError),
        (lambda t: t.ones(2, dtype=t.int64).softmax(0), NotImplementedError),
        (lambda t: t.ones(2, dtype=t.uint8) ** -1, RuntimeError),
        (lambda t: t.arange(3, dtype=t.bool), NotImplementedError),
        (lambda t: t.zeros(2, 3).gather(1, t.tensor([[3], [0]])), RuntimeError),
        (lambda t: t.zeros(2, 3).scatter_add(1, t.tensor([[-1], [0]]), t.ones(2, 1)), RuntimeError),
    ],
)
def test_errors(call: Any, error: type[Exception]):
    for library in (ddpgrad, torch):
        with pytest.raises(error):
            call(library)
