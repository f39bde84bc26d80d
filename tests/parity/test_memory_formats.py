"""Where results lie in memory: strides as PyTorch has them, for tensors in channels_last and other orders."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ddpgrad

Call = Callable[
    [Any, Any, Any], Any
]  # of the library, a tensor of (4, 6, 8, 10) and a contiguous one like it

ELEMENTWISE: dict[str, Call] = {
    "neg": lambda t, x, y: -x,
    "exp": lambda t, x, y: x.exp(),
    "abs": lambda t, x, y: x.abs(),
    "sqrt": lambda t, x, y: x.abs().sqrt(),
    "sigmoid": lambda t, x, y: x.sigmoid(),
    "tanh": lambda t, x, y: x.tanh(),
    "clamp": lambda t, x, y: x.clamp(-1, 1),
    "isnan": lambda t, x, y: x.isnan(),
    "pow": lambda t, x, y: x**2,
    "add a number": lambda t, x, y: x + 1,
    "a number minus": lambda t, x, y: 1 - x,
    "multiply": lambda t, x, y: x * x,
    "compare": lambda t, x, y: x > 0,
    "add a channel": lambda t, x, y: x + y[0, :, :1, :1],
    "a channel times": lambda t, x, y: y[0, :, :1, :1] * x,
    "add a row": lambda t, x, y: x + y[0, 0, 0],
    "add a column": lambda t, x, y: x - y[:, :, :, :1],
    "add a 0-d": lambda t, x, y: x + t.tensor(2.0),
    "add contiguous": lambda t, x, y: x + y,
    "to contiguous": lambda t, x, y: y + x,
    "maximum": lambda t, x, y: t.maximum(x, x + 1),
    "where": lambda t, x, y: t.where(x > 0, x, 0.0),
    "where of both": lambda t, x, y: t.where(x > 0, x, x + 1),
    "masked_fill": lambda t, x, y: x.masked_fill(x > 0, 1.0),
    "lerp": lambda t, x, y: t.lerp(x, x + 1, 0.3),
    "in place": lambda t, x, y: (x + 0).add_(y),
    "relu": lambda t, x, y: t.relu(x),
    "relu_": lambda t, x, y: t.nn.functional.relu(x + 0, inplace=True),
    "gelu": lambda t, x, y: t.nn.functional.gelu(x),
    "gelu tanh": lambda t, x, y: t.nn.functional.gelu(x, approximate="tanh"),
    "silu": lambda t, x, y: t.nn.functional.silu(x),
    "elu": lambda t, x, y: t.nn.functional.elu(x),
    "leaky_relu": lambda t, x, y: t.nn.functional.leaky_relu(x),
    "hardswish": lambda t, x, y: t.nn.functional.hardswish(x),
    "softplus": lambda t, x, y: t.nn.functional.softplus(x),
    "logical": lambda t, x, y: (x > 0) & (x < 1),
    "double": lambda t, x, y: x.double(),
    "half": lambda t, x, y: x.half(),
    "bfloat16 sum": lambda t, x, y: x.bfloat16() + x.bfloat16(),
    "clone": lambda t, x, y: x.clone(),
    "clone, contiguous": lambda t, x, y: x.clone(memory_format=t.contiguous_format),
    "zeros_like": lambda t, x, y: t.zeros_like(x),
    "empty_like": lambda t, x, y: t.empty_like(x).fill_(1),
    "empty_like, contiguous": lambda t, x, y: t.empty_like(x, memory_format=t.contiguous_format).fill_(1),
    "full_like": lambda t, x, y: t.full_like(x, 2.0),
    "ones_like of a type": lambda t, x, y: t.ones_like(x, dtype=t.int64),
    "dropout of none": lambda t, x, y: t.nn.functional.dropout(x, 0.5, training=False),
    "contiguous": lambda t, x, y: x.contiguous(),
    "detach": lambda t, x, y: x.detach(),
}  # fmt: skip
# Of images in channels_last.
IMAGES: dict[str, Call] = {
    "conv2d": lambda t, x, y: t.nn.functional.conv2d(x, y[:2, :, :3, :3].contiguous(), padding=1),
    "conv2d 1x1": lambda t, x, y: t.nn.functional.conv2d(x, y[:2, :, :1, :1].contiguous()),
    "conv2d, weight": lambda t, x, y: t.nn.functional.conv2d(
        y, x[:2, :, :3, :3].contiguous(memory_format=t.channels_last)
    ),
    "conv2d of groups": lambda t, x, y: t.nn.functional.conv2d(x, y.reshape(-1, 1, 2, 2)[:6], groups=6),
    "conv_transpose2d": lambda t, x, y: t.nn.functional.conv_transpose2d(
        x, y.reshape(6, -1, 2, 2)[:, :3].contiguous(), stride=2
    ),
    "batch_norm": lambda t, x, y: t.nn.functional.batch_norm(x, None, None, training=True),
    "batch_norm, eval": lambda t, x, y: t.nn.functional.batch_norm(x, t.zeros(6), t.ones(6)),
    "group_norm": lambda t, x, y: t.nn.functional.group_norm(x, 2),
    "max_pool2d": lambda t, x, y: t.nn.functional.max_pool2d(x, 2),
    "max_pool2d, indices": lambda t, x, y: t.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda t, x, y: t.nn.functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda t, x, y: t.nn.functional.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool2d of 1": lambda t, x, y: t.nn.functional.adaptive_avg_pool2d(x, 1),
    "nearest": lambda t, x, y: t.nn.functional.interpolate(x, scale_factor=2),
    "bilinear": lambda t, x, y: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda t, x, y: t.nn.functional.interpolate(x, scale_factor=2, mode="bicubic"),
    "pad": lambda t, x, y: t.nn.functional.pad(x, (1, 1, 2, 2)),
    "cat": lambda t, x, y: t.cat([x, x], 1),
    "cat of both": lambda t, x, y: t.cat([x, y], 1),
    "softmax": lambda t, x, y: t.softmax(x, 1),
    "log_softmax": lambda t, x, y: t.log_softmax(x, -1),
    "layer_norm": lambda t, x, y: t.nn.functional.layer_norm(x, (10,)),
    "sum of channels": lambda t, x, y: x.sum(1),
    "mean, kept": lambda t, x, y: x.mean((2, 3), keepdim=True),
    "amax": lambda t, x, y: x.amax(1, keepdim=True),
    "flatten": lambda t, x, y: x.flatten(1),
    "stack": lambda t, x, y: t.stack([x, x]),
    "chosen images": lambda t, x, y: x[t.tensor([1, 0, 1])],
    "masked images": lambda t, x, y: x[t.tensor([True] * x.shape[0])],
    "slice": lambda t, x, y: x[:, 1:3] + 1,
    "a channel": lambda t, x, y: x[:, :1] * 2,
    "channels_last": lambda t, x, y: y.to(memory_format=t.channels_last),
    "contiguous in channels_last": lambda t, x, y: y.contiguous(memory_format=t.channels_last),
    "to of a type": lambda t, x, y: y.to(t.float64, memory_format=t.channels_last),
    "to, contiguous": lambda t, x, y: x.to(memory_format=t.contiguous_format),
    "empty": lambda t, x, y: t.empty(2, 3, 4, 5, memory_format=t.channels_last).fill_(0),
    "zeros_like": lambda t, x, y: t.zeros_like(y, memory_format=t.channels_last),
    "one channel": lambda t, x, y: y[:, :1].contiguous().to(memory_format=t.channels_last),
}  # fmt: skip
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "contiguous": lambda t, x: x,
    "channels_last": lambda t, x: x.to(memory_format=t.channels_last),
    "permuted": lambda t, x: x.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
    "with gaps": lambda t, x: t.cat([x, x], 3).permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)[..., ::2],
}


def pair(seed: int = 0) -> list[Any]:
    theirs = torch.randn(4, 6, 8, 10, generator=torch.Generator().manual_seed(seed))
    return [(ddpgrad, ddpgrad.from_numpy(theirs.numpy())), (torch, theirs)]


def compare(call: Call, order: str) -> None:
    results = []
    for (library, x), (_, y) in zip(pair(), pair(1), strict=True):
        x = ORDERS[order](library, x)
        results.append(call(library, x, y))
    ours, theirs = results
    np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=2e-3, atol=2e-3)
    steps = [[s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1] for x in (ours, theirs)]
    assert steps[0] == steps[1], (tuple(ours.stride()), tuple(theirs.stride()))
    assert ours.is_contiguous() == theirs.is_contiguous()
    assert ours.is_contiguous(memory_format=ddpgrad.channels_last) == theirs.is_contiguous(
        memory_format=torch.channels_last
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_results(name: str, order: str):
    compare(ELEMENTWISE[name], order)


@pytest.mark.parametrize("order", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", IMAGES)
def test_results_of_images(name: str, order: str):
    compare(IMAGES[name], order)


def test_views_of_what_lies_in_channels_last():
    """A shape that cuts across the order is refused, one that follows it is a view; reshape copies."""
    for library, x in pair():
        x = x.to(memory_format=library.channels_last)
        with pytest.raises(RuntimeError, match=r"view|stride"):
            x.view(4, -1)
        assert x.permute(0, 2, 3, 1).view(4, -1).data_ptr() == x.data_ptr()
        assert x.view(4, 2, 3, 8, 10).stride() == (480, 3, 1, 60, 6)
        assert x.reshape(4, -1).is_contiguous()
        assert x.contiguous(memory_format=library.channels_last) is x
        assert x.to(memory_format=library.channels_last) is x
        with pytest.raises(RuntimeError, match="rank 4"):
            x[0].contiguous(memory_format=library.channels_last)


def test_a_network_in_channels_last_trains_as_in_pytorch():
    outcomes = []
    for library, x in pair():
        library.manual_seed(0)
        nn = library.nn
        model = nn.Sequential(
            nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1)
        )
        model = model.to(memory_format=library.channels_last)
        out = model(x.to(memory_format=library.channels_last))
        assert out.is_contiguous(memory_format=library.channels_last) and not out.is_contiguous()
        out.square().mean().backward()
        weights = [p for p in model.parameters() if p.ndim == 4]
        assert all(p.is_contiguous(memory_format=library.channels_last) for p in weights)
        outcomes.append([out.detach().numpy(), *[p.grad.numpy() for p in model.parameters()]])
    for ours, theirs in zip(*outcomes, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["rand_like", "randn_like"])
def test_draws_like_a_tensor_follow_its_memory(name: str):
    drawn = []
    for library, x in pair():
        library.manual_seed(3)
        drawn.append(getattr(library, name)(x.to(memory_format=library.channels_last)))
    np.testing.assert_array_equal(drawn[0].numpy(), drawn[1].numpy())
    assert drawn[0].stride() == drawn[1].stride()
