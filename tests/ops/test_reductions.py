"""Reductions, order and statistics where they are easy to get wrong: ties, nan, zeros, nothing, 16 bits; named results."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch

NAN, INF = float("nan"), float("inf")


def _gradients(T: Any, function: Callable[[Any], Any], values: Any, order: int = 2) -> list[Any]:
    """The first and perhaps second gradient of a weighted sum."""
    x = T.tensor(values, dtype=T.float64, requires_grad=True)
    out = function(x)
    weights = T.arange(1.0, out.numel() + 1, dtype=T.float64).reshape(out.shape)
    (first,) = T.autograd.grad((out * weights).sum(), x, create_graph=True)
    if order == 1 or not first.requires_grad:
        return [first]
    return [first, *T.autograd.grad((first * first).sum(), x)]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    # ties and nan
    "max-ties": lambda T: [*T.tensor([[2.0, 1.0, 2.0], [NAN, 3.0, NAN]]).max(1), T.tensor([1, 3, 3]).argmax()],
    "argmin-nan": lambda T: [T.tensor([2.0, NAN, 1.0]).argmin(), T.tensor([2.0, NAN]).min(), T.tensor([1, 0]).argmin()],
    "max-bool": lambda T: [*T.tensor([False, True, True]).max(0), *T.tensor([True, False]).min(0)],
    "cummax": lambda T: [*T.cummax(T.tensor([1.0, 3.0, 3.0, NAN, 5.0, NAN]), 0), *T.cummin(T.tensor([2, 2, 1, 1]), 0)],
    "median": lambda T: [*T.tensor([[3.0, 1.0, 2.0, 4.0], [NAN, 1.0, 2.0, 3.0]]).median(1), T.tensor([NAN, 1.0]).median(),
                         *T.tensor([[NAN, 2.0, 1.0], [NAN, NAN, NAN]]).nanmedian(1)],
    "mode": lambda T: [*T.tensor([[3, 1, 2, 2, 1, 3], [5, 5, 4, 4, 4, 1]]).mode(1)],
    "sort-nan": lambda T: [*T.tensor([2.0, NAN, 1.0, -INF]).sort(), *T.tensor([2.0, NAN, 1.0]).sort(descending=True),
                           *T.tensor([NAN, 1.0, 3.0]).topk(2)],
    "topk-long": lambda T: [*(T.arange(600) * 7919 % 601).topk(5), *(T.arange(600.0) * 7919 % 601).topk(3, largest=False)],
    "quantile-nan": lambda T: [f(T.tensor([[1.0, NAN, 3.0], [0.0, 1.0, 5.0]]), T.tensor([0.3, 1.0]), d, keepdim=True)
                               for f in (T.quantile, T.nanquantile) for d in (0, 1, None)],
    "unique": lambda T: [*T.unique(T.tensor([NAN, 1.0, NAN, 1.0]), return_inverse=True, return_counts=True),
                         *T.unique(T.tensor([[1, 2], [0, 3], [1, 2]]), dim=0, return_inverse=True, return_counts=True),
                         *T.unique_consecutive(T.tensor([1, 1, 2, 1]), return_inverse=True, return_counts=True)],
    "searchsorted": lambda T: [T.searchsorted(T.tensor([[1, 3, 3, 5], [0, 0, 2, 2]]), T.tensor([[3, 9, 0], [0, 2, 1]]), right=r)
                               for r in (False, True)] + [T.bucketize(T.tensor([1.0, 2.0, NAN]), T.tensor([1.0, 2.0]))],
    "extremum-gradient": lambda T: [g for f in (lambda x: x.amax(0), lambda x: x.max(0).values, lambda x: x.max(), T.median)
                                    for g in _gradients(T, f, [2.0, 1.0, 2.0])],
    # zeros and infinities
    "prod-zeros": lambda T: [g for v in ([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]],) for f in (T.prod, lambda x: x.prod(1))
                             for g in _gradients(T, f, v)],
    "cumprod-zeros": lambda T: _gradients(T, lambda x: x.cumprod(0), [2.0, 0.0, 3.0, 0.0, 5.0], 1),
    "logcumsumexp-nothing-yet": lambda T: [T.tensor([-INF, -INF, 0.5, -INF, 900.0]).logcumsumexp(0)],
    "logsumexp-infinite": lambda T: [T.tensor([[-INF, -INF], [1.0, INF]]).logsumexp(1)],
    "norms-at-zero": lambda T: [g for p in (0.5, 1, 1.5, 2, 3, INF)
                                for g in _gradients(T, lambda x, p=p: x.norm(p, 1), [[0.0, 0.0], [3.0, -4.0]], 1)],
    "cdist-of-the-same": lambda T: [g for r in (2, 30) for g in _gradients(T, lambda x: T.cdist(x, x), [[1.0, 2.0]] * r, 1)],
    # nothing
    "empty": lambda T: [T.zeros(0).sum(), T.zeros(0).prod(), T.zeros(0).mean(), T.zeros(2, 0).amax(0), T.zeros(0).median(),
                        T.zeros(0).norm(), T.zeros(0, 3).all(0), T.zeros(0, 3).any(), T.zeros(0, 3).var(0), *T.zeros(0, 3).cummax(0),
                        T.zeros(0).logsumexp(0), T.zeros(3, 0).argmax(0), T.unique(T.zeros(0)), T.bincount(T.zeros(0, dtype=T.int64), minlength=2)],
    # 16 bits: sums in float32, rounded once
    "narrow": lambda T: [f(T.full((70000,), 1.5, dtype=d)).float() for d in (T.float16, T.bfloat16)
                         for f in (T.mean, T.sum, T.var, lambda x: x.norm(3), lambda x: x.cumsum(0)[-1])],
    # how arguments are given
    "forms": lambda T: [f(T.arange(6.0).reshape(2, 3)) for f in (
        lambda x: T.std(x, 0, True), lambda x: T.var(x, 0, False, True), lambda x: x.var(False), lambda x: x.std(unbiased=False),
        lambda x: x.var(1, correction=0), lambda x: x.sum(axis=(0, 1), keepdims=True), lambda x: x.max(axis=1).values,
        lambda x: x.sum(dtype=T.int64), lambda x: x.prod(0, dtype=T.float64), lambda x: x.cumsum(1, dtype=T.int32),
        lambda x: x.any(dim=()), lambda x: T.var_mean(x, 1, keepdim=True)[1], lambda x: T.max(x, x * 0 + 2), lambda x: x.norm(dim=(0, 1)))],
    "integers": lambda T: [f(T.tensor([[3, 1], [2, 2]], dtype=d)) for d in (T.uint8, T.int32, T.bool) for f in (
        T.sum, T.prod, T.nansum, T.amax, T.all, T.count_nonzero, lambda x: x.cumsum(0), lambda x: x.sum(0), lambda x: x.cumprod(1))],
    "histograms": lambda T: [T.histc(T.tensor([1.0, 2.0, 2.0, 5.0]), 4, 1, 5), T.histc(T.tensor([3.0, 3.0]), 2),
                             *T.histogram(T.tensor([0.0, 1.0, 2.0, 3.0]), 3, range=(0.0, 3.0), density=True),
                             T.bincount(T.tensor([1, 1, 3]), weights=T.tensor([0.5, 1.0, 2.0]))],
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_pytorch(name: str):
    oracle = pytest.importorskip("torch")
    for a, b in zip(PROGRAMS[name](torch), PROGRAMS[name](oracle), strict=True):
        assert (tuple(a.shape), repr(a.dtype)) == (tuple(b.shape), repr(b.dtype))
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-12)


def test_cumprod_with_zeros_has_a_second_gradient():
    """sum_j w_j * (x_1 … x_j) is linear in each x: the Hessian against differences of the gradient."""
    values = [2.0, 0.0, 3.0, 0.0, 5.0]
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)

    def gradient(x: Any) -> Any:
        return torch.autograd.grad((x.cumprod(0) * weights).sum(), x, create_graph=True)[0]

    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    for i, row in enumerate(gradient(x)):
        found: Any = torch.autograd.grad(row, x, retain_graph=True)[0]
        for j in range(5):
            up, down = (torch.tensor(values, dtype=torch.float64) for _ in range(2))
            up[j] += 0.5
            down[j] -= 0.5
            difference = gradient(up.requires_grad_())[i] - gradient(down.requires_grad_())[i]
            assert found[j].item() == pytest.approx(difference.item(), abs=1e-9)


def test_gradient_of_logcumsumexp_where_nothing_was_added_yet():
    x = torch.tensor([-INF, 0.0, 800.0], requires_grad=True)
    g: Any = torch.autograd.grad(x.logcumsumexp(0)[1:].sum(), x)[0]
    assert g.tolist() == [0.0, 1.0, 1.0]


def test_nan_and_infinity_reach_the_gradient_of_logsumexp():
    for v in (NAN, INF):
        x = torch.tensor([v, 1.0, 0.0], requires_grad=True)
        x.logsumexp(0).backward()
        assert x.grad is not None and x.grad[0].isnan()
        assert x.grad[1:].isnan().all() if v is NAN else x.grad[1:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_statistics_of_many_elements(dtype: Any):
    x = np.random.default_rng(0).standard_normal((5, 1501)).astype(dtype) * 30 + 1000
    for given, dim in ((x, 1), (x, None), (x.reshape(-1), 0)):
        wide, mine = given.astype(np.float64), torch.from_numpy(given)
        np.testing.assert_allclose(mine.var(dim), wide.var(dim, ddof=1), rtol=1e-4)
        np.testing.assert_allclose(mine.std(dim, correction=0), wide.std(dim), rtol=1e-4)
        every = tuple(range(given.ndim)) if dim is None else dim
        np.testing.assert_allclose(
            mine.logsumexp(every), np.logaddexp.reduce(wide, dim if dim is not None else None), rtol=1e-6
        )
    x[0, 0], x[1, 7], x[2, :], x[3, 1:] = -np.inf, np.inf, -np.inf, -np.inf
    x[3, 0] = x[4, 3] = -np.float64(np.nan)  # which processors make of inf - inf
    assert torch.from_numpy(x).logsumexp(1).isnan().tolist() == [False, False, False, True, True]
    assert torch.from_numpy(x).logsumexp(1)[1:3].tolist() == [INF, -INF]


def test_named_results():
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]], requires_grad=True)
    result = x.max(1)
    assert repr(result) == (
        "torch.return_types.max(\nvalues=tensor([2., 4.], grad_fn=<MaxBackward0>),\nindices=tensor([1, 0]))"
    )
    values, indices = result
    assert values is result.values is result[0] and indices is result.indices
    assert isinstance(x.sort(), torch.return_types.sort) and isinstance(result, tuple)
    assert torch.return_types.topk((values, indices)) == torch.return_types.topk(values, indices)
    into = torch.empty(2), torch.empty(2, dtype=torch.int64)
    assert x.detach().max(1, out=into).values is into[0] and into[1].tolist() == [1, 0]


def test_indices_that_were_changed_do_not_misplace_a_gradient():
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]], requires_grad=True)
    values, indices = x.max(1)
    indices.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


def test_topk_chooses_among_equal_elements_as_pytorch_does():
    short = torch.tensor([0.0, 1, 1, 0, 1, 0, 1, 0])
    assert short.topk(6).indices.tolist() == [1, 6, 4, 2, 7, 3]
    assert torch.zeros(2, 8).topk(3).indices.tolist() == [[6, 5, 4]] * 2
    assert torch.zeros(64, 3).topk(8, 0).indices[:, 1].tolist() == [44, 41, 42, 43, 46, 47, 40, 45]
    assert torch.tensor([NAN, 1, NAN, 2, NAN]).topk(2).indices.tolist() == [2, 4]
    for dtype in (torch.int64, torch.bfloat16):
        long = (torch.arange(300) * 7 % 5).to(dtype).repeat(5, 1)
        for k, largest, places in (
            (4, True, [12, 7, 17, 2]),
            (9, False, [215, 230, 225, 80, 220, 85, 210, 205, 95]),
        ):
            assert long.topk(k, largest=largest).indices.tolist() == [places] * 5
    assert (torch.arange(20) * 7 % 20).topk(6, sorted=False).indices.tolist() == [5, 11, 8, 17, 14, 2]
    x = torch.zeros(4, requires_grad=True)
    x.topk(1).values.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.zeros(0).max(), RuntimeError, r"max\(\): Expected reduction dim to be specified"),
        (lambda: torch.zeros(0, 3).max(0), IndexError, r"max\(\): Expected reduction dim 0 to have non-zero size"),
        (lambda: torch.zeros(0).argmax(), IndexError, "Expected reduction dim to be specified"),
        (lambda: torch.zeros(0, 3).median(0), IndexError, "non-zero size"),
        (lambda: torch.zeros(2).sum(1), IndexError, r"expected to be in range of \[-1, 0\], but got 1"),
        (lambda: torch.zeros(2, 2).sum((0, -2)), RuntimeError, "dim 0 appears multiple times"),
        (lambda: torch.tensor([1, 2]).mean(), RuntimeError, "could not infer output dtype.*Got: Long"),
        (lambda: torch.tensor([True]).argmax(), RuntimeError, "does not support bool"),
        (lambda: torch.zeros(3).topk(4), RuntimeError, "selected index k out of range"),
        (lambda: torch.zeros(3).kthvalue(4), RuntimeError, "selected number k out of range"),
        *(
            (lambda name=name: getattr(torch.ones(2, 3), name)(0, 1), TypeError, rf"{name}\(\).*Give several dims as a tuple")
            for name in ("sum", "mean", "prod", "amax", "argmax")
        ),
        (lambda: torch.zeros(3).quantile(1.5), RuntimeError, r"q must be in the range \[0, 1\]"),
        (lambda: torch.tensor([1, 2]).quantile(0.5), RuntimeError, "either float or double"),
        (lambda: torch.bincount(torch.tensor([-1])), RuntimeError, "non-negative integral"),
        (lambda: torch.cdist(torch.zeros(2, 3), torch.zeros(2, 2)), RuntimeError, "same number of columns. X1: 3 X2: 2"),
        (lambda: torch.histc(torch.tensor([NAN])), RuntimeError, "not finite"),
        (lambda: torch.unique(torch.tensor(1.0), dim=0), IndexError, "tensor has no dimensions"),
        (lambda: torch.zeros(0, 3).quantile(0.5, dim=1), RuntimeError, "must be non-empty"),
    ],
)  # fmt: skip
def test_errors(call: Callable[[], Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()


def test_integers_are_close_by_their_difference_which_does_not_wrap():
    big, byte = torch.tensor([2**62]), torch.tensor([0, 255], dtype=torch.uint8)
    assert not torch.allclose(big, -big) and torch.allclose(big, big, rtol=0, atol=0)
    assert torch.isclose(byte, byte.flip(0), rtol=0, atol=2).tolist() == [False, False]
    assert torch.isclose(torch.tensor([True]), torch.tensor([False]), atol=1).item()


def test_the_sum_of_a_transposed_matrix_lies_in_order():
    x = torch.arange(6000.0).reshape(100, 60).t()
    for dim, stride, first in ((0, (100, 1), 1770.0), (1, (1, 1), 297000.0)):
        total = x.sum(dim, keepdim=True)
        assert total.stride() == stride
        assert total[0, 0] == first == x.sum(dim)[0]


def test_the_sum_without_nan_where_there_is_some():
    x = torch.ones(100, 60)
    x[3, 4], x[5] = torch.nan, torch.inf
    assert x.nansum(1).tolist() == [60.0] * 3 + [59.0] + [60.0] + [torch.inf] + [60.0] * 94
    assert x.median().isnan()
    assert x.nanmedian() == 1.0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "dim"), [((33, 5000), 0), ((5000, 70), (0,)), ((3000, 1), -2), ((40, 3, 5), (1, 0))]
)
def test_first_dimensions_are_summed_in_one_launch_on_a_gpu(shape: tuple[int, ...], dim: Any, dtype: Any):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    y, want = x.cuda(), x.double().sum(dim, keepdim=True)
    fakecuda = sys.modules.get("fakecuda")
    before = fakecuda.counters()["launches"] if fakecuda else 0
    found = [y.sum(dim, keepdim=True) for _ in range(3)]
    assert fakecuda is None or fakecuda.counters()["launches"] - before == 3
    for total in found:
        assert total.dtype is dtype and total.shape == want.shape and torch.equal(total, found[0])
        off = (total.cpu().double() - want).abs()
        assert (off <= 2 * torch.finfo(dtype).eps * x.double().abs().sum(dim, keepdim=True)).all()
