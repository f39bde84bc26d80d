"""Messages of errors that programs, and PyTorch's own tests, look for: what is wrong is said in PyTorch's words."""

from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.nn import functional as F

MATRIX = torch.arange(6.0).reshape(2, 3)
IMAGES = torch.ones(2, 2, 5)
CLASSES = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: MATRIX.reshape(5, -1, -1), RuntimeError, "only one dimension can be inferred"),
        (lambda: torch.ones(0).view(0, -1), RuntimeError, r"into shape \[0, -1\] because the unspecified dimension"),
        (lambda: MATRIX.narrow(0, 3, 1), IndexError, r"start out of range \(expected .* \[-2, 2\], but got 3\)"),
        (lambda: torch.hsplit(MATRIX, 2), RuntimeError, "torch.hsplit attempted to split along dimension 1"),
        (lambda: torch.vsplit(MATRIX[0], 1), RuntimeError, "torch.vsplit requires a tensor with at least 2 dimension"),
        (lambda: MATRIX.movedim((0, -2), (0, 1)), RuntimeError, r"repeated dim in `source` \(\[0, -2\]\)"),
        (lambda: torch.gradient(MATRIX, dim=(0, 0)), RuntimeError, "dim 0 appears multiple times"),
        (lambda: torch.broadcast_tensors(MATRIX, torch.ones(2)), RuntimeError, r"size of tensor a \(3\) must match"),
        (lambda: torch.isclose(MATRIX, MATRIX, atol=-1.0), RuntimeError, "atol must be greater than or equal to zero"),
        (lambda: MATRIX[0].dot(MATRIX[0].double()), RuntimeError, "same dtype, but found Float and Double"),
        (lambda: torch.complex(MATRIX, MATRIX.int()), RuntimeError, "but got Float and Int"),
        (lambda: torch.nanmean(MATRIX, dtype=torch.int64), RuntimeError, "Optional dtype .* Got: Long"),
        (lambda: torch.cat([MATRIX], out=torch.empty(2, 3).long()), TypeError, "input types can't be cast .* Long"),
        (lambda: torch.fft.fft(torch.tensor(1.0)), IndexError, "Dimension specified as -1 but tensor has no dimensions"),
        (lambda: torch.linalg.cross(MATRIX, MATRIX[:, :2]), RuntimeError, "inputs dimension -1 must have length 3"),
        (lambda: MATRIX.tril(1.5), TypeError, "int"),
        (lambda: MATRIX.rot90(0.5), TypeError, "int"),
        (lambda: MATRIX["0":"1"], TypeError, "slice indices"),
        (lambda: MATRIX.index_put(([0],), MATRIX[0]), TypeError, "expected Tensor as element 0 in argument 0"),
        (lambda: MATRIX.index_add(0, CLASSES[:1], MATRIX[0, 0]), RuntimeError, r"self.shape = \[2, 3\] source.shape = \[\]"),
        (lambda: MATRIX.index_copy(0, CLASSES[:1], MATRIX[0, 0]), RuntimeError, "same slice shapes"),
        (lambda: MATRIX[0, 0].index_select(0, CLASSES[:0]), RuntimeError, r"1 value, got 0 value\(s\)"),
        (lambda: MATRIX.gather(1, torch.zeros(3, 1).long()), RuntimeError, "Size does not match at dimension 0"),
        (lambda: torch.unravel_index(MATRIX, (2, 2)), TypeError, "expected 'indices' to be integer"),
        (lambda: torch.unravel_index(CLASSES, CLASSES), TypeError, "expected 'shape' to be int or sequence"),
        (lambda: torch.unravel_index(CLASSES, (1, 2.0)), TypeError, "sequence to only contain ints"),
        (lambda: torch.unravel_index(CLASSES, (2, -3)), ValueError, r"negative values, but got \(2, -3\)"),
        (lambda: torch.multinomial(torch.zeros(2), 1), RuntimeError, "invalid multinomial distribution"),
        (lambda: torch.multinomial(-torch.ones(2), 1), RuntimeError, "either `inf`, `nan` or element < 0"),
        (lambda: torch.multinomial(torch.ones(2), 3), RuntimeError, "cannot sample n_sample > prob_dist"),
        (lambda: torch.Generator().set_state(5), TypeError, "expected a torch.ByteTensor, but got int"),
        (lambda: torch.distributions.Multinomial(-1, torch.ones(2)), ValueError, "total_count"),
        (lambda: torch.empty(2).exponential_(0.0), RuntimeError, "expects lambda > 0.0, but found lambda=0"),
        (lambda: torch.empty(2).normal_(0.0, -1.0), RuntimeError, "expects std >= 0.0, but found std -1"),
        (lambda: torch.empty(2).uniform_(3, -1), RuntimeError, "but found from=3.* > to=-1"),
        (lambda: F.max_pool1d(IMAGES, 2, padding=-1), RuntimeError, "pad must be non-negative"),
        (lambda: F.max_pool1d(IMAGES, 2, stride=0), RuntimeError, "stride must be greater than zero, but got 0"),
        (lambda: F.max_pool1d(IMAGES, 9, stride=1), RuntimeError, "Invalid computed output size: -3"),
        (lambda: F.max_pool1d(IMAGES[0, 0], 2), RuntimeError, r"Expected 2D or 3D \(batch mode\) tensor"),
        (lambda: F.adaptive_avg_pool2d(MATRIX, (1, 1)), ValueError, "Input dimension should be at least 3"),
        (lambda: F.conv1d(IMAGES, torch.ones(2, 2, 2), groups=3), RuntimeError, "weight to be at least 3 at dimension 0"),
        (lambda: F.conv1d(IMAGES, MATRIX), RuntimeError, "weight should have at least three dimensions"),
        (lambda: F.layer_norm(MATRIX, ()), RuntimeError, "normalized_shape to be at least 1-dimensional"),
        (lambda: F.l1_loss(MATRIX, MATRIX, reduction="abc"), ValueError, "abc is not a valid value for reduction"),
        (lambda: F.multi_margin_loss(MATRIX, CLASSES, weight=MATRIX), ValueError, "weight must be one-dimensional"),
        (lambda: F.multi_margin_loss(MATRIX, MATRIX[:, 0]), RuntimeError, "scalar type Long but found Float"),
        (lambda: F.softshrink(MATRIX, -0.5), RuntimeError, r"lambda must be in range \[0, .*found -0.5"),
    ],
)  # fmt: skip
def test_words(call: Callable[[], Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()
