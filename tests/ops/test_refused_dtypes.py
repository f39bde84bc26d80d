"""Dtypes that a function is not made for are refused, where its formula would give some number."""

from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F

BOOL, WHOLE, COMPLEX = torch.bool, torch.int64, torch.complex64

CASES: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "gelu": (F.gelu, (BOOL, WHOLE, COMPLEX)),
    "leaky_relu": (F.leaky_relu, (BOOL, WHOLE, COMPLEX)),
    "elu_": (lambda x: F.elu(x, inplace=True), (BOOL, WHOLE, COMPLEX)),
    "softmax": (lambda x: x.softmax(-1), (COMPLEX,)),
    "softplus": (F.softplus, (BOOL, WHOLE, COMPLEX)),
    "abs": (torch.abs, (BOOL,)),
    "hypot": (lambda x: torch.hypot(x, x), (BOOL, WHOLE)),
    "erf": (torch.erf, (COMPLEX,)),
    "clamp": (lambda x: x.clamp(False, True), (BOOL,)),
    "median": (torch.median, (BOOL,)),
    "topk": (lambda x: x.topk(1), (BOOL,)),
    "searchsorted": (lambda x: torch.searchsorted(x[0], x[0]), (BOOL, COMPLEX)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), (WHOLE, COMPLEX)),
    "group_norm": (lambda x: F.group_norm(x, 2), (WHOLE, COMPLEX)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (WHOLE, COMPLEX)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 1])), (WHOLE, COMPLEX)),
    "mse_loss": (lambda x: F.mse_loss(x, x), (WHOLE, COMPLEX)),
    "kl_div": (lambda x: F.kl_div(x, x, reduction="sum"), (WHOLE, COMPLEX)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (BOOL, WHOLE, COMPLEX)),
    "max_pool2d": (lambda x: F.max_pool2d(x[None], 2), (BOOL, COMPLEX)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (BOOL, COMPLEX)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 2), (BOOL, WHOLE, COMPLEX)),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x), (COMPLEX,)),
    "interpolate": (lambda x: F.interpolate(x[None], scale_factor=2), (COMPLEX,)),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str):
    call, refused = CASES[case]
    for dtype in refused:
        with pytest.raises(NotImplementedError, match=f"'{dtype.scalar_type}'"):
            call(torch.ones(2, 4).to(dtype))
    for dtype in (torch.float32, torch.bfloat16):
        call(torch.ones(2, 4, dtype=dtype))


def test_the_widest_operand_counts():
    assert torch.tensor([True]).clamp(0, 1).dtype is torch.int64
    assert torch.logaddexp(torch.tensor([0]), torch.tensor([0.0])).dtype is torch.float32
    assert F.mse_loss(torch.tensor([1]), torch.tensor([0.5])).item() == 0.25
    assert F.max_pool2d(torch.arange(4).reshape(1, 2, 2), 2).tolist() == [[[3]]]
