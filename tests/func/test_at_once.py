"""`vmap` of functions that are called once, with all examples, and of those that cannot be."""

from typing import Any

import numpy as np
import pytest
from matrices import thinned

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


def cases(op: Any, samples: slice) -> Any:
    """(function of the arrays of a sample, arguments of which some are three examples, their dimensions)."""
    for args, kwargs in list(op.samples(np.random.default_rng(0)))[samples]:
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
    for call, given, dims in cases(op, slice(2)):
        close(*mapped_and_one_by_one(call, given, dims))
        if (op.rules or op.joint) and all(t.dtype.is_floating_point for t in given):
            slopes = grad(lambda *tensors: total(call(*tensors)), argnums=tuple(range(len(given))))  # noqa: B023
            close(*mapped_and_one_by_one(slopes, given, dims))


def loop(function: Any, dims: tuple[Any, ...]) -> Any:
    """`vmap` as the sentence has it: a call for each of three examples."""
    return lambda *args: stacked([
        function(*[a if d is None else a.select(d, i) for a, d in zip(args, dims, strict=True)]) for i in range(3)
    ])  # fmt: skip


def with_gradients(out: Any, leaves: list[Tensor]) -> list[Tensor]:
    """Results, their gradients in `leaves`, and the gradients of these."""
    values = list(out) if isinstance(out, (tuple, list)) else [out]
    found = list(values)
    for _ in range(2):
        summed = total(tuple(values))
        if not summed.requires_grad:
            break
        values = torch.autograd.grad(summed, leaves, create_graph=True, materialize_grads=True)
        found += values
    return found


@pytest.mark.parametrize("samples", thinned([slice(1), slice(1, 2)], slice(1)), ids=["first", "second"])
@pytest.mark.parametrize("op", SAMPLED.values(), ids=SAMPLED)
def test_every_op_is_differentiated_from_outside_and_nests(op: Any, samples: slice):
    for call, given, dims in cases(op, samples):
        leaves = [t.clone().requires_grad_(t.is_floating_point() or t.is_complex()) for t in given]
        wanted = [t for t in leaves if t.requires_grad]
        first = dims.index(0)
        outer = tuple(0 if i == first else None for i in range(len(dims)))
        inner = tuple(None if i == first else d for i, d in enumerate(dims))
        if not any(d == 0 for d in inner):  # two dimensions of one tensor
            leaves[first] = torch.stack([leaves[first]] * 3, 1)
            inner = outer
        for maps in ((dims,), (outer, inner)):
            tensors = (
                leaves
                if len(maps) > 1
                else [t if t.dim() == g.dim() else t[:, 0] for t, g in zip(leaves, given, strict=True)]
            )
            got, want = call, call
            for d in reversed(maps):
                got, want = vmap(got, d), loop(want, d)
            try:
                expected = with_gradients(want(*tensors), wanted)
            except (RuntimeError, NotImplementedError):
                continue  # no second gradient, which is said elsewhere
            close(with_gradients(got(*tensors), wanted), expected)


w = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
rows = torch.tensor(
    [[0.1, 0.7, -0.3], [1.0, 0.2, 0.4], [-0.6, 0.9, 0.8]], dtype=torch.float64, requires_grad=True
)


def of_products(vmap: Any) -> Tensor:
    return vmap(vmap(lambda a, b: ((a * w).sin() * (b * w).exp()).sum(), (None, 0)), (0, None))(rows, rows)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda vmap: vmap(lambda r: (r * w).exp().sum(), (0,))(rows), id="a closure"),
        pytest.param(lambda vmap: vmap(lambda r, w: (r * w).exp(), (0, None))(rows, w), id="no dimension"),
        pytest.param(lambda vmap: vmap(lambda r, c: r * c.exp(), (0, 1))(rows, rows), id="columns"),
        pytest.param(lambda vmap: vmap(lambda r: torch.cat([r, w, r]).sin(), (0,))(rows), id="joined"),
        pytest.param(lambda vmap: vmap(lambda r: torch.stack([w, r.exp()]), (0,))(rows), id="stacked"),
        pytest.param(lambda vmap: vmap(lambda r: w * 2, (0,))(rows), id="the same for all"),
        pytest.param(lambda vmap: vmap(lambda r: grad(lambda z: (z * w).exp().sum())(r), (0,))(rows), id="grad"),
        pytest.param(lambda vmap: vmap(lambda r: grad(lambda w: (r * w).exp().sum())(w), (0,))(rows), id="grad of what is shared"),
        pytest.param(lambda vmap: vmap(jacrev(lambda r: (r * w).exp().cumsum(0)), (0,))(rows), id="jacrev"),
        pytest.param(lambda vmap: vmap(jacfwd(lambda r: (r * w).exp().cumsum(0)), (0,))(rows), id="jacfwd"),
        pytest.param(lambda vmap: vmap(hessian(lambda r: (r * w).exp().prod()), (0,))(rows), id="hessian"),
        pytest.param(lambda vmap: jacrev(lambda w: vmap(lambda r: (r * w).exp(), (0,))(rows))(w), id="in jacrev"),
        pytest.param(lambda vmap: jacfwd(lambda w: vmap(lambda r: (r * w).exp(), (0,))(rows))(w), id="in jacfwd"),
        pytest.param(lambda vmap: hessian(lambda w: vmap(lambda r: (r * w).exp(), (0,))(rows).prod())(w), id="in hessian"),
        pytest.param(of_products, id="all pairs"),
    ],
)  # fmt: skip
def test_gradients_from_outside(function: Any):
    close(with_gradients(function(vmap), [w, rows]), with_gradients(function(loop), [w, rows]))


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
    counted = Counted(lambda row: (w * row).sum())
    vmap(counted)(x).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [6.0, 9.0] and counted.calls == 1
    rows = x.clone().requires_grad_()
    vmap(lambda row: row.sin())(rows).sum().backward()
    assert rows.grad is not None and rows.grad.tolist() == x.cos().tolist()


def test_within_a_vmap_each_example_has_a_gradient_of_its_own():
    w, x = torch.tensor([1.0, 2.0], requires_grad=True), torch.arange(6.0).reshape(3, 2)
    each = vmap(lambda row: torch.autograd.grad((w * row).sum(), w)[0])(x)
    assert each.tolist() == x.tolist() and not each.requires_grad
    kept = vmap(lambda row: (w * row).sum())(x)
    units = vmap(lambda unit: torch.autograd.grad(kept, w, unit, retain_graph=True)[0])(torch.eye(3))
    assert units.tolist() == x.tolist()  # of a graph that is another vmap's


def test_hooks_within_and_anomaly_mode():
    def hooked(row: Tensor) -> Tensor:
        out = (row * w).exp()
        out.register_hook(lambda slope: w.sum() * slope)
        return out

    with torch.autograd.set_detect_anomaly(True):
        got = torch.autograd.grad(vmap(hooked)(rows).sum(), [w, rows])
        assert (
            torch.autograd.grad(vmap(lambda row: row * w)(rows).sum(), w)[0].tolist() == rows.sum(0).tolist()
        )
        with pytest.raises(RuntimeError, match="nan values"):
            torch.autograd.grad(vmap(lambda row: (row * 0).sqrt() * row * 0)(rows).sum(), rows)
    close(got, torch.autograd.grad(loop(hooked, (0,))(rows).sum(), [w, rows]))


def test_what_was_kept_may_not_be_written_to():
    x = torch.ones(3, 2, requires_grad=True)
    arguments, results = x * 1, vmap(lambda row: row.exp())(x)
    squares = vmap(lambda row: row * row)(arguments)
    for changed, out in ((arguments, squares), (results, results)):
        with torch.no_grad():
            changed.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def _in_place(name: str, *args: Any) -> Any:
    return lambda row: getattr(row * 2, name)(*args) * row


def write_to_a_part(row: Tensor) -> Tensor:
    out = row * 2
    part = out[1:]
    part.mul_(row[:2])
    out[0] = row[1]
    out.view(3, 1)[2] += 5
    return out * out


def write_to_new_memory(row: Tensor) -> Tensor:
    zeros, more, empty = torch.zeros_like(row), row.new_ones(4), torch.empty_like(row)
    zeros[0], more[1:] = row[1], row.exp()
    return empty.copy_(row) * zeros.sum() + more[:3]


def write_by_places(row: Tensor) -> Tensor:
    out = row * 2
    out[[0, 2]] = row[:2]
    out[torch.tensor([0, 1])] += row[1:]
    return out * row


def write_to_a_diagonal(row: Tensor) -> Tensor:
    outer = torch.outer(row, row)
    outer.diagonal().add_(row)
    outer.t()[0] = row.sin()
    return outer.tril_()


@pytest.mark.parametrize(
    "function",
    [
        *(pytest.param(_in_place(name, *args), id=name) for name, args in {
            "add_": (1,), "fill_": (2.0,), "zero_": (), "clamp_": (0.1,), "exp_": (),
            "scatter_": (0, torch.tensor([0, 2]), 3.0), "index_add_": (0, torch.tensor([0, 2]), w.detach()[:2]),
        }.items()),
        pytest.param(lambda row: F.relu(row * 2, inplace=True).exp(), id="relu"),
        pytest.param(lambda row: (row * 2).masked_fill_(row > 0, 0.5) * row, id="masked_fill_"),
        pytest.param(lambda row: (row * 2).as_strided((2,), (1,), 1).exp(), id="as_strided"),
        write_to_a_part, write_to_new_memory, write_by_places, write_to_a_diagonal,
    ],
)  # fmt: skip
@pytest.mark.parametrize("differentiated", [False, True])
def test_writes_to_what_the_function_has_made(function: Any, differentiated: bool):
    x, counted = rows.detach().clone().requires_grad_(differentiated), Counted(function)
    close(with_gradients(vmap(counted)(x), [x]), with_gradients(loop(function, (0,))(x), [x]))
    assert counted.calls == 1 and x.tolist() == rows.tolist()


def test_arguments_are_written_to_once():
    x = torch.zeros(3, 4)

    def write(row: Tensor) -> Tensor:
        part = row.as_strided((2,), (1,))
        part.add_(1)
        return part * part[0].item()

    assert vmap(write)(x).tolist() == [[1.0, 1.0]] * 3 and x.tolist() == [[1.0, 1.0, 0.0, 0.0]] * 3


def test_a_part_of_memory_that_is_named_by_an_offset_is_that_of_the_example():
    x = torch.arange(12.0).reshape(3, 4)
    assert vmap(lambda row: row.as_strided((2,), (1,), 1))(x).tolist() == x[:, 1:3].tolist()
    assert vmap(lambda row: (row * 1)[1:].as_strided((2,), (1,), 2))(x).tolist() == x[:, 2:].tolist()


def test_layout_of_results():
    x = torch.randn(3, 4, 5)
    assert vmap(lambda a: a * 2, in_dims=1, out_dims=1)(x).stride() == (20, 5, 1)
    assert vmap(lambda a: a * 2, out_dims=2)(x).stride() == (5, 1, 20)


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
