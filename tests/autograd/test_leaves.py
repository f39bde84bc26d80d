"""What is a leaf, who requires grad, and what detaching does."""

import copy

import pytest

import ddpgrad as torch


def test_is_leaf():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    assert x.is_leaf and x.grad_fn is None
    assert not y.is_leaf and y.requires_grad
    assert torch.ones(2).is_leaf
    assert (torch.ones(2) * 2).is_leaf, "what needs no gradient is a leaf"
    assert y.detach().is_leaf and not y.detach().requires_grad
    with torch.no_grad():
        assert (x * 2).is_leaf
    assert not x[0].is_leaf


def test_requires_grad_rules():
    x = torch.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1, 2]).requires_grad_()
    with pytest.raises(RuntimeError, match="can only change requires_grad flags of leaf variables"):
        (x * 2).requires_grad_(False)
    (x * 2).requires_grad_(True)
    y = x.detach().requires_grad_()
    (y * 3).sum().backward()
    assert x.grad is None and y.grad.tolist() == [3.0, 3.0]


def test_no_gradient_through_integers_and_comparisons():
    x = torch.tensor([1.5, 2.5], requires_grad=True)
    assert not x.long().requires_grad
    assert not (x > 2).requires_grad
    assert not x.argmax().requires_grad
    z = torch.zeros(2, dtype=torch.int64)
    z[0] = x[0]
    assert not z.requires_grad and z.tolist() == [1, 0]


def test_detach_shares_memory_and_version():
    x = torch.ones(2, requires_grad=True)
    d = x.detach()
    d.add_(1)
    assert x.tolist() == [2.0, 2.0]
    assert x._version == d._version == 1
    assert x.data._version == 0, ".data has its own counter"


def test_detach_in_place():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    v = y[:1]
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    v.sum().backward()
    assert x.grad.tolist() == [2.0, 0.0], "a view made before keeps its history"
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        v.detach_()


def test_deepcopy():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.sum().backward()
    y = copy.deepcopy(x)
    y.detach().add_(1)
    assert x.tolist() == [1.0, 2.0] and y.requires_grad and y.grad.tolist() == [1.0, 1.0]
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1]
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


def test_data_can_be_replaced():
    x = torch.ones(2, requires_grad=True)
    node = (x * 1).grad_fn.next_functions[0][0]
    x.data = torch.full((3,), 2.0, dtype=torch.float64)
    (x * x).sum().backward()
    assert (x.grad * x * x).grad_fn.next_functions[1][0] is node
    assert x.grad.dtype is torch.float64 and x.grad.tolist() == [4.0] * 3


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(
    ("leaf", "strides"),
    [
        (torch.ones(2, 3), (3, 1)),
        (torch.ones(3, 2).t(), (1, 2)),
        (torch.ones(4, 6)[::2, ::2], (3, 1)),
        (torch.ones(2, 2, 3, 2).to(memory_format=torch.channels_last), (12, 1, 4, 2)),
    ],
)
def test_a_gradient_lies_in_memory_as_its_leaf_does(leaf, strides, create_graph):
    """Whatever was computed with the leaf; so the gradient of a contiguous parameter can be viewed as a vector."""
    leaf = leaf.detach().requires_grad_()
    for order in (range(leaf.ndim), range(leaf.ndim)[::-1]):
        leaf.grad = None
        moved = leaf.permute(*order) * 1
        given = torch.arange(float(leaf.numel())).reshape(moved.shape)
        moved.backward(given, create_graph=create_graph)
        assert leaf.grad.stride() == strides
        assert torch.equal(leaf.grad.permute(*order), given)


def test_a_retained_gradient_is_nobody_elses():
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    z = y.reshape(2, 1)
    y.retain_grad()
    z.retain_grad()
    given = torch.ones(2, 1)
    z.backward(given)
    given.mul_(3)
    z.grad.mul_(5)
    assert (x.grad.tolist(), y.grad.tolist(), z.grad.tolist()) == ([1.0, 1.0], [1.0, 1.0], [[5.0], [5.0]])


def test_the_dtype_of_gradients():
    """`grad_dtype` is the leaf's own dtype, another that gradients are cast to, or None, which leaves them."""
    x, y = torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 1.001, requires_grad=True)
    assert x.grad_dtype is torch.bfloat16
    x.grad_dtype = torch.float32
    x.requires_grad_()
    for _ in range(2):
        (x * y).sum().backward()
    assert x.grad is not None and x.grad.dtype is torch.float32
    assert (x.grad - 2.002).abs().max() < 1e-6  # which a bfloat16 cannot hold
    with pytest.raises(RuntimeError, match="already a gradient with dtype"):
        x.grad_dtype = torch.bfloat16
    with pytest.raises(RuntimeError, match="gradient with dtype"):
        x.grad = torch.ones(2, dtype=torch.bfloat16)
    for wanted, kind in ((torch.bfloat16, torch.bfloat16), (None, torch.float32)):
        x.grad, x.grad_dtype = None, wanted
        (x * y).sum().backward()
        assert x.grad is not None and x.grad.dtype is kind


def test_grad_dtype_is_for_leaves():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="accessed on leaf"):
        _ = (x * 2).grad_dtype
    with pytest.raises(RuntimeError, match="set on leaf"):
        (x * 2).grad_dtype = torch.float64
    with pytest.raises(TypeError, match=r"must be a torch\.dtype or None"):
        x.grad_dtype = "float64"
    x.grad_dtype = torch.float64
    x.data = torch.ones(3, dtype=torch.float16)
    x.sum().backward()
    assert x.grad is not None and x.grad.dtype is torch.float64 and x.grad.shape == (3,)
