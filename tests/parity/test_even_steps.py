"""linspace, and the grids made of it: PyTorch's bits, since a grid at pixel centres decides which pixels count."""

import numpy as np
import pytest
from both import agree


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("start", "end"), [(-1, 1), (1e-4, 0.02), (3, -7), (5, 5)])
def test_linspace_has_the_same_bits(dtype, start, end):
    for steps in (*range(34), 100, 513, 1000):
        agree(lambda t, n=steps: t.linspace(start, end, n, dtype=getattr(t, dtype)), 0.0)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [5, 7, 28, 32])
def test_the_identity_reads_the_same_pixels(size, align_corners):
    image = np.random.default_rng(size).standard_normal((1, 1, size, size)).astype(np.float32)

    def program(lib):
        theta = lib.eye(2, 3)[None].requires_grad_()
        grid = lib.nn.functional.affine_grid(theta, (1, 1, size, size), align_corners=align_corners)
        moved = lib.nn.functional.grid_sample(lib.from_numpy(image), grid, align_corners=align_corners)
        (moved * moved).sum().backward()
        return grid.detach().tolist(), theta.grad

    agree(program, 1e-4)
