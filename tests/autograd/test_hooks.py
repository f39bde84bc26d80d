"""Hooks: when they run, what they see, what they may replace."""

from typing import Any

import pytest

import ddpgrad as torch


def leaf() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], requires_grad=True)


def test_order_of_all_hooks():
    log: list[tuple[str, Any]] = []
    x = leaf()
    y = x * 2
    y.register_hook(lambda g: log.append(("tensor 1", g.tolist())))
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: log.append(("tensor 2", g.tolist())))
    y.grad_fn.register_prehook(lambda gs: log.append(("node before", gs[0].tolist())))
    y.grad_fn.register_hook(lambda gi, go: log.append(("node after", gi[0].tolist(), go[0].tolist())))
    accumulator = y.grad_fn.next_functions[0][0]
    x.register_post_accumulate_grad_hook(lambda p: log.append(("accumulated", p.grad.tolist())))
    accumulator.register_hook(lambda gi, go: log.append(("accumulator after", gi, go[0].tolist())))
    accumulator.register_prehook(lambda gs: log.append(("accumulator before", gs[0].tolist())))
    x.register_hook(lambda g: log.append(("leaf", g.tolist())))
    y.sum().backward()
    assert log == [
        ("tensor 1", [1.0, 1.0]),
        ("tensor 2", [10.0, 10.0]),
        ("node before", [10.0, 10.0]),
        ("node after", [20.0, 20.0], [10.0, 10.0]),
        ("leaf", [20.0, 20.0]),
        ("accumulator before", [20.0, 20.0]),
        ("accumulated", [20.0, 20.0]),
        ("accumulator after", (), [20.0, 20.0]),
    ]
    assert y.grad.tolist() == [10.0, 10.0], "retain_grad sees what the other hooks made"
    assert x.grad.tolist() == [20.0, 20.0]


def test_hooks_replace_gradients():
    x = leaf()
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: (gs[0] + 1,))
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, None))
    x.register_hook(lambda g: g + 5)
    y.sum().backward()
    assert x.grad.tolist() == [45.0, 45.0]


def test_handles_remove():
    x = leaf()
    calls: list[int] = []
    handle = x.register_hook(lambda g: calls.append(1))
    with x.register_post_accumulate_grad_hook(lambda p: calls.append(2)):
        x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    assert calls == [1, 2]


def test_hook_of_a_leaf_outlives_its_graph():
    x = leaf()
    calls: list[str] = []
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_hook(lambda gi, go: calls.append("node"))
    del node
    x.register_hook(lambda g: calls.append("leaf"))
    x.sum().backward()
    (x * x).sum().backward()
    assert calls == ["leaf", "node"] * 2


def test_accumulator_is_one_object():
    x = leaf()
    a, b = x * 2, x + 1
    assert a.grad_fn.next_functions[0][0] is b.grad_fn.next_functions[0][0]
    assert a.grad_fn.next_functions[0][0].variable is x


def test_hook_keeps_what_it_was_shown():
    x = leaf()
    kept: list[torch.Tensor] = []
    x.register_hook(kept.append)
    x.sum().backward()
    x.sum().backward()
    assert kept[0].tolist() == [1.0, 1.0], "later gradients must not be added into it"


def test_retain_grad_follows_in_place_changes():
    x = leaf()
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]
    assert y.retains_grad
    x.retain_grad()  # nothing to do for a leaf
    assert not x.retains_grad


def test_hooks_run_for_grad_and_with_create_graph():
    x = leaf()
    y = x * x
    y.register_hook(lambda g: g * 2)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert (g.tolist(), h.tolist()) == ([4.0, 8.0], [4.0, 4.0])


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda g: g[:1], RuntimeError, "hook '<lambda>' has changed the size of value"),
        (lambda g: g.double(), RuntimeError, "hook '<lambda>' has changed the type of value"),
        (lambda g: 3, TypeError, "must return a Tensor or None, got int"),
    ],
)
def test_wrong_results_of_hooks(result: Any, error: type[Exception], text: str):
    x = leaf()
    y = x * 2
    y.register_hook(result)
    with pytest.raises(error, match=text):
        y.sum().backward()


def test_hooks_where_no_gradient_comes():
    log = []
    parts = leaf().unbind()
    parts[0].retain_grad()
    parts[0].register_hook(log.append)
    parts[1].backward()
    assert log == [None] and parts[0].grad is None
    parts[0].register_hook(lambda g: torch.ones(()))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        parts[1].backward()


def test_hooks_see_gradients_in_the_shape_of_the_inputs():
    seen = []
    y = torch.ones(1, requires_grad=True) * torch.ones(3, dtype=torch.float64)
    y.grad_fn.register_hook(
        lambda inputs, outputs: seen.extend([inputs[0].shape, inputs[1], outputs[0].shape])
    )
    y.sum().backward()
    assert seen == [(1,), None, (3,)]


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda gi: gi[0], TypeError, "expected tuple, but hook '<lambda>' of MulBackward0 returned Tensor"),
        (lambda gi: gi[:1], RuntimeError, "incorrect number of values \\(got 1, but expected 2"),
        (lambda gi: (gi[0], gi[0]), RuntimeError, "can't replace a None gradient"),
        (lambda gi: (torch.ones(3), None), RuntimeError, "has changed the size of value"),
    ],
)
def test_wrong_results_of_hooks_on_nodes(result, error, text):
    y = leaf() * 2
    y.grad_fn.register_hook(lambda gi, go: result(gi))
    with pytest.raises(error, match=text):
        y.sum().backward()


def test_where_hooks_cannot_be():
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        torch.ones(2).register_hook(print)
    with pytest.raises(RuntimeError, match="non-leaf"):
        (leaf() * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        torch.ones(2).retain_grad()


def test_metadata_and_names():
    y = leaf() * 2
    y.grad_fn.metadata["layer"] = 3
    assert y.grad_fn.metadata == {"layer": 3}
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_that_are_not_wanted_are_not_computed(create_graph: bool):
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    out, seen = torch.nn.functional.linear(x, w), []
    out.grad_fn.register_hook(lambda grads_in, grads_out: seen.append([g is not None for g in grads_in]))
    torch.autograd.grad(out.sum(), x, create_graph=create_graph, retain_graph=True)
    out.sum().backward(inputs=[w], retain_graph=True)
    out.sum().backward()
    assert [wanted[:2] for wanted in seen] == [[True, False], [False, True], [True, True]]
