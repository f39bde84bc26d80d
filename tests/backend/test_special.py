"""Special functions of our own against SciPy's, and places that are counted against NumPy's."""

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import ddpgrad as torch

SIZES = st.integers(0, 7)


def test_erfinv_is_right_to_seven_digits_up_to_the_ends():
    near = np.linspace(-1, 1, 20_001, dtype=np.float32)
    tails = 1 - np.geomspace(6e-8, 0.1, 1000, dtype=np.float32)
    x = np.concatenate([near, tails, -tails, np.float32([1e-30, 1.5, -2, np.nan])])
    expected = scipy.special.erfinv(x.astype(np.float64))
    np.testing.assert_allclose(torch.erfinv(torch.tensor(x)).numpy(), expected, rtol=5e-7)
    half = torch.tensor(x).bfloat16()
    assert torch.equal(torch.erfinv(half)[100:900], torch.erfinv(half.float()).bfloat16()[100:900])


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 2e-7), (np.float64, 4e-15)])
def test_digamma_is_right_on_both_sides_of_its_poles(dtype, digits):
    x = np.concatenate([np.linspace(-12.3, 60, 5001), np.geomspace(1e-8, 1e30, 500)]).astype(dtype)
    expected = scipy.special.psi(x.astype(np.float64))
    found = torch.digamma(torch.tensor(x)).numpy()
    # Between the poles lie roots, near which the sum of larger numbers is what is left.
    np.testing.assert_allclose(found, expected, rtol=digits, atol=20 * digits)
    odd = torch.digamma(torch.tensor(np.array([0.0, -0.0, -1, -1e20, np.inf, -np.inf, np.nan], dtype)))
    np.testing.assert_array_equal(
        odd.numpy(), np.array([-np.inf, np.inf, np.nan, np.nan, np.inf, np.nan, np.nan])
    )


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 2e-7), (np.float64, 4e-15)])
def test_trigamma_is_right_on_both_sides_of_its_poles(dtype, digits):
    x = np.concatenate([np.linspace(0.01, 60, 5001), np.geomspace(1e-8, 1e15, 500)]).astype(dtype)
    right = scipy.special.polygamma(1, x.astype(np.float64))
    np.testing.assert_allclose(torch.polygamma(1, torch.tensor(x)).numpy(), right, rtol=digits)
    left = np.array([-0.5, -1.5, -2.5], dtype)  # sums of 4 / (2k + 1)**2 from the middle on
    found = torch.polygamma(1, torch.tensor(left)).numpy()
    np.testing.assert_allclose(found, np.pi**2 / 2 + 4 * np.cumsum(1 / np.array([1, 9, 25])), rtol=digits)
    odd = torch.polygamma(1, torch.tensor(np.array([0.0, -1, -1e20, np.inf, np.nan], dtype)))
    np.testing.assert_array_equal(odd.numpy(), np.array([np.inf, np.inf, np.inf, 0, np.nan]))


@given(SIZES, SIZES, st.integers(-9, 9))
def test_places_of_triangles(row: int, col: int, offset: int):
    for ours, theirs in ((torch.tril_indices, np.tril_indices), (torch.triu_indices, np.triu_indices)):
        assert ours(row, col, offset).tolist() == [x.tolist() for x in theirs(row, offset, col)]


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 3e-7), (np.float64, 1e-15)])
def test_logaddexp_of_every_pair_of_odd_numbers(dtype, digits):
    odd = np.array([0, 1, -1, 1e-3, 30, -30, 1e30, -1e30, np.inf, -np.inf, np.nan], dtype)
    x, y = (np.ascontiguousarray(np.tile(side.ravel(), 3)) for side in np.meshgrid(odd, odd))
    found = torch.logaddexp(torch.tensor(x), torch.tensor(y)).numpy()
    np.testing.assert_allclose(found, np.logaddexp(x, y), rtol=digits, atol=digits)


@pytest.mark.parametrize("shape", [(3,), (40, 130), (7, 11, 130), (5000,)])
def test_norms_of_all_and_of_the_last_dimensions(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    exact = np.square(x.astype(np.float64))
    for t in (torch.tensor(x), torch.tensor(x.T.copy()).permute(*reversed(range(x.ndim)))):
        assert t.norm().item() == pytest.approx(np.sqrt(exact.sum()), rel=3e-7)
        rows = torch.linalg.vector_norm(t, dim=-1, keepdim=True).numpy()
        np.testing.assert_allclose(rows, np.sqrt(exact.sum(-1, keepdims=True)), rtol=3e-7)
    assert np.isnan(torch.full((5000,), float("nan")).norm().item())
