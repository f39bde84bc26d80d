"""Sums with a weight, in one pass: rounded where PyTorch rounds, written in place or to a new array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.core.environment import numba_enabled

compiled = pytest.mark.skipif(not numba_enabled(), reason="portable kernels round each product")
WEIGHT = 0.3
SIZES = [(1000,), (7, 300), (600, 700)]


def once(x: Any) -> Any:
    """Rounded to float32, as float64."""
    return np.asarray(x).astype(np.float32).astype(np.float64)


W = float(np.float32(WEIGHT))
FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda a, b, c: a.add(b, alpha=WEIGHT), lambda a, b, c: a + W * b),
    "sub": (lambda a, b, c: a.sub(b, alpha=WEIGHT), lambda a, b, c: a - W * b),
    "add_": (lambda a, b, c: a.clone().add_(b, alpha=WEIGHT), lambda a, b, c: a + W * b),
    "sub_": (lambda a, b, c: a.clone().sub_(b, alpha=WEIGHT), lambda a, b, c: a - W * b),
    "addcmul_": (lambda a, b, c: a.clone().addcmul_(b, c, value=WEIGHT), lambda a, b, c: a + once(W * b) * c),
    "addcdiv_": (lambda a, b, c: a.clone().addcdiv_(b, c, value=WEIGHT), lambda a, b, c: a + once(once(W * b) / c)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=WEIGHT), lambda a, b, c: a + once(W * b) * c),
    "lerp_": (lambda a, b, c: a.clone().lerp_(b, WEIGHT), lambda a, b, c: a + W * once(b - a)),
    "lerp by each": (
        lambda a, b, c: a.lerp(b, c),
        lambda a, b, c: np.where(c < 0.5, a + c * once(b - a), b - once(b - a) * once(1 - c)),
    ),
}  # fmt: skip


@compiled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FORMULAS)
def test_products_are_not_rounded_before_their_sum(name: str, size: tuple[int, ...]) -> None:
    a, b, c = torch.randn(size), torch.randn(size), torch.rand(size) + 0.25
    compute, formula = FORMULAS[name]
    expected = formula(*(x.double().numpy() for x in (a, b, c))).astype(np.float32)
    assert (compute(a, b, c).numpy() == expected).all()


def test_what_is_written_in_place_is_what_is_returned() -> None:
    a, b = torch.randn(300, 5), torch.randn(300, 5)
    for x, y in (
        (a, b),
        (a.t(), b.t()),
        (a[::2], b[::2]),
        (a.double(), b),
        (a, b[:1]),
        (a.bfloat16(), b.bfloat16()),
    ):
        for name, others, options in (
            ("add", (y,), {"alpha": 0.7}),
            ("sub", (y,), {"alpha": -2}),
            ("addcmul", (y, y), {"value": 0.7}),
            ("addcdiv", (y, y.abs() + 1), {"value": 0.7}),
        ):
            kept = x.clone()
            address = kept.data_ptr()
            assert getattr(kept, f"{name}_")(*others, **options).data_ptr() == address
            assert torch.equal(kept, getattr(torch, name)(x, *others, **options))


def test_a_whole_way_ends_at_the_end() -> None:
    a, b = torch.randn(500) * 1e4, torch.randn(500)
    for size in (500, 9):  # with the compiled kernel, and without
        assert torch.equal(a[:size].lerp(b[:size], 1.0), b[:size])
        assert torch.equal(a[:size].lerp(b[:size], torch.ones(size)), b[:size])


def test_numbers_beside_16_bit_floats_are_rounded_as_these() -> None:
    a, b = torch.randn(200).half(), torch.randn(200).half()
    factor = float(np.float16(0.7))
    expected = (a.double() + factor * b.double()).float().half()
    assert torch.equal(a.add(b, alpha=0.7), expected) and torch.equal(a.clone().add_(b, alpha=0.7), expected)
    with pytest.raises(RuntimeError, match="Integer division"):
        torch.ones(3).addcdiv_(torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64))


def test_a_factor_before_its_operands_goes_with_two_of_them() -> None:
    x = torch.full((3,), 2.0)
    with pytest.warns(UserWarning, match="factor before the operands"):
        assert x.clone().addcmul_(0.5, x, x).tolist() == torch.addcmul(x, 0.5, x, x).tolist() == [4.0] * 3
        with pytest.raises(TypeError, match="takes at most 4 arguments, got 5"):
            torch.addcdiv(x, 2, x, x, x)
