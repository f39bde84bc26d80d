"""Indexing, reading and writing, against NumPy and PyTorch: any mixture of ints, slices, None, … and arrays."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch

SHAPE = (3, 4, 2)


@st.composite
def indexes(draw: st.DrawFn, advanced: bool) -> Any:
    """An index into an array of SHAPE; tensors in it are NumPy arrays."""
    parts: list[Any] = []
    common = draw(st.sampled_from([(2,), (3, 1), ()])) if advanced else ()
    for n in SHAPE[: draw(st.integers(0, len(SHAPE)))]:
        kinds = ["int", "slice"] + (["array", "mask", "list"] if advanced else [])
        match draw(st.sampled_from(kinds)):
            case "int":
                parts.append(draw(st.integers(-n, n - 1)))
            case "slice":
                bound = st.none() | st.integers(-n - 1, n + 1)
                parts.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
            case "array":
                size = int(np.prod(common))
                values = draw(st.lists(st.integers(-n, n - 1), min_size=size, max_size=size))
                parts.append(np.array(values, dtype=np.int64).reshape(common))
            case "mask":
                # One or two chosen, so that masks broadcast with arrays of two elements.
                chosen = draw(st.lists(st.booleans(), min_size=n, max_size=n))
                parts.append(np.array(chosen))
            case "list":
                parts.append(draw(st.lists(st.integers(-n, n - 1), min_size=2, max_size=2)))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(parts)))
        parts = [*parts[:at], Ellipsis, *_from_the_end(parts[at:])]
    return tuple(parts) if len(parts) != 1 or draw(st.booleans()) else parts[0]


def _from_the_end(parts: list[Any]) -> list[Any]:
    """What follows an Ellipsis counts from the last dimension: keep what fits there."""
    kept = [p for p in parts if p is None or isinstance(p, slice)]
    return kept if sum(p is not None for p in kept) <= 1 else kept[:0]


def with_tensors(index: Any, library: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(with_tensors(p, library) for p in index)
    return library.tensor(index) if isinstance(index, np.ndarray) else index


def data() -> np.ndarray:
    return np.arange(24.0).reshape(SHAPE) + 1


@settings(max_examples=150)
@given(indexes(advanced=False))
def test_basic_reading_and_writing_as_numpy(index: Any):
    array = data()
    x = torch.tensor(array, requires_grad=True)
    expected = array[index]
    out = x[index]
    assert out.shape == expected.shape
    np.testing.assert_array_equal(out.detach().numpy(), expected)
    assert out._is_view() and np.shares_memory(out.detach().numpy(), x.detach().numpy()) == bool(out.numel())
    weights = np.arange(out.numel(), dtype=float).reshape(out.shape) + 1
    (out * torch.tensor(weights)).sum().backward()
    gradient = np.zeros(SHAPE)
    gradient[index] = weights
    np.testing.assert_array_equal(x.grad.numpy(), gradient)

    y, value = x * 1, torch.tensor(weights, requires_grad=True)
    y[index] = value
    array[index] = weights
    np.testing.assert_array_equal(y.detach().numpy(), array)
    x.grad = None
    (y * y).sum().backward()
    np.testing.assert_array_equal(value.grad.numpy(), 2 * weights)
    expected = 2 * array
    expected[index] = 0
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.torch
@settings(max_examples=300)
@given(indexes(advanced=True))
def test_all_indexing_as_pytorch(index: Any):
    oracle = pytest.importorskip("torch")
    results: list[Any] = []
    for library in (oracle, torch):
        try:
            results.append(_read_and_write(library, with_tensors(index, library)))
        except (IndexError, RuntimeError) as error:
            results.append(error)
            if library is oracle and not isinstance(error, IndexError):
                return  # not an index that PyTorch takes
    theirs, ours = results
    if isinstance(theirs, IndexError):
        assert isinstance(ours, IndexError), f"PyTorch says {theirs}"
        return
    assert not isinstance(ours, Exception), f"{index}: {ours}"
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def _read_and_write(library: Any, index: Any) -> list[np.ndarray]:
    x = library.tensor(data(), requires_grad=True)
    out = x[index]
    weights = library.arange(1.0, out.numel() + 1, dtype=library.float64).reshape(out.shape)
    (g,) = library.autograd.grad((out * weights).sum(), x)
    found = [out, g]
    y = x * 1
    y[index] = -5.0  # one value, since repeated places make the order of writing matter
    (g,) = library.autograd.grad((y * y).sum(), x)
    return [t.detach().numpy() for t in (*found, y, g)]


def test_repeated_places_add_up():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[[0, 0, 2]].sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 1.0]


def test_values_broadcast_and_convert():
    x = torch.zeros(2, 3, requires_grad=True) * 1
    value = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    x[:, :] = value
    x[0] = value  # more leading dimensions of length 1 than the place has
    x[1, torch.tensor([0])] = np.array([7.0])
    x.sum().backward()
    assert x.tolist() == [[1.0, 2.0, 3.0], [7.0, 2.0, 3.0]]
    assert value.grad.tolist() == [[1.0, 2.0, 2.0]]
    n = torch.zeros(2, dtype=torch.int64)
    n[0] = 1.9
    assert n.tolist() == [1, 0]


def test_rows_are_compressed_and_back():
    rows, columns = torch.tensor([0, 0, 2, 3, 3]), torch.arange(5)
    begins = torch._convert_indices_from_coo_to_csr(rows, 5)
    assert begins.tolist() == [0, 2, 2, 3, 5, 5]
    assert torch._convert_indices_from_coo_to_csr(rows[:0], 2, out_int32=True).tolist() == [0, 0, 0]
    assert torch._convert_indices_from_csr_to_coo(begins, columns).tolist() == [
        rows.tolist(),
        columns.tolist(),
    ]
    turned = torch._convert_indices_from_csr_to_coo(begins, columns, out_int32=True, transpose=True)
    assert turned.tolist() == [columns.tolist(), rows.tolist()] and turned.dtype is torch.int32
    with pytest.raises(RuntimeError, match="supposed to be a vector"):
        torch._convert_indices_from_coo_to_csr(rows[None], 5)


def test_places_that_are_not_zero():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for found in (torch.where(x > 0), x.nonzero(as_tuple=True), torch.nonzero(x).unbind(1)):
        assert [t.tolist() for t in found] == [[0, 1], [1, 0]]
    assert torch.argwhere(x).tolist() == [[0, 1], [1, 0]] and torch.argwhere(torch.tensor(3)).shape == (1, 0)


def test_gather_and_scatter_of_part():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    index = torch.tensor([[2, 0]])
    (torch.gather(x, 1, index) * torch.tensor([[1.0, 10.0]])).sum().backward()
    assert x.grad.tolist() == [[10.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    src = torch.ones(2, 3, requires_grad=True)
    (torch.zeros(2, 3).scatter_add(1, index, src) * 3).sum().backward()
    assert src.grad.tolist() == [[3.0, 3.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (5, "index 5 is out of bounds for dimension 0 with size 3"),
        ((0, 4), "index 4 is out of bounds for dimension 1 with size 4"),
        ((0, 0, 0, 0), "too many indices"),
        (1.5, "only integers, slices"),
        ("a", "only integers, slices"),
        (slice(None, None, -1), "step must be greater than zero"),
        (torch.tensor([1.0]), "must be long, int, byte or bool tensors, got float32"),
        (torch.tensor([True, False]), "The shape of the mask"),
        (([0, 1], [0, 1, 2]), "shape mismatch"),
    ],
)
def test_wrong_indexes(index: Any, text: str):
    x = torch.ones(SHAPE)
    with pytest.raises((IndexError, ValueError), match=text):
        x[index]
    if "must be long" not in text:
        with pytest.raises((IndexError, ValueError, RuntimeError), match=text):
            x[index] = 0.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x, i: x.gather(0, i), RuntimeError, "same number of dimensions"),
        (
            lambda x, i: x.gather(0, i[None, None] + 3),
            RuntimeError,
            "index 4 is out of bounds for dimension 0",
        ),
        (lambda x, i: x.gather(0, i[None, None] - 2), RuntimeError, "index -1 is out of bounds"),
        (lambda x, i: x.scatter(0, i, 1.0), RuntimeError, "same number of dimensions"),
        (
            lambda x, i: x.scatter(0, i[None, None], x.double()[:1, :1, :2]),
            RuntimeError,
            "equal to src.dtype",
        ),
        (
            lambda x, i: x.scatter_reduce(0, i[None, None], x, "median"),
            RuntimeError,
            "must be either sum, prod",
        ),
        (lambda x, i: x.index_select(1, i + 3), IndexError, "index out of range"),
        (lambda x, i: x.index_add(0, i, x), RuntimeError, r"Number of indices \(2\) should be equal"),
        (lambda x, i: x.index_copy(0, i, x[:2, :1]), RuntimeError, "same slice shapes"),
        (lambda x, i: x.index_put((i,), i), RuntimeError, "dtypes match, got float32"),
        (lambda x, i: x.take(i + 30), IndexError, "tried to access index 31 on a tensor of 24 elements"),
        (lambda x, i: x.masked_select(i), RuntimeError, "expected BoolTensor for mask"),
        (
            lambda x, i: x.masked_scatter(x > 0, i.float()),
            RuntimeError,
            "Number of elements of source < number of ones in mask",
        ),
        (lambda x, i: x.select(0, 3), IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda x, i: torch.tensor(1.0)[0], IndexError, "invalid index of a 0-dim tensor"),
    ],
)
def test_wrong_places(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call(torch.ones(SHAPE), torch.tensor([1, 0]))


@pytest.mark.parametrize(
    ("reduce", "expected", "gradient"),
    [
        ("sum", [1.0, 0.0, 14.0], [1, 3, 3, 3]),
        ("mean", [1.0, float("nan"), 14 / 3], [1, 1, 1, 1]),
        ("max", [1.0, -float("inf"), 8.0], [1, 0, 0, 3]),
        ("min", [1.0, float("inf"), 2.0], [1, 0, 3, 0]),
        ("prod", [1.0, 1.0, 64.0], [1, 48, 96, 24]),
    ],
)
def test_segments_are_reduced_by_their_lengths_or_offsets(reduce, expected, gradient):
    data = torch.tensor([1.0, 4.0, 2.0, 8.0], requires_grad=True)
    out = torch.segment_reduce(data, reduce, lengths=torch.tensor([1, 0, 3]))
    (out.nan_to_num(0, 0, 0) * torch.tensor([1.0, 0.0, 3.0])).sum().backward()
    torch.testing.assert_close(out, torch.tensor(expected), equal_nan=True)
    torch.testing.assert_close(data.grad, torch.tensor(gradient, dtype=torch.float32))
    rows = torch.stack([data.detach(), data.detach()])
    offsets = torch.tensor([[0, 1, 4], [0, 2, 4]])
    firsts = torch.segment_reduce(rows, "max", offsets=offsets, axis=1)
    assert firsts.tolist() == [[1, 8], [4, 8]]


def test_lengths_of_segments_are_checked():
    data = torch.ones(4)
    with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
        torch.segment_reduce(data, "sum", lengths=torch.tensor([1, 2]))
    assert torch.segment_reduce(data, "sum", lengths=torch.tensor([1, 2]), unsafe=True).tolist() == [1, 2]


def test_places_lie_one_after_another_and_old_masks_are_taken():
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert torch.where(x > 0)[1].stride() == (1,) and x.nonzero().stride() == (1, 3)
    assert x.index_fill(0, torch.tensor([-1]), 9.0).tolist() == [[0, 1], [9, 9]]
    with pytest.warns(UserWarning, match="uint8"):
        assert torch.where(torch.tensor([1, 0], dtype=torch.uint8), 1, 0).tolist() == [1, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, index: x.take(index),
        lambda x, index: x.put(index, torch.ones(2)),
        lambda x, index: x.index_fill(0, index, 1.0),
        lambda x, index: x.index_copy_(0, index, torch.ones(2)),
    ],
)
def test_places_that_are_int64(call):
    assert call(torch.zeros(3), torch.tensor([0, 2])).shape
    with pytest.raises((RuntimeError, IndexError), match="Expected a long tensor for index, but got int32"):
        call(torch.zeros(3), torch.tensor([0, 2], dtype=torch.int32))


def test_places_and_values_of_few_dimensions():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = x * 1
    y[:, np.array(1)].zero_()  # an array without dimensions selects, so this is a view
    y[y > 3] = torch.full((1, 1), 9.0)
    y[[0]] = torch.tensor([[[5.0, 6.0, 7.0]]])
    assert y.tolist() == [[5, 6, 7], [3, 0, 9]]
    y.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [1, 0, 0]]
    with pytest.raises(TypeError, match=r"'values' \(position 2\) must be Tensor, not float"):
        torch.zeros(2).index_put((torch.tensor([0]),), 5.0)


def test_places_that_are_not_zero_in_many_elements():
    x = torch.zeros(3, 40, 50)
    places = [[0, 0, 3], [0, 39, 49], [1, 7, 0], [2, 39, 48]]
    for place in places:
        x[tuple(place)] = 1
    found = x.nonzero()
    assert found.tolist() == places
    assert found.stride() == (1, 4)
    assert not torch.zeros(5000).nonzero().numel()


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("own", [True, False])
def test_many_elements_of_one_place_are_reduced_on_a_gpu(reduce: str, own: bool):
    """Runs within a chunk of 128, over its end, and over many chunks, beside one another."""
    places = torch.cat([torch.full((n,), k) for k, n in enumerate([3, 125, 1, 127, 129, 0, 1500, 2, 300])])
    index = places[torch.randperm(len(places))]
    values, there = (torch.rand(n, dtype=torch.float64) / 50 + 0.99 for n in (len(places), 9))
    expected = there.scatter_reduce(0, index, values, reduce=reduce, include_self=own)
    given = there.cuda(), index.cuda(), values.cuda()
    found = [given[0].scatter_reduce(0, *given[1:], reduce=reduce, include_self=own) for _ in range(2)]
    torch.testing.assert_close(found[0].cpu(), expected)
    assert torch.equal(*found)
    rows = torch.zeros(9, 2, device="cuda", dtype=torch.bfloat16).index_put(
        (given[1],), values.cuda().bfloat16()[:, None].expand(-1, 2), accumulate=True
    )
    assert rows[6].tolist() == [float(values[index == 6].bfloat16().double().sum().bfloat16())] * 2
