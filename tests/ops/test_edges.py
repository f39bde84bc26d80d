"""Tensors without dimensions or elements, norms of 0, masks in arithmetic: as PyTorch, and as numbers say."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "sort-scalar": lambda T: [*T.tensor(2.0).sort(), T.tensor(2.0).argsort(), *T.tensor(2.0).topk(1)],
    "max-scalar": lambda T: [*T.tensor(3).max(0), *T.tensor(3.0).min(dim=-1, keepdim=True)],
    "gather-scalar": lambda T: T.tensor(3.0).gather(0, T.tensor(0)),
    "scatter-scalar": lambda T: T.tensor(3.0).scatter_add(0, T.tensor(0), T.tensor(1.0)),
    "scan-scalar": lambda T: [T.tensor(True).cumsum(0), T.tensor(2.0).flip(0)],
    "nonzero-scalar": lambda T: [T.tensor(3).nonzero(), *T.tensor(3).nonzero(as_tuple=True)],
    "nonzero-tuple": lambda T: T.nonzero(T.tensor([[0, 1], [2, 0]]), as_tuple=True),
    "argsort-stable": lambda T: T.argsort(T.tensor([2, 1, 2]), descending=True, stable=True),
    "bytes": lambda T: [f(T.tensor([200, 100], dtype=T.uint8)) for f in (T.prod, lambda x: x.cumsum(0))],
    "round-integers": lambda T: T.tensor([1, 2]).round(),
    "logsumexp-integers": lambda T: T.tensor([1, 2]).logsumexp(0),
    "split-nothing": lambda T: [*T.zeros(0).chunk(3), *T.zeros(2, 0).split(2, dim=1)],
    "write-nothing": lambda T: T.zeros(4, 0).zero_(),
    "write-expanded-once": lambda T: T.full((1,), 4.0).expand(1, 1).sqrt_(),
    "unflatten": lambda T: T.arange(6).reshape(1, 6).unflatten(-1, (2, -1)),
    "cat-nothing": lambda T: [
        T.cat([T.tensor([]), T.tensor([1, 2])]),
        T.cat([T.tensor([]), T.ones(2, 3, dtype=T.int64)], dim=1),
    ],
    "one-element-in-one-place": lambda T: _written(T),
}


def _written(T: Any) -> Any:
    losses = T.zeros(2, 2)
    losses[0, 1] = T.ones(1)
    losses[1] = T.ones(1, 1)
    return losses


@pytest.mark.torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_pytorch(name: str):
    oracle = pytest.importorskip("torch")
    ours, theirs = (PROGRAMS[name](library) for library in (torch, oracle))
    if isinstance(ours, torch.Tensor):
        ours, theirs = [ours], [theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, repr(a.dtype)) == (b.shape, repr(b.dtype))
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def gradient(function: Callable[[Any], Any], values: Any) -> list[float]:
    x = torch.tensor(values, requires_grad=True)
    function(x).backward()
    return x.grad.tolist()


def test_gradients_where_a_formula_divides_by_zero():
    assert gradient(torch.norm, [0.0, 0.0]) == [0.0, 0.0]
    assert gradient(torch.std, [1.0, 1.0]) == [0.0, 0.0]  # (x - mean) / (std + eps) of equal rewards
    assert gradient(lambda x: torch.nn.functional.cosine_similarity(x, x + 1, dim=0), [0.0, 0.0])[0] > 0
    np.testing.assert_allclose(
        gradient(lambda x: x.norm(dim=1).sum(), [[0.0, 0.0], [3.0, 4.0]]), [[0, 0], [0.6, 0.8]]
    )
    for spread in (torch.var, torch.std):
        with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
            assert math.isnan(gradient(spread, [1.0])[0])
    assert gradient(lambda x: x.prod() + x.sum(), torch.zeros(0).tolist()) == []


def test_gradient_penalty_at_zero_stays_finite():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    (g,) = torch.autograd.grad(x.norm(dim=1).sum(), x, create_graph=True)
    (g * g).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    "call",
    [lambda m: 1 - m, lambda m: m - 1.0, lambda m: torch.ones(2) - m, lambda m: m - m, lambda m: torch.ones(2).sub_(m)],
)  # fmt: skip
def test_masks_are_not_subtracted(call: Callable[[Any], Any]):
    with pytest.raises(RuntimeError, match="the `-` operator, with"):
        call(torch.tensor([True, False]))


def test_expand_and_unflatten_refuse_what_does_not_fit():
    with pytest.raises(RuntimeError):
        torch.ones(2, 3).expand(3, 2)
    with pytest.raises(IndexError, match="unflatten"):
        torch.ones(2, 4).unflatten(-3, (2, 2))


def test_masks_are_bool():
    x, mask = torch.ones(2), torch.tensor([1.0, 0.0])
    filled = "masked_fill only supports boolean masks, but got mask with dtype float32"
    chosen = "where.*expected condition to be a boolean tensor, but got a tensor with dtype float32"
    for message, call in (
        (filled, lambda: x.masked_fill(mask, 0.0)),
        (filled, lambda: x.masked_fill_(mask, 0.0)),
        (chosen, lambda: torch.where(mask, x, x)),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_statistics_of_integers_are_refused():
    for call in (torch.std, torch.var, torch.norm):
        with pytest.raises(RuntimeError, match="floating point"):
            call(torch.tensor([1, 2]))


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 4), (2, 3, 0)])
def test_norms_of_nothing_have_gradients_of_0(shape: tuple[int, ...]):
    for dtype in (torch.float32, torch.bfloat16):
        model = torch.nn.BatchNorm1d(3, dtype=dtype)
        x = torch.zeros(shape, dtype=dtype, requires_grad=True)
        model(x).sum().backward()
        assert x.grad.shape == shape
        assert model.weight.grad.tolist() == model.bias.grad.tolist() == [0.0, 0.0, 0.0]
        assert (model.running_mean.tolist(), model.running_var.tolist()) == ([0.0] * 3, [1.0] * 3)


def test_an_instance_norm_of_nothing_leaves_its_statistics_as_they_are():
    model = torch.nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
    model(torch.zeros(0, 2, 4)).sum().backward()
    assert (model.running_mean.tolist(), model.running_var.tolist()) == ([0.0] * 2, [1.0] * 2)
    assert model.weight.grad.tolist() == [0.0, 0.0]


# One row around 1e5, where neighbouring float32 numbers are 2**-7 apart, and the same row around 0.
_LARGE = [[1e5, 1e5 + 2**-7, 1e5 - 2.0], [0.0, 2**-7, -2.0]]


def test_large_logits_keep_their_digits():
    logits = torch.tensor(_LARGE, requires_grad=True)
    for dim, x in ((1, logits), (0, logits.t())):
        out = torch.nn.functional.log_softmax(x, dim)
        far, near = out if dim else out.t()
        np.testing.assert_allclose(far.tolist(), near.tolist(), rtol=1e-6)
        np.testing.assert_allclose(near.exp().sum().item(), 1, rtol=1e-6)
    for options in ({}, {"label_smoothing": 0.1}, {"weight": torch.ones(3)}):
        logits.grad = None
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 1]), reduction="none", **options)
        losses.sum().backward()
        np.testing.assert_allclose(losses[0].item(), losses[1].item(), rtol=1e-6)
        np.testing.assert_allclose(*logits.grad.numpy(), rtol=1e-5)


def test_unique_consecutive_of_nothing():
    kept = {"return_inverse": True, "return_counts": True}
    assert [tuple(t.shape) for t in torch.unique_consecutive(torch.zeros(0, 0, 3), **kept)] == [
        (0,), (0, 0, 3), (0,),
    ]  # fmt: skip
    assert [tuple(t.shape) for t in torch.zeros(0, 3).unique_consecutive(dim=0, **kept)] == [
        (0, 3),
        (0,),
        (0,),
    ]
    for shape, dim in (((0, 0, 3), 0), ((0, 3), 1)):
        for function in (torch.unique, torch.unique_consecutive):
            with pytest.raises(RuntimeError, match="0 sized dimensions"):
                function(torch.zeros(shape), dim=dim)


def test_shapes_and_warnings_of_few_elements():
    assert F.multi_margin_loss(torch.rand(5), torch.tensor([1]), reduction="none").shape == (1,)
    far = torch.tensor([math.inf, 2.0])
    assert F.hinge_embedding_loss(far, torch.tensor([-1.0, 1.0]), reduction="none").tolist() == [0, 2]
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert torch.cov(torch.arange(5.0), correction=10).item() == math.inf
    with pytest.raises(IndexError):
        torch.tensor(1.0).repeat_interleave(2, dim=0)
    for options in ({"bins": torch.tensor([0, 1, 3])}, {"bins": 4, "weight": torch.ones(2)}):
        with pytest.raises(RuntimeError, match=r"bins tensors should have the same dtype|weight tensor"):
            torch.histogram(torch.arange(3.0), **options)


def test_a_pair_that_is_no_number_does_not_spoil_what_it_does_not_count_in():
    x = torch.tensor([[math.nan, 1.0], [1.0, 1.0]])
    losses = F.cosine_embedding_loss(x, torch.ones(2, 2), torch.tensor([0, 1]), reduction="none")
    assert losses[0].item() == 0
    whole = [torch.tensor(values) for values in ([1, 2], [2, 1], [1, 1])]
    assert F.margin_ranking_loss(*whole).item() == 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_gamma_function_at_minus_infinity(dtype: torch.dtype):
    x = torch.tensor([-math.inf, math.inf, -1.0, 1.0], dtype=dtype)
    assert torch.lgamma(x).tolist() == [math.inf, math.inf, math.inf, 0]


def test_corners_of_linear_algebra():
    assert torch.linalg.cond(torch.empty(2, 0, 0), -1).tolist() == [0.0, 0.0]
    assert torch.linalg.cond(torch.zeros(2, 2), "nuc").item() == math.inf
    infinite = torch.full((2, 2), math.inf)
    assert torch.addmm(torch.ones(2, 2), infinite, infinite, alpha=0).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert torch.einsum(torch.eye(2), [0, 0]).item() == 2.0


def test_gradients_of_bent_activations_at_nan():
    for activation in (F.hardswish, F.elu, F.selu, F.silu):
        for size in (1, 100):
            x = torch.full((size,), math.nan, requires_grad=True)
            assert all(map(math.isnan, torch.autograd.grad(activation(x).sum(), x)[0].tolist())), activation


def test_gradients_of_extremes_beside_nan():
    for function, name in ((torch.maximum, "maximum"), (torch.minimum, "minimum")):
        x = torch.tensor([1.0, math.nan, 2.0], requires_grad=True)
        y = torch.tensor([math.nan, 1.0, 2.0], requires_grad=True)
        function(x, y).sum().backward()
        assert x.grad is not None and y.grad is not None, name
        assert x.grad.tolist() == y.grad.tolist() == [1.0, 1.0, 0.5], name


def test_what_was_not_done_leaves_the_version():
    x = torch.zeros(2, 3, 4)
    with pytest.raises(RuntimeError):
        x.t_()
    assert x._version == 0
    wide, narrow = torch.broadcast_tensors(x, torch.zeros(4))
    assert wide is x and narrow.shape == x.shape


def test_what_has_no_derivative_says_so_in_backward(device: str):
    x = torch.tensor([-3.0, 0.0, 5.0], device=device, requires_grad=True)
    for name, y in {"floor_divide": x // 2, "heaviside": x.heaviside(x + 4)}.items():
        assert y.tolist() == {"floor_divide": [-2, 0, 2], "heaviside": [0, 4, 1]}[name]
        with pytest.raises(NotImplementedError, match=name):
            (x + y).sum().backward()


def test_a_masked_product_with_a_logarithm_has_no_nan_in_its_gradient():
    x, y = torch.tensor([0.5, 2.0], requires_grad=True), torch.tensor([-1.0, 3.0])
    for product in (torch.xlogy, torch.special.xlog1py):
        (g,) = torch.autograd.grad((product(x, y) * torch.tensor([0.0, 1.0])).sum(), x)
        assert g[0] == 0 and g[1] == product(torch.ones(()), y[1])
