"""`torch.masked`: what the mask leaves out does not count, whatever it holds."""

import math
from typing import Any

import pytest

import ddpgrad as torch

x = torch.tensor([[1.0, math.nan, 4.0], [math.inf, 2.0, math.nan]], dtype=torch.float64)
KEPT = torch.tensor([[True, False, True], [False, False, False]])
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", [5.0, 0.0]), ("prod", [4.0, 1.0]), ("amax", [4.0, -INF]), ("amin", [1.0, INF]), ("argmax", [2.0, 0.0]),
        ("mean", [2.5, NAN]), ("median", [1.0, NAN]), ("norm", [17**0.5, 0.0]), ("var", [4.5, NAN]), ("std", [4.5**0.5, NAN]),
        ("logsumexp", [math.log(math.exp(1) + math.exp(4)), -INF]), ("cumsum", [[1.0, 1.0, 5.0], [0.0] * 3]),
        ("softmax", [[1 / (1 + math.exp(3)), 0.0, 1 / (1 + math.exp(-3))], [NAN] * 3]),
        ("normalize", [[1 / 17**0.5, 0.0, 4 / 17**0.5], [0.0] * 3]),
    ],
)  # fmt: skip
def test_elements_that_are_masked_out_do_not_count(name: str, expected: Any):
    function = getattr(torch.masked, name)
    options = {"ord": 2.0} if name == "normalize" else {}
    out = function(x, dim=1, mask=KEPT, **options)
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64), equal_nan=True)
    # A mask is broadcast, and gradients flow to what it keeps alone.
    if out.is_floating_point() and name != "argmax":
        leaf = torch.tensor([[3.0, 1.0, 2.0]], requires_grad=True)
        function(leaf, dim=1, mask=KEPT[0], **options).sum().backward()
        assert leaf.grad is not None and leaf.grad[0, 1] == 0 and leaf.grad.isfinite().all()


def test_masks_and_dtypes_that_do_not_fit_are_refused():
    with pytest.raises(IndexError, match="broadcastable mask"):
        torch.masked.sum(x, mask=KEPT[None])
    with pytest.raises(ValueError, match="floating point or complex"):
        torch.masked.mean(x.long())
    with pytest.raises(TypeError, match="no order"):
        torch.masked.amax(x.cfloat(), mask=KEPT)
    whole = torch.masked.sum(x.nan_to_num(0).int(), (), mask=KEPT)
    assert whole.dtype is torch.int64 and whole.item() == 5


def test_dtypes_that_a_function_does_not_compute_in():
    whole, kept = torch.tensor([[5, 1, 3]]), torch.tensor([[True, False, True]])
    assert torch.masked.median(whole, 1, mask=kept).tolist() == [3] and torch.masked.median(
        whole, 1
    ).tolist() == [3]
    with pytest.raises(ValueError, match="keeps nothing"):
        torch.masked.median(whole, 1, mask=kept & False)
    for function in (torch.softmax, torch.log_softmax, torch.masked.softmax):
        with pytest.raises(NotImplementedError, match="not implemented for int64"):
            function(whole, 1, dtype=torch.int64)
    for function in (torch.cumsum, torch.cumprod, torch.masked.cumsum):
        with pytest.raises(NotImplementedError, match="bool"):
            function(whole, 1, dtype=torch.bool)
