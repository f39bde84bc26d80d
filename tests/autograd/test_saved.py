"""Hooks on saved tensors: which apply, what they are given, what they may do."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from ddpgrad.errors import GraphError

Tensor = torch.Tensor


class Square(torch.autograd.Function):
    """Saves its input and its output."""

    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return 2 * x * g


def leaf(*values: float) -> Tensor:
    return torch.tensor(values or (1.0, 2.0), requires_grad=True)


def same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("square", [lambda x: x * x, Square.apply, lambda x: x**2])
def test_what_is_packed_is_what_backward_sees(square: Callable[[Tensor], Tensor]):
    x = leaf()
    with saved_tensors_hooks(lambda t: t * 10, same):
        y = square(x)
    y.sum().backward()
    assert x.grad.tolist() == [20.0, 40.0]


def test_an_output_is_packed_without_history():
    shown: list[Tensor] = []
    x = leaf()
    with saved_tensors_hooks(lambda t: shown.append(t) or t * 2, same):
        y = x.exp()
    assert shown[0].grad_fn is None and shown[0].tolist() == y.tolist()
    y.sum().backward()
    assert x.grad.tolist() == (2 * y).tolist()


def test_lists_of_tensors_and_indices_are_packed():
    x, y = leaf(), leaf()
    names: list[str] = []

    def pack(t: Tensor) -> Tensor:
        names.append(t.dtype.name)
        return t

    with saved_tensors_hooks(pack, same):
        z = torch.gather(x * y, 0, torch.tensor([1, 1]))
    z.sum().backward()
    assert names == ["float32", "float32", "int64"]
    assert (x.grad.tolist(), y.grad.tolist()) == ([0.0, 4.0], [0.0, 4.0])


def test_only_the_innermost_pair_applies():
    x = leaf()
    with saved_tensors_hooks(lambda t: 3 * t, same):
        with saved_tensors_hooks(lambda t: 5 * t, same):
            inner = x * x
        outer = x * x
    plain = x * x
    for y, factor in ((inner, 5), (outer, 3), (plain, 1)):
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2.0 * factor, 4.0 * factor]


def test_hooks_are_of_one_thread():
    x = leaf()
    found: list[Any] = []

    def other() -> None:
        y = x * x
        found.append(torch.autograd.grad(y.sum(), x)[0].tolist())

    with saved_tensors_hooks(lambda t: 10 * t, same):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == [[2.0, 4.0]]


def test_second_derivative_through_packed_tensors():
    x = leaf()
    with saved_tensors_hooks(lambda t: t.numpy(force=True).copy(), torch.from_numpy):
        y = x**3
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert (g.tolist(), h.tolist()) == ([3.0, 12.0], [6.0, 12.0])


def test_packed_tensors_are_freed_with_the_graph():
    x = leaf()
    with saved_tensors_hooks(same, same):
        y = (x * x).sum()
    y.backward()
    with pytest.raises(GraphError, match="second time"):
        y.backward()


def test_packed_in_place():
    x = leaf()
    with saved_tensors_hooks(lambda t: t.clone(), same):
        y = (x * 1).exp_()
        y.mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == (2 * x.exp()).tolist()


def overwritten(t: Tensor) -> Tensor:
    return t.mul_(2)


def test_wrong_hooks():
    x = leaf()
    with (
        saved_tensors_hooks(overwritten, same),
        pytest.raises(RuntimeError, match="modifying its input in place"),
    ):
        (x * 1) * x
    with saved_tensors_hooks(lambda t: 0, same):
        y = x * x
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        y.sum().backward()


def test_disabling():
    with disable_saved_tensors_hooks("outer"):
        with (
            disable_saved_tensors_hooks("inner"),
            pytest.raises(RuntimeError, match="inner"),
            saved_tensors_hooks(same, same),
        ):
            pass
        with pytest.raises(RuntimeError, match="outer"), saved_tensors_hooks(same, same):
            pass
    with (
        saved_tensors_hooks(same, same),
        pytest.raises(RuntimeError, match="none here"),
        disable_saved_tensors_hooks("none here"),
    ):
        pass
    with saved_tensors_hooks(same, same):
        pass


def test_hooks_that_are_entered_during_backward_end_with_it():
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        hooks.__enter__()
        return tensor

    hooks = saved_tensors_hooks(pack, unpack)
    x = leaf()
    with hooks:
        x.sin().sum().backward()
    x.sin()
    assert len(packed) == 1 and x.grad.tolist() == x.cos().tolist()


def test_save_on_cpu(device: str):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    with save_on_cpu():
        y = (x * x).exp() @ x
    y.backward()
    expected = torch.autograd.grad((x * x).exp() @ x, x)[0]
    assert x.grad.tolist() == expected.tolist() and x.grad.device == x.device


def test_allowed_mutation():
    x = leaf()
    with allow_mutation_on_saved_tensors():
        a = x * 1
        y = a * a
        a.zero_()
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
        y = (a * a).sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        y.backward()


def test_saved_values_by_name():
    x = leaf()
    a = x * 1
    y = a**2
    assert y.grad_fn._saved_self.tolist() == [1.0, 2.0] and y.grad_fn._saved_self.grad_fn is a.grad_fn
    assert (a * 3).grad_fn._saved_other == 3
    z = x.exp()
    assert z.grad_fn._saved_result.grad_fn is z.grad_fn
    with pytest.raises(AttributeError, match="_saved_nothing"):
        print(y.grad_fn._saved_nothing)
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, same)
    with pytest.raises(RuntimeError, match="already been set"):
        y.grad_fn._raw_saved_self.register_hooks(same, same)
    for hooks in ((same,), (1, 1)):
        with pytest.raises(TypeError):
            z.grad_fn._raw_saved_result.register_hooks(*hooks)
    with pytest.raises(RuntimeError):
        torch.autograd.SavedTensor()
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="already been freed"):
        print(y.grad_fn._saved_self)


def test_hooks_on_one_saved_tensor_of_a_function():
    x = leaf()
    y = Square.apply(x)
    y.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t * 2, same)
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]


class _SavesANumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, 3)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_what_is_saved_is_looked_at_only_where_there_will_be_a_backward():
    assert _SavesANumber.apply(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(
        TypeError, match="save_for_backward can only save variables, but argument 1 is of type int"
    ):
        _SavesANumber.apply(torch.ones(2, requires_grad=True))
