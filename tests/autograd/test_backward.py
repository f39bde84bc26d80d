"""`backward` and `grad`: what they fill, what they return, what they refuse."""

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.errors import GraphError


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_gradients_add_up_over_backwards_and_uses():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (3 * x + x).sum().backward()
    assert x.grad.tolist() == [6.0, 8.0]
    first = x.grad
    x.sum().backward()
    assert x.grad is first, "later gradients are added in place"


def test_leaves_that_share_a_gradient_do_not_share_memory():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (a + b).sum().backward()
    (a * 10).sum().backward()
    assert b.grad.tolist() == [1.0, 1.0]
    seed = torch.ones(2, dtype=torch.float64)
    c = leaf(1.0, 2.0)
    c.backward(seed)
    c.backward(seed)
    assert seed.tolist() == [1.0, 1.0]
    assert c.grad.tolist() == [2.0, 2.0]


def test_second_backward_needs_retain_graph():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(
        GraphError, match=r"Trying to backward through the graph a second time.*retain_graph=True"
    ):
        y.backward()


def test_a_graph_that_saves_nothing_can_run_again():
    x = leaf(1.0, 2.0)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_roots():
    x = leaf(1.0, 2.0)
    torch.autograd.backward([(x * 2).sum(), x * 3], [None, torch.tensor([1.0, 10.0], dtype=torch.float64)])
    assert x.grad.tolist() == [5.0, 32.0]
    # A root on the way of another root.
    x.grad = None
    y = x * 2
    torch.autograd.backward([y, y * y], [torch.ones_like(y), torch.ones_like(y)])
    assert x.grad.tolist() == [2 + 8.0, 2 + 16.0]


def test_inputs_limits_what_is_filled():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    (h * h).sum().backward(inputs=[w, h])
    assert x.grad is None
    assert w.grad.tolist() == [6.0, 32.0]
    assert h.grad.tolist() == [6.0, 16.0]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        h.sum().backward(inputs=[])


def test_grad_returns_and_leaves_alone():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    y = (h * h).sum()
    gh, gx = torch.autograd.grad(y, [h, x], retain_graph=True)
    assert gh.tolist() == [6.0, 16.0]
    assert gx.tolist() == [18.0, 64.0]
    assert x.grad is None
    assert [g.tolist() for g in torch.autograd.grad(y, [w, w])] == [[6.0, 32.0]] * 2
    assert torch.autograd.grad(h, h, torch.ones_like(h))[0].tolist() == [1.0, 1.0]


def test_grad_stops_at_its_inputs():
    x = leaf(1.0, 2.0)
    h = x * x
    torch.autograd.grad((h * h).sum(), h)
    h.sum().backward()  # the graph behind h was not run and not freed
    assert x.grad.tolist() == [2.0, 4.0]


def test_grad_of_unused_inputs():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = (x * 2).sum()
    with pytest.raises(GraphError, match=r"appears to not have been used in the graph.*allow_unused=True"):
        torch.autograd.grad(y, [x, w], retain_graph=True)
    assert torch.autograd.grad(y, [x, w], allow_unused=True, retain_graph=True)[1] is None
    assert torch.autograd.grad(y, [x, w], materialize_grads=True)[1].tolist() == [0.0, 0.0]
    with pytest.raises(GraphError, match="does not require grad"):
        torch.autograd.grad((x * 2).sum(), w.detach())


def test_batched_grad_outputs():
    x = leaf(1.0, 2.0)
    y = x * x
    (rows,) = torch.autograd.grad(y, x, torch.eye(2, dtype=torch.float64), is_grads_batched=True)
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_higher_derivatives():
    x = leaf(0.5, 2.0)
    (g,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(h.sum(), x)
    np.testing.assert_allclose(g.tolist(), [4 * 0.5**3, 32.0])
    np.testing.assert_allclose(h.tolist(), [12 * 0.25, 48.0])
    np.testing.assert_allclose(third.tolist(), [12.0, 48.0])


def test_gradient_penalty_through_backward():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with pytest.warns(UserWarning, match="will create a reference cycle"):
        (x * w * w).sum().backward(create_graph=True)
    assert w.grad.grad_fn is not None
    loss = (w.grad * w.grad).sum()  # (2xw)^2: its gradient in w is 8 x^2 w
    w.grad = None
    loss.backward()
    assert w.grad.tolist() == [24.0, 128.0]


def test_create_graph_gradients_of_two_leaves_are_their_own():
    a, b = leaf(1.0), leaf(2.0)
    with pytest.warns(UserWarning, match="will create a reference cycle"):
        (a + b).sum().backward(create_graph=True)
    (a + b).sum().backward()
    assert (a.grad.item(), b.grad.item()) == (2.0, 2.0)


def test_gradient_has_shape_and_dtype_of_its_tensor():
    x = torch.ones(3, 1, requires_grad=True)
    y = torch.ones(4, dtype=torch.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.shape, x.grad.dtype) == ((3, 1), torch.float32)
    assert (y.grad.shape, y.grad.dtype) == ((4,), torch.float64)


def test_leaf_that_no_longer_requires_grad_gets_none():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = (x * w).sum()
    w.requires_grad_(False)
    y.backward()
    assert w.grad is None
    assert x.grad.tolist() == [3.0, 4.0]


def test_deep_graphs_do_not_recurse():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    y.sum().backward()
    assert x.grad.item() == 1.0
    del y


def test_a_gradient_that_cannot_be_added():
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(1).expand(2)
    with pytest.raises(GraphError, match="refers to a single memory location"):
        (x * 1).sum().backward()
    x.grad = torch.ones(2)
    x.data = torch.ones(3)
    with pytest.raises(
        GraphError, match=r"has shape \[2\], and the gradient that is to be added to it \[3\]"
    ):
        (x * 1).sum().backward()


def test_assigned_grad_is_checked():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="gradient of size"):
        x.grad = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="gradient with dtype"):
        x.grad = torch.zeros(2)
    with pytest.raises(TypeError, match="expected to be a Tensor or None"):
        x.grad = 1.0


def test_a_pass_for_some_inputs_is_no_place_to_run_a_part_again():
    said = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: said.append(torch.autograd._is_checkpoint_valid()))
    y.sum().backward(retain_graph=True)
    torch.autograd.grad(y.sum(), x)
    assert said == [True, False] and torch.autograd._is_checkpoint_valid()
