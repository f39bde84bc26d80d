"""Result types: the whole table against PyTorch, and the rules for numbers and 0-dimensional tensors."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch

NAMES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
REAL = NAMES[:-2]


@pytest.fixture
def oracle() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.torch
def test_promote_types(oracle: Any):
    for a, b in itertools.product(NAMES, NAMES):
        ours = torch.promote_types(getattr(torch, a), getattr(torch, b))
        assert repr(ours) == repr(oracle.promote_types(getattr(oracle, a), getattr(oracle, b))), (a, b)


def result(library: Any, call: Any) -> Any:
    """(dtype, values) of a call, or 'error'."""
    try:
        out = call(library)
    except RuntimeError:
        return "error"
    return repr(out.dtype), out.tolist()


OPERATIONS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "lt": lambda a, b: a < b,
    "add_": lambda a, b: a.add_(b),
    "sub": lambda a, b: a - b,
    "pow": lambda a, b: (a + 1) ** b,
    "remainder": lambda a, b: a % b,
    "floor_divide": lambda a, b: a // b,
    "trunc_divide": lambda a, b: a.div(b, rounding_mode="trunc"),
    "copysign": lambda a, b: a.copysign(b),
    "bitwise_and": lambda a, b: a & b,
    "lshift": lambda a, b: a << b,
    "maximum": lambda a, b: a.maximum(b),
    "float_power": lambda a, b: a.float_power(b),
    "clamp": lambda a, b: a.clamp(b),
    "where": lambda a, b: a.where(a == a, b),
    "mul_": lambda a, b: a.mul_(b),
    "div_": lambda a, b: a.div_(b),
}


@pytest.mark.torch
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_on_all_pairs(operation: str, oracle: Any):
    """Tensors with dimensions, without, and both ways round."""
    call = OPERATIONS[operation]
    for a, b in itertools.product(REAL, REAL):
        for left, right in (([1, 1], [1, 1]), ([1, 1], 1), (1, [1, 1]), (1, 1)):
            if operation.endswith("_") and not isinstance(left, list) and isinstance(right, list):
                continue

            def run(library: Any, a: str = a, b: str = b, left: Any = left, right: Any = right) -> Any:
                x = library.tensor(left, dtype=getattr(library, a))
                y = library.tensor(right, dtype=getattr(library, b))
                return call(x, y)

            assert result(torch, run) == result(oracle, run), (a, b, left, right)


@pytest.mark.torch
def test_numbers(oracle: Any):
    for name, number, shape in itertools.product(REAL, (True, 2, -3, 2.5), ([1, 1], 1)):
        for operation in ("add", "mul", "div", "add_", "remainder", "floor_divide", "bitwise_and", "where"):
            call = OPERATIONS[operation]

            def run(
                library: Any, name: str = name, number: Any = number, shape: Any = shape, call: Any = call
            ) -> Any:
                return call(library.tensor(shape, dtype=getattr(library, name)), number)

            assert result(torch, run) == result(oracle, run), (name, number, shape, operation)
        for reflected in (lambda n, t: n + t, lambda n, t: n - t, lambda n, t: n / t, lambda n, t: n * t):

            def run(
                library: Any,
                name: str = name,
                number: Any = number,
                shape: Any = shape,
                call: Any = reflected,
            ) -> Any:
                return call(number, library.tensor(shape, dtype=getattr(library, name)))

            if result(oracle, run) != "error":  # PyTorch refuses number - bool tensor
                assert result(torch, run) == result(oracle, run), (name, number, shape)


def test_default_dtype_decides_for_numbers_and_integers():
    i = torch.tensor([1, 2])
    torch.set_default_dtype(torch.float64)
    try:
        narrow = torch.ones(2, dtype=torch.float32)
        assert (narrow * 1j).dtype is (1j + narrow[0]).dtype is torch.complex64, "no wider than the tensor"
        assert (i * 0.5).dtype is torch.float64
        assert (i / 2).dtype is torch.float64
        assert torch.tensor(1.0).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert (i * 0.5).dtype is torch.float32
    assert (
        torch.ones(2, dtype=torch.float16) * torch.tensor(0.5, dtype=torch.float64)
    ).dtype is torch.float16


def test_numpy_beside_tensors():
    t = torch.ones(3, requires_grad=True)
    n = np.full(3, 2.0)
    for out in (n * t, t * n, n + t, n - t, n / t, n**t):
        assert isinstance(out, torch.Tensor) and out.dtype is torch.float64 and out.requires_grad
    (n * t).sum().backward()
    assert t.grad.tolist() == [2.0] * 3
    assert (np.float64(2) * t).dtype is torch.float32, "a NumPy scalar is a number"
    d = t.detach()
    assert isinstance(np.add(d, d), torch.Tensor) and np.add(d, 1).dtype is torch.float32
    assert np.sqrt(d).tolist() == [1.0] * 3
    assert isinstance(np.asarray(d), np.ndarray) and np.shares_memory(np.asarray(d), d.numpy())
    assert np.array(d, dtype=np.int32).dtype == np.int32
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        np.sin(t)
    with pytest.raises(TypeError, match="no tensor can hold a NumPy array of dtype"):
        d + np.array(["a"] * 3)


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = draw(st.lists(st.integers(0, 3), max_size=4))
    shapes = []
    for _ in range(2):
        shape = [1 if draw(st.booleans()) else n for n in full]
        shapes.append(tuple(shape[draw(st.integers(0, len(shape))) :]))
    return shapes[0], shapes[1]


@settings(max_examples=150)
@given(broadcastable())
def test_broadcasting_and_its_gradient(shapes: tuple[tuple[int, ...], tuple[int, ...]]):
    a, b = (np.arange(float(np.prod(s))).reshape(s) + 1 for s in shapes)
    x, y = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    out = x * y
    np.testing.assert_array_equal(out.detach().numpy(), a * b)
    out.sum().backward()
    full = np.broadcast_shapes(*shapes)
    for leaf, other in ((x, b), (y, a)):
        lead = len(full) - leaf.ndim
        spread = np.broadcast_to(other, full)
        dims = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(leaf.shape) if n == 1)
        np.testing.assert_allclose(
            leaf.grad.numpy(), spread.sum(axis=dims, keepdims=True).reshape(leaf.shape)
        )


def test_what_is_looked_for_may_have_another_type():
    halves = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    for others in (torch.tensor([2.5], dtype=torch.float16), torch.tensor([2.5, 7.0], dtype=torch.float64)):
        assert torch.isin(halves, others).tolist() == [False, True]
    assert torch.isin(torch.tensor([1, 2]), halves).tolist() == [True, False]
    with pytest.raises(RuntimeError, match="Subtraction"):
        torch.sub(halves, halves > 2, alpha=2)
