"""Modules called with other parameters."""

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.func import functional_call, grad, replace_all_batch_norm_modules_, stack_module_state, vmap


def test_batch_norms_without_statistics():
    model = replace_all_batch_norm_modules_(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert not list(model.buffers())
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    torch.testing.assert_close(model.eval()(x), model.train()(x))


def test_other_parameters_for_one_call():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {name: t.clone() for name, t in model.state_dict().items()}
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    given = {"0.weight": torch.eye(2, requires_grad=True), "1.running_mean": torch.ones(2)}
    functional_call(model, given, (x,)).square().sum().backward()
    assert given["0.weight"].grad is not None and model[0].weight.grad is None
    assert model[0].bias.grad is not None, "what is not replaced is the module's own"
    assert given["1.running_mean"].tolist() != [1.0, 1.0], "buffers are updated in what was given"
    after = model.state_dict()
    assert list(after) == list(before) and all(after[name].equal(before[name]) for name in given)


def test_restored_after_an_error():
    model = nn.Linear(2, 2)
    own = model.weight
    with pytest.raises(RuntimeError):
        functional_call(model, {"weight": torch.ones(3, 3)}, torch.ones(1, 2))
    assert model.weight is own


def test_tied_weights():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    model.forward = lambda x: model["b"](model["a"](x))  # type: ignore[method-assign]
    twice = {"a.weight": 2 * torch.eye(2)}
    assert functional_call(model, twice, torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    with nn.utils.stateless._reparametrize_module(model, twice, tie_weights=True):
        assert model(torch.ones(1, 2)).tolist() == [[4.0, 4.0]]
    alone = functional_call(model, twice, torch.ones(1, 2), tie_weights=False)
    assert alone.tolist() == (2 * model["a"].weight.sum(1)).unsqueeze(0).tolist()


def test_names_are_checked():
    model = nn.Linear(2, 2)
    with pytest.raises(
        RuntimeError, match=r"Unexpected key\(s\): 'weigh'(.|\n)*Missing key\(s\): 'weight', 'bias'"
    ):
        functional_call(model, {"weigh": torch.eye(2)}, torch.ones(1, 2), strict=True)
    with pytest.raises(ValueError, match="appeared in multiple dictionaries"):
        functional_call(model, [{"bias": torch.ones(2)}, {"bias": torch.ones(2)}], torch.ones(1, 2))


def test_an_ensemble():
    models = [nn.Linear(2, 1) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    assert parameters["weight"].shape == (3, 1, 2) and parameters["weight"].is_leaf and not buffers
    x = torch.ones(4, 2)

    def call(own: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(models[0], own, (x,))

    out = vmap(call)(parameters)
    assert out.tolist() == torch.stack([m(x) for m in models]).tolist()
    slopes = vmap(grad(lambda own: call(own).sum()))(parameters)
    assert slopes["bias"].tolist() == [[4.0]] * 3
    with pytest.raises(RuntimeError, match="same class"):
        stack_module_state([nn.Linear(2, 1), nn.ReLU()])


class Counting(nn.Module):
    """Counts its calls in a buffer, and has its weight under two names and a tensor that is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.tied = self.weight
        self.register_buffer("calls", torch.zeros(1))
        self.offset = torch.full((1,), 5.0)
        self.size = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return x * self.weight * self.tied + self.offset


def test_attributes_are_replaced_and_assigned_buffers_handed_back():
    model, x = Counting(), torch.ones(1)
    given = {"offset": torch.zeros(1), "calls": torch.ones(1)}
    assert functional_call(model, given, (x,)).tolist() == [1.0]
    assert given["calls"].tolist() == [2.0], "the buffer that forward assigned"
    assert (model.calls.tolist(), model.offset.tolist()) == ([0.0], [5.0])
    assert functional_call(model, {"other": x}, x).tolist() == [6.0] and not hasattr(model, "other")
    with pytest.raises(TypeError, match="attribute `size`: 1 is not an instance"):
        functional_call(model, {"weight": 2 * x, "size": x}, x)
    with pytest.raises(TypeError, match="not an instance"):
        functional_call(model, {"weight": 2.0}, x)  # type: ignore[dict-item]
    with pytest.raises(AttributeError, match="part"):
        functional_call(model, {"part.weight": x}, x)
    assert model.weight.tolist() == [1.0] and list(model.state_dict()) == ["weight", "tied", "calls"]


def test_one_of_tied_names_is_enough_under_strict():
    model, x = Counting(), torch.ones(1)
    for name in ("weight", "tied"):
        given = {name: torch.full((1,), 2.0), "calls": x}
        assert functional_call(model, given, x, strict=True).tolist() == [9.0]
        assert list(given) == [name, "calls"]
        with pytest.raises(RuntimeError, match=r"Missing key\(s\)"):
            functional_call(model, given, x, strict=True, tie_weights=False)
    with pytest.raises(ValueError, match="multiple values for keys"):
        functional_call(model, {"weight": x, "tied": 2 * x}, x)
