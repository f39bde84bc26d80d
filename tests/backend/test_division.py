"""What divisions leave, functions of float64 in whole vectors, and repeated rows: against NumPy's own."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.backend.cpu.threads import threads

Array = np.ndarray[Any, Any]
DIVISIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (torch.remainder, np.remainder),
    (torch.fmod, np.fmod),
    (torch.floor_divide, np.floor_divide),
]


@pytest.fixture(autouse=True)
def one_thread_at_the_end() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def pairs(dtype: Any) -> tuple[Array, Array]:
    """Every pair of odd numbers, and quotients of 0 to twice as many bits as the type has digits."""
    limits, rng, count = np.finfo(dtype), np.random.default_rng(0), 20_000
    odd = [
        0,
        1,
        0.1,
        3,
        7.5,
        1e6 + 1,
        np.inf,
        np.nan,
        limits.max,
        limits.tiny,
        limits.smallest_subnormal,
        1 - limits.eps / 2,
    ]
    a, b = (x.ravel() for x in np.meshgrid(*[np.array(odd + [-x for x in odd], dtype)] * 2))
    bits = 2 * limits.nmant
    wide = rng.standard_normal(count) * 2.0 ** rng.integers(0, bits, count)
    whole = rng.integers(-100, 100, count), rng.integers(1, 10, count)
    return (
        np.concatenate([a, wide, rng.standard_normal(count), whole[0]]).astype(dtype),
        np.concatenate([b, rng.standard_normal((2, count)).ravel(), whole[1]]).astype(dtype),
    )


def same_bits(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    known = expected == expected
    np.testing.assert_array_equal(found == found, known)
    assert found[known].tobytes() == expected[known].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_divisions_leave_has_the_bits_of_fmod(dtype: Any):
    a, b = pairs(dtype)
    for ours, numpys in DIVISIONS:
        with np.errstate(all="ignore"):
            same_bits(ours(torch.tensor(a), torch.tensor(b)).numpy(), numpys(a, b))
            for number in (2.5, -3.0, 0.1):
                same_bits(ours(torch.tensor(a), number).numpy(), numpys(a, dtype(number)))
        rows = a[:60_000].reshape(200, 300), b[:300]
        with np.errstate(all="ignore"):
            same_bits(ours(*map(torch.tensor, rows)).numpy(), numpys(*rows))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_divisions_of_integers_up_to_the_largest(dtype: Any):
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    edges = np.array([limits.min, limits.min + 1, -7, -1, 1, 2, 7, limits.max - 1, limits.max], dtype)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    large = rng.integers(limits.min, limits.max, 8_000, dtype)
    a = np.concatenate([a, large[:4_000], large[:4_000]])
    b = np.concatenate([b, large[4_000:] | 1, rng.integers(1, 1000, 4_000, dtype)])
    same_bits(torch.remainder(torch.tensor(a), torch.tensor(b)).numpy(), np.remainder(a, b))
    with np.errstate(over="ignore"):  # the smallest by -1
        same_bits(torch.floor_divide(torch.tensor(a), torch.tensor(b)).numpy(), np.floor_divide(a, b))
    same_bits(torch.remainder(torch.tensor(a), -7).numpy(), np.remainder(a, dtype(-7)))
    b[5_000] = 0
    with pytest.raises(RuntimeError, match="divided by zero"):
        torch.remainder(torch.tensor(a), torch.tensor(b))


def test_functions_of_float64_are_right_to_the_last_digits():
    rng = np.random.default_rng(0)
    near, far = rng.standard_normal(20_000), rng.uniform(-700, 700, 20_000)
    wide = np.concatenate([near, far, 10.0 ** rng.uniform(-20, 18, 20_000), np.pi / 2 * np.arange(1, 3_000)])
    long = np.longdouble

    def check(name: str, x: Array, found: Any, expected: Any, units: float) -> None:
        expected = expected.astype(np.float64)
        error = np.abs(found.numpy() - expected) / np.spacing(np.maximum(np.abs(expected), 1e-300))
        assert error.max() <= units, (name, x[error.argmax()], error.max())

    x = np.concatenate([near, far])
    check("sigmoid", x, torch.sigmoid(torch.tensor(x)), 1 / (1 + np.exp(-x.astype(long))), 4)
    check("elu", x, torch.nn.functional.elu(torch.tensor(x)), np.where(x > 0, x, np.expm1(x.astype(long))), 4)
    check(
        "softplus",
        x,
        torch.nn.functional.softplus(torch.tensor(x), threshold=1e9),
        np.logaddexp(long(0), x.astype(long)),
        4,
    )
    for ours, theirs in ((torch.sin, np.sin), (torch.cos, np.cos)):
        check(theirs.__name__, wide, ours(torch.tensor(wide)), theirs(wide.astype(long)), 2)
    few = torch.tensor(near[:900])  # SciPy's
    np.testing.assert_allclose(
        torch.erf(torch.tensor(near))[:900].numpy(), torch.erf(few).numpy(), rtol=1e-15
    )
    odd = torch.tensor([np.inf, -np.inf, np.nan, 0.0, 800.0, -800.0] * 300)
    odd = odd.double()
    assert torch.erf(odd)[:4].tolist()[:2] == [1.0, -1.0] and torch.sigmoid(odd)[
        [0, 1, 3, 4, 5]
    ].tolist() == [1, 0, 0.5, 1, 0]
    assert all(f(odd)[:3].isnan().all() for f in (torch.sin, torch.cos)) and torch.rsqrt(odd)[
        [0, 3]
    ].tolist() == [0, np.inf]


REPEATED = [
    ((300, 400), (400,)), ((300, 400), (300, 1)), ((9_000, 7), (7,)), ((9_000, 7), (9_000, 1)), ((3, 50_000), (3, 1)),
    ((20, 30, 40), (1, 30, 1)), ((20, 30, 5, 40), (30, 5, 1)), ((20, 30, 40), (20, 1, 40)), ((200, 1), (1, 300)), ((50_000,), (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "other"), REPEATED)
def test_what_is_repeated_has_the_bits_of_a_copy(shape: tuple[int, ...], other: tuple[int, ...]):
    torch.set_num_threads(2)
    assert threads() == 2  # from here on NumPy is asked after us
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8", "f2", "i8", "i4", "u1", "?"):
        a, b = ((rng.standard_normal(s) * 9).astype(dtype) for s in (shape, other))
        full = [np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b)]
        for function in (np.add, np.multiply, np.less, np.maximum):
            for first, second, wide in ((a, b, full), (b, a, full[::-1])):
                same_bits(function(first, second), function(*wide))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.divide(np.ones(shape, "f4"), np.zeros(other, "f4"))


def test_large_arrays_move_as_small_ones():
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    line = torch.arange(400_000)
    line[:] = line.numpy()[::-1]  # of the same memory
    assert line[:3].tolist() == [399_999, 399_998, 399_997] and line[-1] == 0
    for dtype in ("f4", "f8", "?", "i4", "u1"):
        x = (rng.standard_normal((6, 70, 500)) * 3).astype(dtype)
        for layout in (x, x.transpose(2, 0, 1), x[:, ::2], np.concatenate([x, x])[:, :, 1:]):
            t = torch.from_numpy(layout)
            np.testing.assert_array_equal(t.clone().numpy(), layout)
            np.testing.assert_array_equal(t.to(torch.float64).numpy(), layout.astype("f8"))
            target = torch.empty(layout.shape, dtype=t.dtype)
            np.testing.assert_array_equal(target.copy_(t).numpy(), layout)
            np.testing.assert_array_equal(target.fill_(1).numpy(), np.ones(layout.shape, dtype))
        t = torch.from_numpy(x)
        for dims in ((2,), (0, 2), (1,)):
            np.testing.assert_array_equal(t.flip(dims).numpy(), np.flip(x, dims))
        for diagonal in (-80, -3, 0, 5, 600):
            np.testing.assert_array_equal(t.tril(diagonal).numpy(), np.tril(x, diagonal))
            np.testing.assert_array_equal(t.triu(diagonal).numpy(), np.triu(x, diagonal))
        np.testing.assert_array_equal(
            torch.cat([t, t[:, :, :9]], 2).numpy(), np.concatenate([x, x[:, :, :9]], 2)
        )
