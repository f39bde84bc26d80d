"""What programs do to the dicts in which a module keeps its members."""

import copy
import gc
import weakref

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.utils._pytree import tree_map


def test_members_are_changed_in_the_dicts_of_a_module() -> None:
    layer = nn.Linear(2, 2, bias=False)
    # How meta-learning libraries make a module of computed parameters.
    clone = nn.Linear.__new__(nn.Linear)
    clone.__dict__ = layer.__dict__.copy()
    clone._parameters = clone._parameters.copy()
    clone._parameters["weight"] = layer.weight * 2
    assert torch.equal(clone(torch.eye(2)), 2 * layer.weight.T) and clone.weight is not layer.weight
    clone(torch.eye(2)).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    clone._parameters = {"bias": None}
    assert list(clone._parameters) == ["bias"] and list(layer._parameters) == ["weight", "bias"]
    layer._parameters = layer._parameters
    assert list(layer._parameters) == ["weight", "bias"] and layer.weight.grad is not None

    # How tensordict puts values into a module and takes them out again.
    own, doubled = layer.__dict__["_parameters"], layer.weight.detach() * 2
    before = own.pop("weight")
    assert not hasattr(layer, "weight") and isinstance(own, dict)
    own["weight"] = doubled
    assert layer.weight is doubled and list(own) == ["bias", "weight"] == list(layer._parameters)
    own |= {"weight": before}
    assert layer.weight is before and copy.deepcopy(layer)._parameters["weight"] is not before
    with pytest.raises(KeyError):
        del own["other"]
    assert own.pop("other", None) is None and layer._modules.pop("other", 1) == 1
    with pytest.raises(KeyError, match="other"):
        own.pop("other")
    doubles = tree_map(
        lambda t: t if t is None else 2 * t, own
    )  # as optimizers of meta-learning make new values
    assert type(doubles) is dict and torch.equal(doubles["weight"], 2 * before)
    # What an attribute hides is there again without it.
    object.__setattr__(layer, "weight", doubled)
    assert layer.weight is doubled and layer._parameters["weight"] is before
    object.__delattr__(layer, "weight")
    assert layer.weight is before
    with pytest.raises(AttributeError, match="'Linear' object has no attribute '_buffers'"):
        nn.Linear.__new__(nn.Linear)._buffers  # noqa: B018


def test_a_module_that_is_initialised_again_has_members_of_its_own() -> None:
    layer = nn.Linear(2, 2)
    layer.more = nn.ReLU()
    layer.__init__(2, 3, bias=False)
    assert list(layer._parameters) == ["weight", "bias"] and layer.bias is None and not hasattr(layer, "more")


def test_within_functional_call_members_are_what_was_given_and_modules_end_without_the_collector() -> None:
    layer, given = nn.BatchNorm1d(2), {"weight": torch.zeros(2), "running_mean": torch.ones(2)}
    seen = []
    layer.register_forward_pre_hook(
        lambda module, args: seen.append(
            (module._parameters["weight"], module.__dict__["_buffers"]["running_mean"])
        )
    )
    torch.func.functional_call(layer, given, (torch.ones(3, 2),))
    assert seen[0][0] is given["weight"] and seen[0][1] is given["running_mean"]
    assert layer._parameters["weight"] is layer.weight is not given["weight"]
    alive = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert alive() is None
    finally:
        gc.enable()
