"""Large arrays of different shapes: what is put before NumPy's ufuncs computes what NumPy does of copies of equal shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch
from ddpgrad.backend.cpu import repeated_rows

SIZES = st.sampled_from([1, 2, 5, 64, 300])


@st.composite
def two_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that fit one another, of which either may be repeated, also both."""
    full = draw(st.lists(SIZES, min_size=1, max_size=4).filter(lambda s: 1 << 14 < np.prod(s) < 1 << 18))
    first, second = (tuple([1 if draw(st.booleans()) else n for n in full]) for _ in range(2))
    return first, second[draw(st.integers(0, len(second) - 1)) :]


@pytest.fixture(autouse=True, scope="module")
def put_before_numpys() -> None:
    repeated_rows.install()


@settings(max_examples=150)
@given(two_shapes(), st.sampled_from(["add", "mul", "sub", "maximum", "lt"]), st.booleans())
def test_both_may_be_repeated(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], name: str, turned: bool
) -> None:
    a, b = (torch.rand(shape) for shape in (shapes[::-1] if turned else shapes))
    size = np.broadcast_shapes(a.shape, b.shape)
    function = getattr(torch, name)
    assert torch.equal(function(a, b), function(a.expand(size).contiguous(), b.expand(size).contiguous()))


def test_the_larger_array_may_be_repeated_too() -> None:
    a, b = torch.rand(400, 1, 400), torch.rand(400, 8, 1)
    assert (a * b).shape == (400, 8, 400) and (b.numpy() * a.numpy()).shape == (400, 8, 400)
