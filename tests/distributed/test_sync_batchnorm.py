"""SyncBatchNorm: what one process computes from the joined batch, forward and backward."""

import numpy as np
import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn

SHAPES = {"rows": (12, 3), "signals": (12, 3, 4), "images": (12, 3, 4, 2)}
# Ranks may have unequal parts of the batch, and one may have none.
PARTS = [(12,), (6, 6), (5, 1, 6), (7, 0, 5)]


def plain(shape) -> nn.Module:
    return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](3, dtype=torch.float64)


def prepared(layer: nn.Module) -> nn.Module:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.5, -0.5, 2.0]))
        layer.bias.copy_(torch.tensor([0.1, 0.2, -0.3]))
    return layer


def batch(shape):
    torch.manual_seed(3)
    return torch.randn(*shape, dtype=torch.float64) * 3 + 5, torch.randn(*shape, dtype=torch.float64)


def run(layer, x, g):
    """Output, gradients of input, weight and bias, and buffers, after two batches."""
    x = x.clone().requires_grad_()
    layer(x * 0.5)
    out = layer(x)
    (out * g).sum().backward()
    return [
        t.detach().numpy().copy() for t in (out, x.grad, layer.weight.grad, layer.bias.grad, *layer.buffers())
    ]


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_equal_to_one_process_on_the_joined_batch(kind, parts):
    shape = SHAPES[kind]
    x, g = batch(shape)
    expected = run(prepared(plain(shape)), x, g)

    def program():
        rank = dist.get_rank()
        layer = nn.SyncBatchNorm.convert_sync_batchnorm(prepared(plain(shape)))
        return run(layer, x.split(parts)[rank], g.split(parts)[rank])

    results = ranks(len(parts), program)
    out, grad, weight, bias = (
        np.concatenate([r[0] for r in results]),
        np.concatenate([r[1] for r in results]),
        sum(r[2] for r in results),
        sum(r[3] for r in results),
    )
    for got, wanted in zip((out, grad, weight, bias), expected[:4], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-11)
    for result in results:
        for got, wanted in zip(result[4:], expected[4:], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_second_gradients_go_through_the_statistics_of_all_ranks():
    def program():
        torch.manual_seed(dist.get_rank())
        layer = nn.SyncBatchNorm(2, dtype=torch.float64)
        x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return x.detach().numpy(), second.numpy()

    results = ranks(2, program)
    x = torch.tensor(np.concatenate([r[0] for r in results]), requires_grad=True)
    (first,) = torch.autograd.grad(
        nn.BatchNorm1d(2, dtype=torch.float64)(x).pow(3).sum(), x, create_graph=True
    )
    (second,) = torch.autograd.grad(first.pow(2).sum(), x)
    np.testing.assert_allclose(np.concatenate([r[1] for r in results]), second.numpy(), rtol=1e-9)


def test_in_eval_and_without_a_group_it_is_batch_normalisation():
    x = torch.randn(6, 3)
    sync, alone = nn.SyncBatchNorm(3), nn.BatchNorm1d(3)
    np.testing.assert_array_equal(sync(x).detach().numpy(), alone(x).detach().numpy())

    def program():
        torch.manual_seed(dist.get_rank())
        layer = nn.SyncBatchNorm(3).eval()
        return layer(torch.randn(2, 3)).shape if dist.get_rank() == 0 else None

    assert ranks(2, program)[0] == (2, 3)


def test_conversion_keeps_parameters_and_their_names():
    model = nn.Sequential(
        nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm2d(3, affine=False))
    )
    names, parameters = list(model.state_dict()), list(model.parameters())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert [type(m).__name__ for m in converted.modules()].count("SyncBatchNorm") == 2
    assert list(converted.state_dict()) == names
    assert all(a is b for a, b in zip(converted.parameters(), parameters, strict=True))


def test_a_batch_of_one_sample_is_refused():
    def program():
        nn.SyncBatchNorm(3)(torch.randn(1 - dist.get_rank(), 3))

    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ranks(2, program)
