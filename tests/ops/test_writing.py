"""In-place ops that change single elements: the same elements as out of place, in the same memory, without a copy."""

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch

INDEX = torch.tensor([2, 0, 2])
PLACES = torch.tensor([[1, 0, 2, 1], [3, 3, 0, 2]])


def ones(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)


CALLS: dict[str, tuple[Any, ...]] = {
    "scatter": (1, torch.tensor([[1, 0], [3, 2]]), ones(2, 2)),
    "scatter_add": (1, PLACES, ones(2, 4)),
    "index_add": (0, INDEX, ones(3, 4)),
    "index_copy": (0, torch.tensor([2, 0]), ones(2, 4)),
    "index_fill": (1, INDEX, -1.5),
    "index_put": ((INDEX, torch.tensor([1, 1, 3])), ones(3)),
    "masked_fill": (torch.tensor([True, False, True, False]), 7.0),
}
# Whether what a scattered reduction keeps is read again after it has been written to.
REDUCTIONS = [(how, include) for how in ("sum", "prod", "mean", "amax", "amin") for include in (True, False)]


@pytest.mark.parametrize("name", CALLS)
def test_writes_what_the_function_returns(name: str):
    x = torch.arange(12.0).reshape(3, 4)
    view, array = x[2], x.numpy()
    expected = getattr(torch, name)(x, *CALLS[name])
    assert getattr(x, f"{name}_")(*CALLS[name]) is x
    assert x.tolist() == expected.tolist() and array is x.numpy()
    assert view.tolist() == expected[2].tolist() and x._version == 1


@pytest.mark.parametrize(("how", "include"), REDUCTIONS)
def test_reductions_write_what_the_function_returns(how: str, include: bool):
    x = torch.arange(12.0).reshape(3, 4)
    expected = torch.scatter_reduce(x, 1, PLACES, ones(2, 4), how, include_self=include)
    assert x.scatter_reduce_(1, PLACES, ones(2, 4), how, include_self=include).tolist() == expected.tolist()


@pytest.mark.parametrize("name", CALLS)
def test_a_recorded_write_has_the_gradient_of_the_function(name: str):
    def gradient(function: Callable[..., torch.Tensor]) -> list[Any]:
        leaf = torch.arange(12.0).reshape(3, 4).requires_grad_()
        (function(leaf * 1.0, *CALLS[name]) * torch.arange(12.0).reshape(3, 4)).sum().backward()
        return leaf.grad.tolist()

    assert gradient(getattr(torch.Tensor, f"{name}_")) == gradient(getattr(torch, name))


def test_a_source_in_the_same_memory_is_read_before_it_is_written():
    x = torch.arange(6.0)
    expected = x.index_copy(0, torch.tensor([1, 2, 4]), x[::2].clone())
    assert x.index_copy_(0, torch.tensor([1, 2, 4]), x[::2]).tolist() == expected.tolist()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_view_with_other_strides_is_written_through(transposed: bool):
    x = torch.zeros(3, 4)
    (x.t() if transposed else x[:, ::2]).index_fill_(1, torch.tensor([1]), 5.0)
    assert x.sum().item() == (20.0 if transposed else 15.0)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_the_size_of_the_tensor_is_allocated(name: str):
    x = torch.zeros(4000, 40)  # 640 kB
    arguments = list(CALLS[name])
    if name == "masked_fill":
        arguments[0] = torch.zeros(40, dtype=torch.bool)
    elif name.startswith("index_") and len(arguments) == 3 and isinstance(arguments[2], torch.Tensor):
        arguments[2] = ones(arguments[1].numel(), 40)
    elif name == "index_fill":
        arguments[0] = 0
    write = getattr(x, f"{name}_")
    write(*arguments)
    tracemalloc.start()
    try:
        write(*arguments)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.relu_(), lambda x: x.clamp_(-1, 1), lambda x: x.clamp_(max=1.0), lambda x: x.div_(2.0),
    ],
)  # fmt: skip
def test_elementwise_functions_write_into_the_tensor(write: Any):
    x = ones(4000, 40)
    write(x)
    tracemalloc.start()
    try:
        write(x)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_wrong_arguments_leave_the_tensor_as_it_was():
    x = torch.arange(4.0)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        x.index_add_(0, torch.tensor([0, 9]), torch.ones(2))
    with pytest.raises(RuntimeError, match="must match"):
        x.masked_fill_(torch.tensor([True, False, True]), 1.0)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.clone().requires_grad_().index_fill_(0, torch.tensor([0]), 1.0)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1).expand(4).masked_fill_(torch.tensor([True, False, True, False]), 0.0)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0] and x._version == 0


def test_python_functions_of_each_element():
    x = torch.arange(6.0).view(2, 3)
    assert x.t().apply_(lambda v: v * v).tolist() == [[0.0, 9.0], [1.0, 16.0], [4.0, 25.0]]
    assert x.tolist() == [[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]
    assert x.map_(torch.tensor([1.0, 2.0, 3.0]), lambda a, b: a if a > b else b)[0].tolist() == [
        1.0,
        2.0,
        4.0,
    ]
    assert x.map2_(x, x, lambda a, b, c: a + b - c) is x and x[1, 2] == 25.0
    assert torch.arange(3).apply_(lambda v: v + 0.5).tolist() == [0, 1, 2]
    for wrong, error in (
        (lambda: torch.ones(1, requires_grad=True).apply_(float), RuntimeError),
        (lambda: x.map_(x.double(), max), TypeError),
        (lambda: x.map_(torch.ones(4), max), RuntimeError),
        (lambda: x.apply_(3), TypeError),
        (lambda: x.apply_(lambda v: "3"), TypeError),
    ):
        with pytest.raises(error):
            wrong()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_what_was_expanded_can_be_filled(dtype: Any):
    base = torch.ones(3).to(dtype)
    base.expand(2, 3).zero_()
    base.expand(2, 3)[1, 2:] = 1
    assert base.tolist() == [0, 0, 1]


def test_lists_are_written_in_place_like_their_tensors():
    whole = (torch.tensor([2, 3]), torch.tensor([4]))
    assert torch._foreach_mul_(whole, [2, 3]) is whole and whole[1].tolist() == [12]
    for refused in (
        lambda: torch._foreach_pow_(whole, 0.5),
        lambda: torch._foreach_maximum_(whole, [1.5, 2.5]),
    ):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type int64"):
            refused()
    assert whole[0].tolist() == [4, 6]
    with pytest.raises(TypeError, match="element of type float at pos 1"):
        torch._foreach_exp_([torch.ones(1), 1.0])
    with pytest.raises(RuntimeError, match="expected to be 0 dim"):
        torch._foreach_mul(whole, torch.tensor([2, 3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_number_over_a_tensor_is_the_number_times_its_reciprocal(dtype: torch.dtype):
    x = torch.arange(1, 50).to(dtype)
    assert torch.equal(10 / x, x.reciprocal() * 10) and torch.equal(1 / x, x.reciprocal())
    leaf = torch.tensor([2.0], dtype=dtype, requires_grad=True)
    y = leaf * 1
    quotient = 3 / y
    y.add_(1)  # which the gradient of a reciprocal does not need
    quotient.backward()
    assert leaf.grad is not None and leaf.grad.item() == -0.75


def test_the_inverse_error_function_may_be_changed_in_place():
    x = torch.tensor([0.0], requires_grad=True)
    torch.erfinv(x).mul_(2).backward()
    assert x.grad is not None and abs(x.grad.item() - math.sqrt(math.pi)) < 1e-6
