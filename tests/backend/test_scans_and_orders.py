"""Running sums and extremes, orders, first few, distinct, added and combined elements of large arrays: as NumPy has them."""

import itertools
from typing import Any

import numpy as np
import pytest

from ddpgrad.backend.elementary import elementary
from ddpgrad.backend.registry import backend_of

NUMPY = elementary(np)
SHAPES = [(5000,), (60, 90), (7, 30, 40)]


def arrays(shape: tuple[int, ...], dtype: Any) -> list[np.ndarray[Any, Any]]:
    """Numbers; many equal ones, with infinities, nan and zeros of both signs among them."""
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(shape).astype(dtype)
    odd = plain.round(1)
    for start, value in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0)):
        odd.reshape(-1)[start :: 97 + start] = value
    return [plain, odd]


def first_few(x: np.ndarray[Any, Any], k: int, dim: int, largest: bool) -> None:
    """The values of a sort. Which of equal ones are chosen is tested by itself."""
    expected = np.take_along_axis(x, NUMPY["argsort"](x, dim, largest).take(range(k), dim), dim)
    places = backend_of("cpu").topk_positions(x, k, dim, largest)
    np.testing.assert_array_equal(np.take_along_axis(x, places, dim), expected)
    assert (np.diff(np.sort(places, dim), axis=dim) > 0).all()


def same(name: str, *args: Any, rtol: float = 0.0) -> None:
    found, expected = getattr(backend_of("cpu"), name)(*args), NUMPY[name](*args)
    for mine, theirs in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, expected)], strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_along_each_dimension(shape: tuple[int, ...], dtype: Any):
    plain, odd = arrays(shape, dtype)
    for dim, size in enumerate(shape):
        for x in (plain, odd):
            for largest in (True, False):
                same("running_position", x, dim, largest)
                same("argsort", x, dim, largest)
                for k in (1, 5, min(64, size)):
                    first_few(x, k, dim, largest)
            same("amax", x, dim)
            same("amin", x, dim, True)
            with np.errstate(invalid="ignore"):
                same("cumprod", x, dim, rtol=1e-4)
                same("logcumsumexp", x, dim, rtol=1e-4)
            where = np.random.default_rng(1).permuted(np.arange(x.size).reshape(shape) % size, axis=dim)
            same("scatter_src", x, dim, where, x * 2)
            same("scatter_src", x, dim, where, 3.0)
            same("gather", x, dim, where)
            for reduce, own in itertools.product(("prod", "amax", "amin"), (True, False)):
                same("scatter_reduce_by", x, dim, where // 2, x * 2, reduce, own)
        same("cumsum", plain, dim, rtol=1e-4)
        same("prod", plain, dim, rtol=1e-4)
    same("nan_to_num", odd, 0.5, None, -3.0)
    same("sign", odd)
    same("unique", np.where(odd != odd, 7, odd), None)  # each nan is one of its own, in an order that is open


@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_orders_of_integers_of_any_size(kind: str):
    known = np.iinfo(kind)
    wide = np.random.default_rng(0).integers(known.min, known.max, 6000, kind, endpoint=True)
    for x in (wide, wide % 7, np.full(6000, 3, kind)):
        for descending in (False, True):
            same("argsort", x, -1, descending)
        first_few(x, 9, 0, True)
        same("unique", x, None)


def test_slices_are_added_in_order_at_places_that_may_be_negative():
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(np.float32)
        for dim, size in enumerate(shape):
            places = rng.integers(-size, size, (50, 40))
            value = rng.standard_normal((*shape[:dim], 50, 40, *shape[dim + 1 :])).astype(np.float32)
            same("index_put_add", x, (slice(None),) * dim + (places,), value)
        places = tuple(rng.integers(-size, size, (50, 40)) for size in shape[:2])
        same(
            "index_put_add",
            x,
            places,
            rng.standard_normal((50, 40, *shape[2:])).astype(np.float32),
            rtol=1e-5,
        )
    with pytest.raises(IndexError, match="out of bounds"):
        backend_of("cpu").index_put_add(np.zeros(5), np.arange(2000), np.zeros(2000))
