"""linspace, and the grids made of it: PyTorch's bits, since a grid at pixel centres decides which pixels count."""

from __future__ import annotations

import numpy as np
import pytest

import ddpgrad

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("start", "end"), [(-1, 1), (1e-4, 0.02), (3, -7), (5, 5)])
def test_linspace_has_the_same_bits(dtype, start, end):
    for steps in (*range(34), 100, 513, 1000):
        found, expected = (
            lib.linspace(start, end, steps, dtype=getattr(lib, dtype)).numpy() for lib in (ddpgrad, torch)
        )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [5, 7, 28, 32])
def test_the_identity_reads_the_same_pixels(size, align_corners):
    image = np.random.default_rng(size).standard_normal((1, 1, size, size)).astype(np.float32)
    results = []
    for lib in (ddpgrad, torch):
        theta = lib.eye(2, 3)[None].requires_grad_()
        grid = lib.nn.functional.affine_grid(theta, (1, 1, size, size), align_corners=align_corners)
        moved = lib.nn.functional.grid_sample(lib.from_numpy(image), grid, align_corners=align_corners)
        (moved * moved).sum().backward()
        results.append((grid.detach().numpy(), theta.grad.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4, atol=1e-4)
