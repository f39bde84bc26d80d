"""Kernels by tensor cores: attention and convolutions in 16 bits, against the CPU in float64."""

from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import cuda

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("lead", "rows", "columns", "depth", "width"),
    [((2, 3), 70, 70, 32, 32), ((), 130, 100, 64, 40), ((2, 1, 2), 33, 129, 128, 128), ((2,), 1, 5, 8, 8)],
)
def test_attention_by_tiles(lead, rows, columns, depth, width, dtype, causal):
    """Whatever does not fill the tiles, and parts of one tensor whose heads lie beside one another."""
    q, k, v = (
        torch.randn(*lead, n, d).to(dtype) for n, d in ((rows, depth), (columns, depth), (columns, width))
    )
    g = torch.randn(*lead, rows, width).to(dtype)
    results = {}
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        given = [x.to(device, kind).requires_grad_() for x in (q, k, v)]
        if lead and device == "cuda":  # as the parts of a product: (batch, T, heads, D)
            given = [
                x.detach().transpose(-3, -2).contiguous().transpose(-3, -2).requires_grad_() for x in given
            ]
        out = F.scaled_dot_product_attention(*given, is_causal=causal)
        out.backward(g.to(device, kind))
        results[device] = [out, *(x.grad for x in given)]
    for found, expected in zip(results["cuda"], results["cpu"], strict=True):
        assert found.dtype is dtype
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max().clamp_min(1)
        assert error < (2e-3 if dtype is torch.float16 else 1.2e-2)


def test_attention_by_tiles_keeps_no_scores():
    """Nor does any other keep more than those of some heads."""
    x = torch.randn(1, 512, 32, device="cuda", dtype=torch.float16, requires_grad=True)
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    F.scaled_dot_product_attention(x, x, x).sum().backward()
    assert cuda.max_memory_allocated() - before < 512 * 512


@pytest.mark.parametrize("lead", [(4,), (1, 3)])
def test_attention_of_some_heads_at_a_time(lead, monkeypatch):
    from ddpgrad.backend.cuda import attention

    q, k, v = (torch.randn(*lead, 5, 4, device="cuda", requires_grad=True) for _ in range(3))

    def run() -> list[Any]:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [out, *torch.autograd.grad(out.square().sum(), (q, k, v))]

    at_once = run()
    monkeypatch.setattr(attention, "_SCORES", 100)
    assert all(torch.equal(a, b) for a, b in zip(run(), at_once, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("function", "image", "weight", "options"),
    [
        (F.conv1d, (3, 24, 30), (16, 24, 5), {"padding": 2}),
        (F.conv2d, (2, 16, 13, 12), (70, 16, 3, 3), {"padding": 1, "stride": 2, "dilation": 2}),
        (F.conv2d, (2, 64, 9, 8), (64, 32, 1, 1), {"stride": 2, "groups": 2}),
        (F.conv2d, (9, 16, 40, 40), (16, 16, 3, 3), {"padding": 1}),
        (F.conv3d, (1, 16, 5, 6, 7), (16, 16, 2, 3, 1), {"padding": (1, 0, 2), "stride": (1, 2, 1)}),
        (F.conv_transpose2d, (2, 32, 5, 4), (32, 16, 4, 4), {"padding": 1, "stride": 2}),
    ],
)
def test_convolution_by_tiles(function, image, weight, options, dtype):
    """Edges, strides, dilation and groups; more pixels, channels and places than one tile has."""
    x, w = torch.randn(*image).to(dtype), torch.randn(*weight).to(dtype)
    bias = [] if function is F.conv_transpose2d else [torch.randn(weight[0]).to(dtype)]
    results = {}
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        given = [t.to(device, kind).requires_grad_() for t in (x, w, *bias)]
        out = function(*given, **options)
        out.backward(torch.linspace(-1, 1, out.numel()).to(dtype).to(device, kind).view(out.shape))
        results[device] = [out, *(t.grad for t in given)]
    for found, expected in zip(results["cuda"], results["cpu"], strict=True):
        assert found.dtype is dtype
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < (1e-3 if dtype is torch.float16 else 8e-3)


def test_a_table_that_one_stream_fills_is_not_what_another_reads():
    """Nobody waits here: each stream has tensors of its own, which were there before."""
    x = torch.randn(2, 16, 7, 9, device="cuda", dtype=torch.float16)
    weight = torch.randn(16, 16, 3, 3, device="cuda", dtype=torch.float16)
    stream = cuda.Stream()
    cuda.synchronize()
    with cuda.stream(stream):
        aside = F.conv2d(x, weight)
    here = F.conv2d(x, weight).cpu()
    cuda.synchronize()
    assert torch.equal(here, aside.cpu()) and here.isfinite().all()
