"""Products of float32 made of panels are the numbers' products, for all shapes, strides, stacks and numbers of threads."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ddpgrad as torch
from ddpgrad import environment

if not environment.numba_enabled():
    pytest.skip("DDPGRAD_NUMBA=0 switches the kernels off", allow_module_level=True)

from ddpgrad.backend.cpu.float_product import by, product, worth_it

sizes = st.integers(1, 70)


def matrices(seed: int, stack: int, rows: int, columns: int, order: str) -> np.ndarray:
    """Random numbers whose memory runs as `order` says: along rows, along columns, or with gaps."""
    shape = {
        "rows": (stack, rows, columns),
        "columns": (stack, columns, rows),
        "gaps": (stack, rows, 2 * columns),
    }[order]
    drawn = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return {"rows": drawn, "columns": drawn.swapaxes(1, 2), "gaps": drawn[:, :, ::2]}[order]


def close(out: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    scale = np.abs(left).astype(np.float64) @ np.abs(right)
    assert (np.abs(out - left.astype(np.float64) @ right) <= 1e-6 * scale).all()


orders = st.sampled_from(["rows", "columns", "gaps"])


@given(st.integers(1, 3), sizes, sizes, sizes, orders, orders)
@example(1, 9, 2100, 33, "rows", "columns")  # several panels along the sum
@example(2, 9, 2100, 33, "columns", "rows")
@example(1, 4101, 5, 7, "columns", "gaps")  # more rows than are packed at once
def test_any_shape_and_strides(stack, rows, length, columns, left_order, right_order):
    left, right = (
        matrices(0, stack, rows, length, left_order),
        matrices(1, stack, length, columns, right_order),
    )
    left.flags.writeable = False
    close(product(left, right), left, right)
    assert product(left[0], right[0]).base is None, "a gradient that is a view is copied"
    out = np.full((rows, stack, columns + 1), np.nan, np.float32)
    product(left, right, out[:, :, :-1].swapaxes(0, 1))
    close(out[:, :, :-1].swapaxes(0, 1), left, right)
    assert np.isnan(out[:, :, -1]).all(), "written outside of what was given"


@given(sizes, sizes, st.integers(1, 5), orders, st.integers(1, 2))
@example(16, 64, 4, "columns", 2)
def test_a_matrix_that_is_packed_once(rows, length, panels, order, times):
    left, right = matrices(0, 1, rows, length, "rows")[0], matrices(1, 1, length, 32 * panels, order)[0]
    out = np.full((rows, 32 * panels), np.nan, np.float32)
    by(right, times)(left, out)
    close(out, left, right)


def test_shapes_that_do_not_fit_are_refused():
    x = torch.ones(300, 200)
    for refused in (lambda: x @ x, lambda: torch.ones(2, 300, 200) @ x, lambda: torch.mm(x.T, x.T)):
        with pytest.raises((RuntimeError, ValueError), match=r"size|shape"):
            refused()
    array = x.numpy()
    for left, right in ((array, array), (array[None], np.ones((2, 300, 200), np.float32))):
        with pytest.raises(ValueError, match="does not fit"):
            product(left, right)
    with pytest.raises(ValueError, match="does not fit"):
        product(array, array.T, np.empty((300, 299), np.float32))
    for rows, out in ((np.ones((16, 65)), np.ones((16, 64))), (np.ones((16, 64)), np.ones((16, 96)))):
        with pytest.raises(ValueError, match=r"does not fit|mismatch"):  # NumPy's where vectors are narrow
            by(np.ones((64, 64), np.float32), 2)(rows.astype(np.float32), out.astype(np.float32))


def test_infinities_and_nan_stay_in_their_rows_and_columns():
    left, right = np.ones((40, 40), np.float32), np.ones((40, 40), np.float32)
    left[3, 5], right[7, 39] = np.inf, np.nan
    out = product(left, right)
    assert np.isnan(out[:, 39]).all() and np.isinf(out[3, :39]).all()
    assert np.isfinite(np.delete(out, 3, 0)[:, :39]).all()


def test_the_bits_do_not_depend_on_rows_columns_or_threads():
    x, w = torch.randn(256, 300), torch.randn(300, 512)
    whole = x @ w
    out = np.empty((13, 512), np.float32)  # a tile, half of one, and a line
    by(w.numpy(), 2)(x.numpy()[:13], out)
    if worth_it(x.numpy(), w.numpy()):
        assert np.array_equal(out, whole[:13].numpy())
        assert torch.equal((x[:100] @ w[:, 64:96]), whole[:100, 64:96])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert not worth_it(x.numpy(), w.numpy()) or torch.equal(x @ w, whole)
    finally:
        torch.set_num_threads(before)
