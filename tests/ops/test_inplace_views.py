"""In-place operations, views, and both together: values, histories and refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpgrad as torch
from ddpgrad.autograd import gradcheck

Tensor = torch.Tensor


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# Each program takes fresh inputs x (3, 4) and w (4,), and writes in place on copies of them.
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {}


def program(function: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def chain_on_one_tensor(x, w):
    y = x * 2
    y.add_(w).mul_(w).sin_()
    y -= x
    return y.sigmoid_()


@program
def write_through_a_view(x, w):
    y = x * 1
    y[1].mul_(w)
    return y * y


@program
def write_through_a_view_of_a_view(x, w):
    y = x * 1
    y.t()[1:3].t()[0].copy_(w[:2])
    return y * y


@program
def other_views_see_the_write(x, w):
    y = x * 1
    before, column = y * 3, y[:, 2]
    y[0].mul_(w)
    return before * y, column * column


@program
def views_see_a_write_to_the_base(x, w):
    y = x * 1
    view = y[1:].reshape(8)[::2]
    y.mul_(w)
    return view * view


@program
def view_used_before_and_after(x, w):
    y = x * 1
    row = y[0]
    first = row * 5
    row.mul_(w)
    return first + row + y[0]


@program
def alternating_writes(x, w):
    y = x * 1
    a, b = y[:2], y[1:]
    a.mul_(w)
    b.add_(a[0])
    a.sin_()
    return y, a * b


@program
def reshape_and_transpose(x, w):
    y = (x * 1).t()
    flat = y.t().flatten()
    flat[3:7] = w
    return y * y


@program
def write_into_plain_memory(x, w):
    y = torch.zeros(3, 4, dtype=torch.float64)
    for i in range(3):
        y[i] = x[i] * w
    return y * y


@program
def plain_view_of_plain_memory(x, w):
    y = torch.ones(3, 4, dtype=torch.float64)
    row, twice = y[1], y[1][1:]
    y.mul_(w)
    return row * row, twice * 3


@program
def plain_view_and_write_through_another(x, w):
    y = torch.ones(3, 4, dtype=torch.float64)
    column, row = y[:, 0], y[2]
    row.mul_(w)
    return column * column


@program
def assign_broadcast_and_advanced(x, w):
    y = x * 1
    y[:, 1] = w[0]
    y[torch.tensor([0, 2]), torch.tensor([2, 3])] = w[:2] * 2
    y[y > 100] = 0.0
    y[2, ::2] = w[None, :2]
    return y * y


@program
def fill_zero_and_masked(x, w):
    y = x * 1
    y[0].zero_()
    y[1, 1:3].fill_(2.0)
    y.masked_fill_(torch.tensor([False, True, False, False]), 3.0)
    return y * w


@program
def write_on_a_diagonal_and_windows(x, w):
    y = x * 1
    y.diagonal(1).mul_(w[:3])
    y.unfold(1, 2, 2).mul_(w[:2])
    return y * y


@program
def write_where_strides_point(x, w):
    y = x * 1
    y[1].as_strided((2,), (2,), 5).mul_(w[:2])
    y.as_strided((2, 2), (8, 1), 1).add_(w[2:])
    return y * y


@program
def overlapping_windows(x, w):
    return x.unfold(1, 3, 1) * w[:3], x.t().as_strided((3, 3), (2, 1), 1) * w[1:]


@program
def parts_of_a_split(x, w):
    first, second = x.split([1, 2])
    rows = x.unbind()
    return first * w, second * second, rows[2] * rows[0], torch.tensor_split(x, 3, 1)[2]


@program
def shape_changed_in_place(x, w):
    y = x * 1
    y.t_()
    y[0].mul_(w[:3])
    z = (x * 2)[:1]
    z.squeeze_(0).unsqueeze_(1).transpose_(0, 1)
    return y * y, z * w


@program
def write_by_index_put(x, w):
    y = x * 1
    y.index_put_((torch.tensor([0, 0]), torch.tensor([1, 1])), w[:2], accumulate=True)
    y.index_put_((torch.tensor([2]),), w)
    y[:, torch.tensor([0, 2])] += w[:2]
    y[y > 100] = w[0]
    return y * y


@program
def write_by_place_along_a_dimension(x, w):
    y = x * 1
    y.scatter_(1, torch.tensor([[0, 2], [1, 3]]), (x * 3)[:2, :2])
    y.index_add_(0, torch.tensor([1, 1]), x[:2] * w, alpha=2)
    y.index_copy_(1, torch.tensor([3]), x[:, :1])
    y.index_fill_(0, torch.tensor([2]), w[1])
    z = x * 2
    return y * w, z.scatter_reduce_(0, torch.tensor([[0, 0, 1, 1]]), w[None], "amax")


@program
def write_by_mask_and_number(x, w):
    y = x * 1
    y.masked_scatter_(torch.tensor([True, False, True, False]), torch.cat([w, w]))
    y.put_(torch.tensor([0, 5]), w[:2])
    return y * y, y.take(torch.tensor([[0, -1]])), torch.take_along_dim(y, torch.tensor([[1, 0]]), 1)


@program
def regions_of_copies(x, w):
    return (
        x.select_scatter(w, 0, 1) * x,
        x.slice_scatter(w.expand(2, 4), 0, 0, 3, 2) * x,
        x.diagonal_scatter(w[:3]) * x,
    )


# Views of a tensor of any shape with two or more dimensions, all of length 2 or more.
VIEWS: list[Callable[[Tensor], Tensor]] = [
    lambda t: t[1:],
    lambda t: t[..., ::2],
    lambda t: t[:, None, -1],
    lambda t: t.transpose(0, -1),
    lambda t: t.movedim(0, 1),
    lambda t: t.narrow(1, 1, 1),
    lambda t: t.unsqueeze(-1).squeeze(-1),
    lambda t: t.diagonal(0, 0, 1).unsqueeze(0),
    lambda t: t.unfold(-1, 2, 2),
    lambda t: t.flip(0).view_as(t),
    lambda t: t.tensor_split(2)[1],
    lambda t: t.unflatten(0, (1, -1)),
    lambda t: t.expand_as(t),
]


@pytest.mark.torch
@settings(max_examples=150)
@given(st.lists(st.lists(st.integers(0, len(VIEWS) - 1), min_size=1, max_size=3), min_size=2, max_size=3))
def test_chains_of_views_and_writes_as_pytorch(chains: list[list[int]]):
    """Several chains of views of one tensor, each written through in turn, and all of them read at the end."""
    oracle = pytest.importorskip("torch")
    results: list[Any] = []
    for library in (oracle, torch):
        x = library.arange(24.0, dtype=library.float64).reshape(2, 3, 4).requires_grad_()
        y = x * 1
        try:
            parts = [y for _ in chains]
            for i, chain in enumerate(chains):
                for k in chain:
                    parts[i] = VIEWS[k](parts[i])
            for i, part in enumerate(parts):
                part.mul_(i + 2)
            total = sum((part * part).sum() for part in (*parts, y))
            results.append((total.item(), library.autograd.grad(total, x)[0].numpy()))
        except (RuntimeError, IndexError) as error:
            if library is oracle:
                return  # not a chain that PyTorch takes
            raise error
    (total, gradient), (ours, found) = results
    assert ours == pytest.approx(total)
    np.testing.assert_allclose(found, gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str):
    assert gradcheck(PROGRAMS[name], (leaf(3, 4), leaf(4)))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.torch
def test_as_pytorch(name: str, monkeypatch: pytest.MonkeyPatch):
    oracle = pytest.importorskip("torch")
    x, w = leaf(3, 4), leaf(4)
    results = []
    for library in (torch, oracle):
        monkeypatch.setitem(PROGRAMS[name].__globals__, "torch", library)
        a = library.tensor(x.detach().numpy(), requires_grad=True)
        b = library.tensor(w.detach().numpy(), requires_grad=True)
        outputs = PROGRAMS[name](a, b)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = sum(o.sum() for o in outputs)
        grads = library.autograd.grad(total, (a, b), allow_unused=True)
        results.append([t if t is None else t.detach().numpy() for t in (*outputs, *grads)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_second_derivative_through_a_view_write():
    def function(x: Tensor, w: Tensor) -> Tensor:
        y = x * 1
        y[1].mul_(w)
        y[:, 0] = w[0] * x[:, 1]
        return y * y

    x, w = leaf(3, 4), leaf(4)
    (g,) = torch.autograd.grad(function(x, w).sum(), w, create_graph=True)
    (again,) = torch.autograd.grad((g * g).sum(), w)
    step = 1e-6
    slope = torch.zeros_like(w)
    for i in range(4):
        ends = []
        for sign in (1, -1):
            moved = w.detach().clone()
            moved[i] += sign * step
            moved.requires_grad_()
            (h,) = torch.autograd.grad(function(x, moved).sum(), moved)
            ends.append((h * h).sum())
        slope[i] = (ends[0] - ends[1]) / (2 * step)
    assert torch.allclose(again, slope, rtol=1e-5, atol=1e-6)


def test_gradients_of_inf_stay_where_they_belong():
    x = leaf(2)
    y = x * 1
    y[0] = 5.0
    y.backward(torch.tensor([float("inf"), 1.0], dtype=torch.float64))
    assert x.grad.tolist() == [0.0, 1.0]


def test_under_no_grad_only_values_and_versions_change():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    view = x[:1]
    with torch.no_grad():
        x.mul_(2)
        view.add_(1)
        x[1] = 7.0
    assert x.tolist() == [3.0, 7.0] and x.is_leaf and x._version == 3
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    y = x * 1
    with torch.no_grad():
        y.zero_()
    y.sum().backward()  # the recorded history stays
    assert x.grad.tolist() == [3.0, 3.0]


def test_refresh_inside_no_grad_keeps_the_history():
    x = leaf(3)
    y = x * 1
    view = y[:2]
    y.mul_(2)
    with torch.no_grad():
        assert view.grad_fn is not None
    view.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 0.0]


@pytest.mark.parametrize("view", [lambda y: y[:, 1], lambda y: y.view(-1)[2:], lambda y: y.t()[:2]])
@pytest.mark.parametrize("reshape", [lambda y: y.t_(), lambda y: y.unsqueeze_(1), lambda y: y.t_().t_()])
def test_views_made_before_the_base_was_given_another_shape(
    view: Callable[..., Tensor], reshape: Callable[..., Tensor]
):
    def written(x: Tensor) -> Tensor:
        y = x * 1
        part = view(y)
        reshape(y)
        y.mul_(3)
        part.mul_(x.sum())
        return y * y * part.sum()

    x = leaf(2, 3)
    y = x.detach() * 3
    view(y).mul_(x.detach().sum())
    expected = y * y * view(y).sum()
    assert written(x).sum().item() == pytest.approx(expected.sum().item())
    assert gradcheck(written, (x,)) and torch.autograd.gradgradcheck(written, (x,))


def test_a_repeated_element_may_get_another_shape_in_place():
    x = torch.ones(1).expand(3)
    x.unsqueeze_(1).transpose_(0, 1).squeeze_()
    assert x.shape == (3,) and x.stride() == (0,)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.add_(1)


def test_writing_through_a_view_of_a_transposed_base():
    x = leaf(2, 3)
    y = x * 1
    y.t_()
    y[0].mul_(2)
    y.as_strided((2,), (1,), 4).mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, 1.0, 1.0], [2.0, 3.0, 3.0]]


def test_a_comparison_in_place_ends_a_gradient():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 3
    y[:2].ge_(torch.tensor([5.0, 5.0]))
    (y * y).sum().backward()
    assert y.tolist() == [0.0, 1.0, 9.0] and x.grad is not None and x.grad.tolist() == [0.0, 0.0, 54.0]
