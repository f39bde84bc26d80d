"""Module._apply and `to`: what they are given, what they call, what stays the same object."""

from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn


class Grid(nn.Module):
    """Has a tensor that is no buffer, and takes it along."""

    def __init__(self) -> None:
        super().__init__()
        self.points = torch.ones(2)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> "Grid":
        self.points = fn(self.points)
        return super()._apply(fn, recurse)


def test_a_child_converts_what_it_has_besides_members() -> None:
    model = nn.Sequential(nn.Sequential(Grid()))
    assert model.double()[0][0].points.dtype is torch.float64
    assert model.to_empty(device="meta")[0][0].points.is_meta


def test_a_function_of_apply_is_given_the_parameters_and_may_write_to_them() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = grad = torch.zeros(2, 2)
    product, seen = layer.weight * layer.weight, []
    layer._apply(lambda t: seen.append(type(t)) or t.add_(1.0))
    assert seen == [nn.Parameter, torch.Tensor, nn.Parameter] and grad.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    layer.double()
    assert layer.weight.grad is grad and grad.dtype is torch.float64


@pytest.mark.parametrize("arguments", [
    ("cpu", True), (None, True), (torch.float64, torch.float32), ([],), ("cpu", torch.tensor(3)), ("cpu", None, False, 1),
])  # fmt: skip
def test_to_takes_pytorchs_orders_of_arguments_alone(arguments: Any) -> None:
    with pytest.raises(TypeError):
        nn.Linear(1, 1).to(*arguments)


def test_to_says_what_it_does_not_do() -> None:
    with pytest.raises(RuntimeError, match="copy"):
        nn.Linear(1, 1).to("cpu", copy=True)


def test_gradients_filled_with_zeros_do_not_ask_for_gradients() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = grad = torch.ones(2, 2, requires_grad=True)
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is grad and not grad.requires_grad and not grad.any()


def test_assigned_buffers_are_registered_as_the_class_says() -> None:
    class Old(nn.Module):
        def register_buffer(self, name: str, tensor: torch.Tensor | None) -> None:  # type: ignore[override]
            super().register_buffer("own_" + name, tensor)

    module = Old()
    module.scale = nn.Buffer(torch.ones(1))
    assert list(module.state_dict()) == ["own_scale"]
    with pytest.raises(RuntimeError, match="no argument persistent"):
        module.other = nn.Buffer(torch.ones(1), persistent=False)
    plain = nn.Linear(1, 1)
    plain.mode = 5
    with pytest.raises(KeyError, match="already exists"):
        plain.mode = nn.Buffer(torch.ones(1))
    with pytest.raises(TypeError, match="parameter 'weight'"):
        plain.weight = nn.Linear(1, 1)


def test_register_module_is_add_module_of_the_class() -> None:
    class Named(nn.Module):
        def add_module(self, name: str, module: Any) -> None:
            super().add_module("layer_" + name, module)

    module = Named()
    module.register_module("a", nn.Identity())
    assert [name for name, _ in module.named_children()] == ["layer_a"]
    assert nn.Linear(1, 1).share_memory().weight.storage().is_shared()


def test_parameters_that_lose_their_elements_are_others() -> None:
    layer = nn.Linear(2, 2)
    held = dict(layer.named_parameters())
    layer.to("meta")
    assert layer.weight.is_meta and not held["weight"].is_meta
    layer.to_empty(device="cpu").load_state_dict(held)
    assert torch.equal(layer.weight, held["weight"]) and layer.weight is not held["weight"]


def test_subclasses_name_members_by_a_function_of_modules() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    named = model._named_members(lambda module: module._buffers.items(), prefix="model")
    assert [name for name, _ in named] == [
        f"model.1.{n}" for n in ("running_mean", "running_var", "num_batches_tracked")
    ]
