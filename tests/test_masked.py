"""`torch.masked`: what the mask leaves out does not count, whatever it holds."""

import copy
import math
import pickle
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
        with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
            function(whole, 1, dtype=torch.int64)
    for function in (torch.cumsum, torch.cumprod, torch.masked.cumsum):
        with pytest.raises(NotImplementedError, match="bool"):
            function(whole, 1, dtype=torch.bool)


# -- MaskedTensor ------------------------------------------------------------------------------------

DATA = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
THERE = torch.tensor([[True, True, False], [False, True, False]])


def masked(requires_grad: bool = False) -> torch.masked.MaskedTensor:
    return torch.masked.masked_tensor(DATA, THERE, requires_grad=requires_grad)


@pytest.mark.parametrize(
    ("function", "expected", "there"),
    [
        (lambda t: 1 + t * t, [[1, 2, 9], [9, 17, 9]], THERE),
        (lambda t: (t + DATA).t()[1], [2, 8], [True, True]),
        (lambda t: t.exp_().log(), [[0, 1, 9], [9, 4, 9]], THERE),
        (lambda t: t.sum(1), [1, 4], [True, True]),
        (lambda t: t.mean(dim=0), [0, 2.5, 9], [True, True, False]),
        (lambda t: t.argmax(), 4, True),
        (lambda t: t.softmax(1)[1], [9, 1, 9], [False, True, False]),
        (lambda t: torch.cat([t, t], 1)[1], [9, 4, 9, 9, 4, 9], [False, True, False] * 2),
        (lambda t: torch.where(THERE, t, torch.masked.masked_tensor(-DATA, ~THERE)), [[0, 1, -2], [-3, 4, -5]], THERE | True),
        (lambda t: (t.to_sparse() * 2).to_dense(), [[0, 2, 9], [9, 8, 9]], THERE),
        (lambda t: t.to_sparse_csr().exp().to_dense().log(), [[0, 1, 9], [9, 4, 9]], THERE),
        (lambda t: t.to_sparse().sum(), 5, True),
    ],
)  # fmt: skip
def test_functions_of_masked_tensors(function: Any, expected: Any, there: Any):
    out = function(masked())
    assert torch.masked.is_masked_tensor(out)
    assert torch.equal(out.get_mask(), torch.as_tensor(there))
    torch.testing.assert_close(out.to_tensor(9), torch.tensor(expected).to(out.dtype))


@pytest.mark.parametrize(
    "loss",
    [
        lambda t: t.exp().sum(), lambda t: torch.masked.sum(t.exp()), lambda t: t.view(3, 2).exp().sum(0).sum(),
        lambda t: t.to_sparse().to_dense().exp().sum(), lambda t: t.exp().get_data().sum(),
    ],
)  # fmt: skip
def test_gradients_of_masked_tensors_are_masked(loss: Any):
    leaf, plain = masked(requires_grad=True), DATA.clone().requires_grad_()
    for t, owner in ((leaf, leaf), (torch.masked.as_masked_tensor(plain, THERE), plain)):
        loss(t).backward()
        grad: Any = owner.grad
        assert torch.equal(grad.get_mask(), THERE)
        torch.testing.assert_close(grad.to_tensor(0), DATA.exp() * THERE)
    loss(leaf).backward()
    grad = leaf.grad
    torch.testing.assert_close(grad.to_tensor(0), 2 * DATA.exp() * THERE)


def test_how_masked_tensors_print_and_are_copied():
    shown = (
        "MaskedTensor(\n  [\n    [  0.0000,   1.0000,       --],\n    [      --,   4.0000,       --]\n  ]\n)"
    )
    for t in (masked(), copy.deepcopy(masked()), pickle.loads(pickle.dumps(masked()))):
        assert repr(t) == shown
    assert repr(masked()[0, 1]) == "MaskedTensor(  1.0000, True)" and masked()[0, 1].item() == 1


def test_what_means_nothing_to_a_mask_is_refused():
    t = masked()
    with pytest.raises(ValueError, match="masks must match"):
        t + torch.masked.masked_tensor(DATA, ~THERE)
    with pytest.raises(ValueError, match="leaves the element out"):
        t[0, 2].item()
    for call in (
        t.max,
        t.median,
        lambda: t @ DATA.t(),
        lambda: torch.add(DATA, t, out=DATA.clone()),
        t.zero_,
    ):
        with pytest.raises(TypeError):
            call()
    for data, mask, error in (
        (DATA, THERE.int(), "mask must have dtype bool"), (DATA.cfloat(), THERE, "not supported"), (t, THERE, "must be a Tensor"),
        (DATA.to_sparse(), THERE, "same layout"), ((DATA * ~THERE).to_sparse(), THERE.to_sparse(), "same indices"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=error):
            torch.masked.masked_tensor(data, mask)
