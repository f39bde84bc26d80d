"""User-defined Functions."""

import weakref
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function, gradcheck, gradgradcheck
from ddpgrad.autograd.function import once_differentiable
from ddpgrad.errors import GraphError


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0), dtype=torch.float64, requires_grad=True)


class Scaled(Function):
    """a * b * factor; a name of the node's own is used as an attribute on purpose."""

    @staticmethod
    def forward(ctx, a, b, factor):
        ctx.save_for_backward(a, b)
        ctx.factor, ctx.shape = factor, "mine"
        return a * b * factor

    @staticmethod
    def backward(ctx, g):
        assert ctx.shape == "mine"
        a, b = ctx.saved_tensors
        grad_a = g * b * ctx.factor if ctx.needs_input_grad[0] else None
        grad_b = g * a * ctx.factor if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, None


class Exp(Function):
    """Saves its output, in the form with setup_context."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Pair(Function):
    """Two tensors and a number; counts which gradients are defined."""

    seen: list[tuple[bool, ...]] = []  # noqa: RUF012
    materialize = True

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(Pair.materialize)
        return x * 2, x * 3, 7

    @staticmethod
    def backward(ctx, a, b, number):
        Pair.seen.append((a is not None, b is not None, number is not None))
        parts = [g * k for g, k in ((a, 2), (b, 3)) if g is not None]
        return sum(parts[1:], parts[0])


class Doubled(Function):
    """In place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Reversed(Function):
    """Returns its input as it is."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


def test_gradients_to_second_order():
    assert gradcheck(lambda a, b: Scaled.apply(a, b, 2.0), (leaf(), leaf(3.0, 4.0)))
    assert gradgradcheck(lambda a, b: Scaled.apply(a, b, 2.0), (leaf(), leaf(3.0, 4.0)))
    assert gradgradcheck(Exp.apply, leaf())


def test_arguments_and_node():
    x = leaf()
    y = Scaled.apply(x, torch.tensor([3.0, 4.0], dtype=torch.float64), 2.0)
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "ScaledBackward"
    assert y.grad_fn.needs_input_grad == (True, False, False)
    assert y.grad_fn.saved_tensors[0] is x
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]
    assert Scaled.apply(x.detach(), x.detach(), 1).grad_fn is None
    with torch.no_grad():
        assert not Scaled.apply(x, x, 1).requires_grad


def test_several_outputs():
    Pair.seen.clear()
    x = leaf()
    a, b, number = Pair.apply(x)
    assert (a.output_nr, b.output_nr, number) == (0, 1, 7)
    b.sum().backward()
    (a * b).sum().backward()
    assert x.grad.tolist() == [3 + 12.0, 3 + 24.0]
    assert Pair.seen == [(True, True, False), (True, True, False)], "zeros are made"
    Pair.materialize = False
    Pair.apply(x)[1].sum().backward()
    Pair.materialize = True
    assert Pair.seen[2] == (False, True, False)


def test_non_differentiable_outputs():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            sign = x.sign()
            ctx.mark_non_differentiable(sign)
            return x.abs(), sign, x.argmax()

        @staticmethod
        def backward(ctx, g, *rest):
            assert all(r.sum().item() == 0 for r in rest)
            return g

    size, sign, place = Split.apply(leaf())
    assert [t.requires_grad for t in (size, sign, place)] == [True, False, False]
    size.sum().backward()


def test_in_place_functions():
    x = leaf()
    y = x * 1
    assert Doubled.apply(y) is y
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    x.grad, base = None, x * 1
    Doubled.apply(base[:1])  # a view: its base gets the history
    (base * base).sum().backward()
    assert x.grad.tolist() == [8.0, 4.0]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        Doubled.apply(x)


def test_input_returned_as_it_is():
    x = leaf()
    y = Reversed.apply(x)
    assert y is not x and not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]
    z = Reversed.apply(x * 1)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        z.mul_(2)
    base = x * 1
    z = Reversed.apply(base)
    base.mul_(2)
    with pytest.raises(GraphError, match="modified inplace"):
        z.sum().backward()


def test_saved_tensors_are_guarded_and_freed():
    x = leaf()
    a = x * 1
    y = Scaled.apply(a, x, 1.0)
    a.add_(1)
    with pytest.raises(
        GraphError, match=r"saved tensor 0 of ScaledBackward .* is at version 1; expected version 0"
    ):
        y.sum().backward()
    y = Scaled.apply(x, x, 1.0).sum()
    y.backward()
    with pytest.raises(GraphError, match="already been freed"):
        y.backward()


def test_returned_arrays_stay_the_functions_own():
    kept = torch.ones(2, dtype=torch.float64)

    class Constant(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return kept

    x = leaf()
    Constant.apply(x).sum().backward()
    Constant.apply(x).sum().backward()
    assert (kept.tolist(), x.grad.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_once_differentiable():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            assert not torch.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = leaf()
    (g,) = torch.autograd.grad(Cube.apply(x).sum(), x)
    assert g.tolist() == [3.0, 12.0]
    (g,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    with pytest.raises(GraphError, match="marked with @once_differentiable"):
        g.sum().backward()


def test_misuse():
    with pytest.raises(NotImplementedError, match="forward function"):
        Function.apply(leaf())
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Exp()
    with pytest.raises(RuntimeError, match="Legacy autograd function"):
        instance(leaf())
    with pytest.raises(RuntimeError, match=r"'next_functions' is invalid .* belongs to the grad_fn"):
        print(instance.next_functions)
    assert not hasattr(instance, "nothing")

    class Forgetful(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x + 1

    with pytest.raises(RuntimeError, match=r"marked as dirty .* not returned"):
        Forgetful.apply(torch.ones(2))

    class Number(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="argument 0 is of type int"):
        Number.apply(leaf())


def test_saved_tensors_are_the_objects_that_were_saved():
    class Identity(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            assert ctx.saved_tensors[0] is x and ctx.saved_tensors[1] is y
            return g, None

    x, y = leaf(), torch.ones(2)
    Identity.apply(x, y).sum().backward()


def test_default_arguments_of_forward():
    class Power(Function):
        @staticmethod
        def forward(x, exponent=2):
            return x**exponent

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.exponent = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.exponent * x ** (ctx.exponent - 1), None

    x = leaf()
    (Power.apply(x) + Power.apply(x, exponent=3)).sum().backward()
    assert x.grad.tolist() == [2 + 3.0, 4 + 12.0]


def test_output_returned_twice_is_one_tensor():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, a, b):
            return 2 * (a + b)

    x = leaf()
    a, b = Twice.apply(x)
    assert a is b
    a.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_vjp_is_another_name_of_backward():
    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def vjp(ctx, g):
            return g * 3

    class Both(Named):
        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf()
    Named.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(x).sum().backward()


def test_views_and_in_place():
    """What mark_dirty allows, and what it refuses."""

    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2), x + 1

        @staticmethod
        def backward(ctx, a, b):
            return 2 * (a + b)

    class Stray(Function):
        @staticmethod
        def forward(ctx, x):
            y = x + 1
            ctx.mark_dirty(y)
            return y

    x = leaf()
    a, b = Pair.apply(x * 1)
    (a + b).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="cannot return more than one Tensor"):
        Pair.apply((x * 1)[:1])
    with pytest.warns(UserWarning, match="not an argument of forward"):
        Stray.apply(x)


def test_saved_tensors_that_go_to_who_asks_first():
    class Square(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (x,) = ctx.saved_tensors
            alive, result = weakref.ref(x), grads[0] * 2 * x
            del x
            assert alive() is None
            with pytest.raises(RuntimeError, match="can only be accessed once"):
                ctx.saved_tensors  # noqa: B018
            return result

    x = torch.tensor([3.0], requires_grad=True)
    Square.apply(x.clone()).backward()
    assert x.grad.tolist() == [6.0]
