"""`vmap` of functions that are called once, with all examples, and of those that cannot be."""

from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.core.upcalls import declare_all_ops
from ddpgrad.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from ddpgrad.nn import functional as F
from ddpgrad.ops.dispatch.vocabulary import OPS
from ddpgrad.utils.captured_step import captured_step

Tensor = torch.Tensor
declare_all_ops()


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.function(*args)


def close(got: Any, want: Any) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            close(g, w)
    elif want is not None:
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got.numpy(force=True), want.numpy(force=True), rtol=1e-9, atol=1e-11)


def stacked(results: list[Any]) -> Any:
    if isinstance(results[0], (tuple, list)):
        return [stacked(list(column)) for column in zip(*results, strict=True)]
    return torch.stack(results)


def examples(x: np.ndarray) -> Tensor:
    """Three examples in the domain of `x`."""
    other = x * 0.5 if x.dtype.kind == "f" else np.flip(x)
    return torch.from_numpy(np.stack([x, np.flip(x), other]))


def tensor(a: Any) -> Any:
    return torch.from_numpy(a) if isinstance(a, np.ndarray) else a


def mapped_and_one_by_one(function: Any, args: list[Any], dims: tuple[Any, ...]) -> tuple[Any, Any]:
    one_by_one = stacked([
        function(*[a[i] if d == 0 else a for a, d in zip(args, dims, strict=True)]) for i in range(3)
    ])  # fmt: skip
    return vmap(function, dims)(*args), one_by_one


def cases(op: Any) -> Any:
    """(function of the arrays of a sample, arguments of which some are three examples, their dimensions)."""
    for args, kwargs in list(op.samples(np.random.default_rng(0)))[:2]:
        places = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and i in op.tensors]
        rest = [tensor(a) for a in args]
        options = {key: tensor(a) for key, a in kwargs.items()}

        def call(*tensors: Tensor, rest: Any = rest, places: Any = places, options: Any = options) -> Any:
            given = dict(zip(places, tensors, strict=True))
            return op.call(*[given.get(i, a) for i, a in enumerate(rest)], **options)

        for mapped in {tuple(places), tuple(places[:1]), tuple(places[1:])} - {()}:
            given = [examples(args[i]) if i in mapped else rest[i] for i in places]
            yield call, given, tuple(0 if i in mapped else None for i in places)


def total(out: Any) -> Tensor:
    outs = out if isinstance(out, tuple) else (out,)
    return sum((o.real.sin().sum() for o in outs if o.requires_grad), torch.zeros(()))


SAMPLED = {op.name: op for op in OPS.values() if op.samples and not op.sequence and op.name != "dropout"}


@pytest.mark.parametrize("op", SAMPLED.values(), ids=SAMPLED)
def test_every_op_gives_each_example_its_own_result_and_gradient(op: Any):
    for call, given, dims in cases(op):
        close(*mapped_and_one_by_one(call, given, dims))
        if (op.rules or op.joint) and all(t.dtype.is_floating_point for t in given):
            slopes = grad(lambda *tensors: total(call(*tensors)), argnums=tuple(range(len(given))))  # noqa: B023
            close(*mapped_and_one_by_one(slopes, given, dims))


def test_gradients_of_a_network_for_each_example(device: str):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    ).to(device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(5, 1, 6, 6, device=device), torch.tensor([0, 2, 1, 1, 0], device=device)

    def loss(parameters: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    counted = Counted(loss)
    each = vmap(grad(counted), in_dims=(None, 0, 0))(parameters, x, y)
    assert counted.calls == 1
    for i in range(5):
        model.zero_grad()
        F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        for name, p in model.named_parameters():
            np.testing.assert_allclose(
                each[name][i].numpy(force=True), p.grad.numpy(force=True), rtol=1e-4, atol=1e-6
            )


def test_kernels_of_one_shape_get_one():
    """The gradient of softplus is one loop over two arrays, of which only one has a batch here."""
    x, targets = torch.tensor(0.3), torch.tensor([3.0, 3.0, 1.0])
    slopes = vmap(grad(F.binary_cross_entropy_with_logits), in_dims=(None, 0))(x, targets)
    np.testing.assert_allclose(slopes.numpy(), (x.sigmoid() - targets).numpy(), rtol=1e-6)


@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_rows_of_jacobians(jacobian: Any, device: str):
    w = torch.randn(4, 3, dtype=torch.float64, device=device)
    x = torch.randn(5, 3, dtype=torch.float64, device=device)
    wanted = torch.stack([(1 - torch.tanh(w @ row) ** 2).unsqueeze(1) * w for row in x])
    close(jacobian(lambda row: torch.tanh(w @ row))(x[0]), wanted[0])
    close(vmap(jacobian(lambda row: torch.tanh(w @ row)))(x), wanted)
    curved = hessian(lambda row: (row**3).sum() + row.prod())
    close(vmap(curved)(x), torch.stack([curved(row) for row in x]))
    moved = vmap(lambda row: jvp(torch.sin, (row,), (row,))[1])(x)
    close(moved, x.cos() * x)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda row: row * 2 if row.sum() > 3 else row, id="control flow by elements"),
        pytest.param(lambda row: row * row[0].item(), id="a number"),
        pytest.param(lambda row: torch.zeros(2).copy_(row), id="a write"),
        pytest.param(lambda row: torch.from_numpy(row.numpy() + 1), id="NumPy"),
    ],
)
def test_what_needs_single_examples_is_a_loop(function: Any):
    x, counted = torch.arange(6.0).reshape(3, 2), Counted(function)
    assert vmap(counted)(x).tolist() == [function(row).tolist() for row in x]
    assert counted.calls == 4  # once in vain


def test_an_error_is_that_of_an_example():
    with pytest.raises(ValueError, match="too large"):
        vmap(lambda row: row if row.max() < 2 else raise_too_large(row))(torch.arange(4.0).reshape(2, 2))


def raise_too_large(row: Tensor) -> Tensor:
    raise ValueError(f"too large: {row[0].item()}")


def test_gradients_of_what_the_function_has_from_outside_are_sums():
    w, x = torch.tensor([1.0, 2.0], requires_grad=True), torch.arange(6.0).reshape(3, 2)
    vmap(lambda row: (w * row).sum())(x).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [6.0, 9.0]
    rows = x.clone().requires_grad_()
    vmap(lambda row: row.sin())(rows).sum().backward()
    assert rows.grad is not None and rows.grad.tolist() == x.cos().tolist()


def test_chunks():
    sizes = []

    def function(row: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        sizes.append(1)
        return row * other, other

    x = torch.arange(10.0).reshape(5, 2)
    product, other = vmap(function, (0, None), (1, None), chunk_size=2)(x, x[0])
    assert product.tolist() == (x * x[0]).T.tolist() and other.tolist() == x[0].tolist()
    assert len(sizes) == 3


def test_results_have_memory_of_their_own():
    x = torch.arange(6.0).reshape(3, 2)
    same, column = vmap(lambda row: (row, row[0]))(x)
    x.zero_()
    assert same.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and column.tolist() == [0.0, 2.0, 4.0]


def test_a_captured_step_has_the_bits_of_an_eager_one():
    torch.manual_seed(0)
    w, x = torch.randn(64, 64), torch.randn(32, 64)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        each = vmap(grad(lambda row: torch.tanh(w @ row).sum()))
        return each(x), each(x + 1)

    captured = captured_step(step)
    with pytest.warns(UserWarning, match="vmap computes all examples at once"):
        for _ in range(5):
            assert [t.tolist() for t in captured(x)] == [t.tolist() for t in step(x)]
