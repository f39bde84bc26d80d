"""Arithmetic on floats of 16 bits: what float32 arithmetic gives, rounded once."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch

HALVES = [torch.float16, torch.bfloat16]
UNARY = [
    "neg", "abs", "sqrt", "square", "exp", "log", "tanh", "sigmoid", "sin", "erf", "floor", "isnan",
    "rsqrt", "reciprocal",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "lt", "ge", "eq", "pow", "atan2", "remainder",
    "floor_divide",
]  # fmt: skip


def same(out: torch.Tensor, wide: torch.Tensor) -> bool:
    """Whether `out` has the bits of `wide`, rounded to its type; any NaN is as good as another."""
    expected = wide.numpy().astype(out.numpy().dtype)
    return out.shape == wide.shape and bool(((out.numpy() == expected) | (expected != expected)).all())


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_every_16_bit_number(name: str, half: Any):
    every = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(half.numpy)).to(half)
    assert same(getattr(torch, name)(every), getattr(torch, name)(every.float()))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", BINARY)
def test_operands_of_any_layout(name: str, half: Any):
    """Side by side, transposed, every third, from the end, a row and a column and one number for all."""
    torch.manual_seed(0)
    a, b = torch.randn(60, 90).to(half), torch.randn(60, 90).abs().to(half)
    function = getattr(torch, name)
    for x, y in (
        (a, b), (a.t(), b.t()), (a, b.t().reshape(60, 90)), (a[::3], b[::3]), (a[:, ::3], b[:, ::3]),
        (a.flip(0), b), (a, b[0]), (a, b[:, :1]), (a, b[0, 0]), (a[0, 0], b), (a[:0], b[:0]), (a[:1, :1], b),
    ):  # fmt: skip
        assert same(function(x, y), function(x.float(), y.float()))


@pytest.mark.parametrize("half", HALVES)
def test_results_that_are_read_again(half: Any):
    """In place, and NumPy's reductions and running sums, whose inner loops read what they wrote."""
    torch.manual_seed(0)
    x, y = torch.randn(3000).to(half), torch.randn(3000).to(half)
    expected = x + y
    pointer = x.data_ptr()
    x += y
    assert torch.equal(x, expected) and x.data_ptr() == pointer
    array = x.numpy()
    total = array[:1].copy()
    for value in array[1:200]:
        total = total + value
    assert np.add.accumulate(array[:200])[-1] == total[0]
    assert np.maximum.reduce(array) == array.astype(np.float32).max()


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 2)])
def test_sums_are_rounded_once(half: Any, dim: Any):
    torch.manual_seed(0)
    x = torch.randn(30, 40, 50).to(half)
    for function in (torch.sum, torch.mean):
        wide = function(x.double(), dim)
        out = function(x, dim)
        assert out.dtype is half
        torch.testing.assert_close(out.double(), wide, rtol=2 * torch.finfo(half).eps, atol=1e-2)


@pytest.mark.torch
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + 0.1, lambda x: 0.1 - x, lambda x: x * 2.1, lambda x: 2.1 * x, lambda x: x / 3.3,
        lambda x: x // 0.7, lambda x: x.abs() ** 0.7, lambda x: x.clamp(-0.3, 0.7), lambda x: x > 0.1,
        lambda x: x.remainder(0.7), lambda x: x == 0.1, lambda x: x.fmod(0.7), lambda x: x**2,
    ],
)  # fmt: skip
def test_numbers_are_rounded_as_by_pytorch(call: Any, half: str):
    """A sum takes a number in the tensor's type, a product and a quotient in float32."""
    theirs = pytest.importorskip("torch")
    for size in (100, 5000):
        x = theirs.randn(size, generator=theirs.Generator().manual_seed(0))
        ours = torch.from_numpy(x.numpy()).to(getattr(torch, half))
        out, expected = call(ours), call(x.to(getattr(theirs, half)))
        assert str(out.dtype) == str(expected.dtype)
        np.testing.assert_array_equal(out.double().numpy(), expected.double().numpy())


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    "sizes", [(64, 80, 96), (77, 131, 101), (8, 5000, 48), (130, 512, 1), (500, 600, 400)]
)
def test_matrix_products(half: Any, sizes: tuple[int, int, int]):
    """Every order of memory, sizes that fill no panel, sums of several panels, and parts for several threads."""
    torch.manual_seed(0)
    m, k, n = sizes
    a, b, bias = torch.randn(m, k).to(half), torch.randn(k, n).to(half), torch.randn(n).to(half)
    expected = a.double() @ b.double()
    tolerance = {"rtol": 2 * torch.finfo(half).eps, "atol": 1e-3 * k**0.5}
    odd = torch.zeros(m, k + 3).to(half)
    odd[:, 1 : k + 1] = a
    for left in (a, a.t().contiguous().t(), odd[:, 1 : k + 1]):
        for right in (b, b.t().contiguous().t()):
            out = left @ right
            assert out.dtype is half
            torch.testing.assert_close(out.double(), expected, **tolerance)
            assert torch.equal(torch.nn.functional.linear(left, right.t()), out)
    wide = torch.nn.functional.linear(a, b.t().contiguous(), bias)
    torch.testing.assert_close(wide.double(), expected + bias.double(), **tolerance)
    stacked = torch.stack([a, a + 1]) @ torch.stack([b, b])
    torch.testing.assert_close(stacked[0].double(), expected, **tolerance)
    torch.testing.assert_close(a[None] @ b, (a @ b)[None])


@pytest.mark.parametrize("half", HALVES)
def test_products_keep_what_is_no_number(half: Any):
    x, w = torch.ones(64, 64).to(half), torch.ones(64, 64).to(half)
    x[3, 5], x[7, 9] = float("nan"), float("inf")
    out = x @ w
    assert out[3].isnan().all() and out[7].isinf().all() and (out[8] == 64).all()


@pytest.mark.parametrize("half", HALVES)
def test_ops_of_any_number_of_arguments(half: Any):
    x = torch.arange(6.0).to(half)
    assert torch.equal(x.repeat(2, 3), x.float().repeat(2, 3).to(half))
    assert torch.equal(x.tile(2), x.float().tile(2).to(half))


@pytest.mark.torch
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_gradients_beside_numbers_are_pytorchs(half: str):
    theirs = pytest.importorskip("torch")
    x = theirs.randn(5000, generator=theirs.Generator().manual_seed(0))
    g = theirs.randn(5000, generator=theirs.Generator().manual_seed(1))
    for call in (lambda x: x * 2.1, lambda x: 0.3 * x, lambda x: x / 3.3):
        grads = []
        for library, a, b in (
            (torch, torch.from_numpy(x.numpy()), torch.from_numpy(g.numpy())),
            (theirs, x, g),
        ):
            leaf = a.to(getattr(library, half)).requires_grad_()
            call(leaf).backward(b.to(getattr(library, half)))
            grads.append(leaf.grad.double().numpy())
        np.testing.assert_array_equal(*grads)
