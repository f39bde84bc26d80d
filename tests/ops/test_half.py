"""16-bit floating-point numbers: ops keep the type, compute in float32 and round once."""

from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F

CASES: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "softplus": F.softplus,
    "sinc": torch.sinc,
    "leaky_relu": F.leaky_relu,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (6,), x[0, 0, 0], x[0, 0, 1]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "linear": lambda x: F.linear(x, x[0, 0], x[0, 0, :, 0]),
    "loss": lambda x: F.binary_cross_entropy_with_logits(x, x.abs()),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_one_rounding(case: str, dtype: Any, device: str) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(2, 4, 5, 6)).to(device=device, dtype=dtype).requires_grad_()
    out = CASES[case](x)
    wanted = CASES[case](x.detach().float())
    assert out.dtype is dtype
    ulp = torch.finfo(dtype).eps
    # Tensor cores take the probabilities of attention in 16 bits, so that each adds half an ulp of its value.
    least = float(x.detach().abs().max()) if (case, device) == ("attention", "cuda") else 1e-2
    assert torch.allclose(out.detach().float(), wanted, rtol=ulp, atol=ulp * least)
    out.sum().backward()
    assert x.grad.dtype is dtype


SEVERAL: dict[str, Callable[[Any], Any]] = {
    "addmm": lambda x: torch.addmm(x[0, 0, 0, :5], x[0, 1], x[0, 2].mT, beta=3.4, alpha=-2.1),
    "baddbmm": lambda x: torch.baddbmm(x[0, :, :, :5], x[0], x[1].mT, alpha=0.3),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, x.transpose(0, 1), x[0, 0, 0, :2]),
    "reflect": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
    "nearest": lambda x: F.interpolate(x, (7, 3), mode="nearest"),
    "add": lambda x: x.clone().add_(x.flip(0), alpha=0.75),
    "addcmul": lambda x: x.addcmul(x.flip(0), x.flip(1), value=0.3),
    "addcdiv": lambda x: x.mT.addcdiv(x.flip(0).mT, x.abs().mT),
    "lerp": lambda x: x.lerp(x.flip(0), 0.3),
    "lerp_": lambda x: x.clone().lerp_(x.flip(1), x.flip(2)),
    "index_add": lambda x: x[0].index_add(1, torch.arange(60) % 3, x[1].repeat(1, 12, 1)),
    "index_put": lambda x: x[0].index_put((torch.arange(60) % 3,), x[1].repeat(15, 1, 1), accumulate=True),
    "scatter_add": lambda x: x[0].scatter_add(
        1, torch.arange(5).repeat(4, 12)[..., None], x[1].repeat(1, 12, 1)
    ),
    "scatter_reduce": lambda x: x[0].scatter_reduce(
        1, torch.arange(5).repeat(4, 12)[..., None], x[1].repeat(1, 12, 1), "prod"
    ),
    "gradient of x[i, j]": lambda x: gradient(
        lambda y: y[[0, 1] * 30, [1] * 60] * x.repeat(30, 1, 1, 1)[:, 2], x
    ),
    "gradient of unfold": lambda x: gradient(lambda y: y.unfold(3, 4, 1) * x[..., :3, None], x),
}


def gradient(f: Callable[[Any], Any], x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    f(leaf).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("case", SEVERAL)
def test_what_is_made_of_several_ops_rounds_once_too(case: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6).bfloat16()
    assert torch.equal(SEVERAL[case](x), SEVERAL[case](x.float()).bfloat16())


def test_norms_may_have_parameters_in_float32() -> None:
    x, weight = torch.randn(3, 6).bfloat16().requires_grad_(), torch.randn(6, requires_grad=True)
    out = F.layer_norm(x, (6,), weight)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert torch.nn.BatchNorm1d(6)(x).dtype is torch.bfloat16


NORMS: dict[str, Callable[..., Any]] = {
    "layer": lambda x, *p: F.layer_norm(x, (6,), *p),
    "group": lambda x, *p: F.group_norm(x, 2, *p),
    "batch": lambda x, *p: F.batch_norm(x, None, None, *p, training=True),
    "rms": lambda x, *p: F.rms_norm(x, (6,), p[0]) + p[1],
}


@pytest.mark.parametrize("norm", NORMS)
def test_float32_parameters_of_a_norm_of_bfloat16_have_gradients_of_float32(norm: str, device: str) -> None:
    torch.manual_seed(0)
    x, g = (torch.randn(4, 6, 6, device=device).bfloat16() for _ in range(2))
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        parameters = [torch.full((6,), n, device=device, requires_grad=True) for n in (1.25, 0.5)]
        NORMS[norm](x.to(dtype), *parameters).backward(g.to(dtype))
        found.append([p.grad for p in parameters])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sizes_may_be_given_one_by_one(dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([1.0, 2.0], dtype=dtype, device=device, requires_grad=True)
    out = x.repeat(2, 2)
    out.sum().backward()
    assert (out.tolist(), out.dtype, x.grad.tolist()) == ([[1, 2, 1, 2]] * 2, dtype, [4, 4])


@pytest.mark.parametrize("count", [3, 9000])  # NumPy replaces few, a compiled loop many
def test_nan_to_num_knows_bfloat16(count: int) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=torch.bfloat16).repeat(count // 3)
    top = torch.finfo(torch.bfloat16).max
    assert x.nan_to_num()[:3].tolist() == [0, top, -top]
    assert x.nan_to_num(nan=1, posinf=2)[:3].tolist() == [1, 2, -top]


def test_matrices_and_sets_of_16_bit_numbers() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        out = torch.linalg.matrix_exp(torch.zeros(2, 2, dtype=dtype))
        assert out.dtype is dtype and out.tolist() == [[1, 0], [0, 1]]
        with pytest.raises(NotImplementedError, match="det"):
            torch.linalg.det(torch.ones(2, 2, dtype=dtype))
        many = torch.tensor([float("nan")] * 12 + [0.0] + [float("inf")] * 12, dtype=dtype)
        assert torch.isin(torch.tensor([float("inf"), 1.0, 0.0], dtype=dtype), many).tolist() == [
            True,
            False,
            True,
        ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [3, 5000])
def test_numbers_keep_their_digits_in_place_too(count: int, dtype: torch.dtype) -> None:
    x = torch.linspace(0.5, 400, count).to(dtype)
    for number in (0.9999, 1 / 3):
        expected = (x.float() * torch.tensor(number)).to(dtype)
        assert torch.equal(x.clone().mul_(number), expected) and torch.equal(x * number, expected)
        assert torch.equal(x.clone().div_(number), (x.float() / torch.tensor(number)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [3, 5000])
def test_one_number_in_a_tensor_keeps_its_digits(count: int, dtype: torch.dtype) -> None:
    x = torch.linspace(0.5, 4, count).to(dtype).requires_grad_()
    third = torch.tensor(1 / 3, requires_grad=True)
    by_third = (x.detach().float() * (1 / 3)).to(dtype)
    assert torch.equal(x * third, by_third) and torch.equal(x.detach().clone().mul_(third), by_third)
    assert torch.equal(torch.mul(x.detach(), third.detach(), out=torch.empty_like(x)), by_third)
    assert torch.equal(x / third.double(), (x.detach().float() / torch.tensor(1 / 3)).to(dtype))
    assert torch.div(x, third, rounding_mode="floor").dtype is dtype
    many = torch.tensor([3001])
    assert torch.equal(x * many, (x.detach().float() * 3001).to(dtype))
    (x * third).backward(x.detach())
    assert x.grad is not None and torch.equal(x.grad, by_third)
    assert third.grad is not None and third.grad.dtype is torch.float32


def test_captured_steps_compute_16_bit_factors_anew() -> None:
    scale = torch.tensor(1.0)

    def step(x: torch.Tensor) -> torch.Tensor:
        return (x * scale / 3).mul_(0.9999)

    captured = torch.captured_step(step, warmup=1)
    # Equal arguments at first: what a recording took for a constant would show only later.
    for first, factor in ((0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (1.5, 1.0), (0.5, 1 / 3), (1.5, 0.1)):
        x = torch.linspace(first, 4, 2000).half()
        scale.fill_(factor)
        assert torch.equal(captured(x), step(x))
    assert captured.why_not is None


def test_captured_steps_round_to_16_bits_anew() -> None:
    captured = torch.captured_step(lambda x: x.clamp(0.75, 3.5) + 1, warmup=1)
    for first in (0.5, 0.5, 0.5, 1.5):
        x = torch.linspace(first, 4, 20).bfloat16()
        assert torch.equal(captured(x), x.clamp(0.75, 3.5) + 1)
    assert captured.code and captured.why_not is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_beside_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, 2.0], dtype=dtype, requires_grad=True)
    (g,) = torch.autograd.grad((3 / x).sum(), x, create_graph=True)
    assert g.tolist() == [-12, -0.75] and torch.autograd.grad(g.sum(), x)[0].tolist() == [48, 0.75]
    (g,) = torch.autograd.grad(torch.pow(1.0, x).sum(), x, create_graph=True)
    assert g.tolist() == [0, 0] and torch.autograd.grad(g.sum(), x)[0].tolist() == [0, 0]
    weight = torch.ones(2, dtype=torch.float64)
    assert torch.nn.functional.rms_norm(x, (2,), weight).dtype is dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_beside_large_expanded_tensors(dtype: torch.dtype) -> None:
    row, column = torch.arange(1000).to(dtype), torch.arange(1000)[:, None].to(dtype)
    for x in (
        row.expand(3, 1000),
        column.expand(1000, 3),
        row.view(10, 1, 100).expand(10, 4, 100),
        row.expand(3, 1000).t(),
    ):
        plain = torch.tensor(x.tolist(), dtype=dtype)
        for wise in (lambda x: x * 0.3, lambda x: x / 3, lambda x: 0.5 - x, lambda x: x + 1):
            assert wise(x).tolist() == wise(plain).tolist() and wise(x).is_contiguous()
