"""The graph as users handle it: nodes, edges, hooks on several tensors."""

import copy
import pickle
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.autograd.graph import (
    GradientEdge,
    Node,
    get_gradient_edge,
    increment_version,
    register_multi_grad_hook,
)
from ddpgrad.errors import GraphError


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nodes_are_not_copied(how: Any):
    with pytest.raises(TypeError, match="cannot pickle 'MulBackward0' object"):
        how((leaf() * 2).grad_fn)


def test_what_is_no_tensor_is_refused():
    x = leaf()
    for call in (lambda: torch.autograd.grad(x.sum(), None), lambda: torch.autograd.backward(None)):
        with pytest.raises(TypeError):
            call()
    for wrong in (3, [3]):
        with pytest.raises(RuntimeError, match="increment_version expects"):
            increment_version(wrong)


def test_walk():
    x = leaf()
    y = (x * 2).sum()
    assert isinstance(y.grad_fn, Node) and y.grad_fn is y.grad_fn
    ((mul, nr),) = y.grad_fn.next_functions
    assert (mul.name(), nr) == ("MulBackward0", 0)
    (accumulate, _), other = mul.next_functions
    assert accumulate.variable is x and other == (None, 0)


def test_a_node_can_be_called():
    y = leaf() * 3
    y.grad_fn.register_hook(lambda grads_in, grads_out: (grads_in[0] * 10, None))
    assert y.grad_fn(torch.ones(2))[0].tolist() == [30.0, 30.0]
    z = y.exp()
    assert z.grad_fn(torch.ones(2)).tolist() == z.tolist()
    with pytest.raises(TypeError, match="expected 1 arguments, got 2 instead"):
        z.grad_fn(torch.ones(2), torch.ones(2))


def test_gradient_edges_stand_for_tensors():
    x = leaf()
    h = x * x
    edge = get_gradient_edge(h)
    assert edge == GradientEdge(h.grad_fn, 0)
    out = (h * h).sum()
    del h
    (gh,) = torch.autograd.grad(out, edge)
    (gx,) = torch.autograd.grad(edge, x, gh, retain_graph=True)
    assert (gh.tolist(), gx.tolist()) == ([2.0, 8.0], [4.0, 32.0])
    torch.autograd.backward(get_gradient_edge(x.sum()), inputs=[get_gradient_edge(x)])
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.raises(GraphError, match="implicitly created only for scalar outputs"):
        torch.autograd.grad(edge, x)
    with pytest.raises(GraphError, match="Mismatch in shape"):
        torch.autograd.grad(edge, x, torch.ones(3))
    with pytest.raises(RuntimeError, match="does not require gradients"):
        get_gradient_edge(torch.ones(2))


def test_multi_grad_hook_for_all():
    a, b, c, unused = leaf(), leaf(), leaf(), leaf()
    calls: list[list[Any]] = []
    handle = register_multi_grad_hook([a, b, c, unused], lambda grads: calls.append(list(grads)))
    y = (a * b + c).sum()
    y.backward(retain_graph=True)
    y.backward(inputs=[a, c], retain_graph=True)
    assert [[g is not None for g in grads] for grads in calls] == [
        [True, True, True, False],
        [True, False, True, False],
    ]
    torch.autograd.backward(
        y, inputs=[a, unused], retain_graph=True
    )  # what can not be reached is not waited for
    assert len(calls) == 3 and calls[2][0] is not None and calls[2][3] is None
    handle.remove()
    y.backward()
    assert len(calls) == 3


def test_multi_grad_hook_for_any():
    a, b = leaf(), leaf()
    calls: list[torch.Tensor] = []
    with register_multi_grad_hook([a, b], calls.append, mode="any"):
        y = (a * b).sum()
        y.backward(retain_graph=True)
        y.backward()
    assert len(calls) == 2
    with pytest.raises(ValueError, match=r"\('all', 'any'\) but got some"):
        register_multi_grad_hook([a], print, mode="some")


def test_declared_change_is_noticed():
    x = leaf()
    a = x * 1
    y = a * a
    increment_version(a)
    with pytest.raises(GraphError, match="is at version 1; expected version 0"):
        y.sum().backward()


def test_post_accumulate_hook_returns_nothing():
    x = leaf()
    x.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="hooks should return None"):
        x.sum().backward()


def test_grad_of_a_tensor_on_the_way_is_asked_for_by_mistake():
    y = leaf() * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    assert y.grad is None


def test_variable_is_a_tensor():
    x = torch.autograd.Variable(torch.ones(2), requires_grad=True)
    assert isinstance(x, torch.Tensor) and isinstance(x, torch.autograd.Variable) and x.requires_grad


NAMES = {
    "SumBackward0": lambda x: x.sum(),
    "SumBackward1": lambda x: x.sum(0),
    "MeanBackward1": lambda x: x.mean(1),
    "ProdBackward0": lambda x: x.prod(),
    "MaxBackward1": lambda x: x.max(),
    "MaxBackward0": lambda x: x.max(0).values,
    "PowBackward0": lambda x: x**2,
    "PowBackward1": lambda x: x**x,
    "PowBackward2": lambda x: 2**x,
    "ClampBackward0": lambda x: x.clamp(x.detach()),
    "ClampBackward1": lambda x: x.clamp(min=0),
    "MvBackward0": lambda x: x @ x[0],
    "RsubBackward1": lambda x: 1 - x,
    "SubBackward0": lambda x: x - 1,
    "VarMeanBackward0": lambda x: torch.var_mean(x)[1],
    "BmmBackward0": lambda x: torch.bmm(x[None], x[None]),
    "Log1PBackward0": lambda x: x.log1p(),
    "SpecialI0EBackward0": lambda x: torch.special.i0e(x),
    "MaxPool2DWithIndicesBackward0": lambda x: torch.nn.functional.max_pool2d(x[None], 2),
    "torch::autograd::CopySlices": lambda x: _written_through_a_view(x * 1),
}


def _written_through_a_view(x: torch.Tensor) -> torch.Tensor:
    x[0].mul_(2)
    return x


@pytest.mark.parametrize("name", NAMES)
def test_a_node_has_the_name_of_its_overload(name: str):
    node = NAMES[name](torch.ones(2, 2, requires_grad=True)).grad_fn
    assert node.name() == name


def test_the_class_of_a_node_has_its_name_also_when_hooks_pack_what_it_keeps():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    assert type(y.grad_fn).__name__ == type(x.exp().grad_fn).__name__ == "ExpBackward0"
    assert isinstance(y.grad_fn, torch.autograd.graph.Node) and repr(y.grad_fn).startswith(
        "<ExpBackward0 object"
    )
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        packed = (x * y) ** x
    assert type(packed.grad_fn).__name__ == packed.grad_fn.name() == "PowBackward1"
    packed.sum().backward()
    assert x.grad is not None


def test_a_base_that_was_written_through_a_view_prints_so():
    assert repr(_written_through_a_view(torch.ones(2, 1, requires_grad=True) * 1)).endswith(
        "grad_fn=<CopySlices>)"
    )
