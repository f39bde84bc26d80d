"""Sequential, lists and dicts of modules and parameters."""

from collections import OrderedDict

import pytest

import ddpgrad as torch
from ddpgrad import nn


def names(module: nn.Module) -> list[str]:
    return [n for n, _ in module.named_children()]


def test_sequential() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert model(torch.ones(5, 2)).shape == (5, 1)
    assert len(model) == 3 and isinstance(model[-1], nn.Linear) and [type(m).__name__ for m in model[1:]] == [
        "ReLU", "Linear",
    ]  # fmt: skip
    assert names(model[1:]) == ["1", "2"]  # a slice keeps the names
    model[1] = nn.Tanh()
    model.insert(0, nn.Identity()).append(nn.Sigmoid())
    assert [type(m).__name__ for m in model] == ["Identity", "Linear", "Tanh", "Linear", "Sigmoid"]
    del model[0]
    assert names(model) == ["0", "1", "2", "3"]
    assert isinstance(model.pop(-1), nn.Sigmoid) and len(model) == 3
    with pytest.raises(IndexError, match="index 3 is out of range"):
        model[3]
    named = nn.Sequential(OrderedDict(inner=nn.Linear(2, 2), last=nn.ReLU()))
    assert list(named.state_dict()) == ["inner.weight", "inner.bias"]
    del named[0]
    assert names(named) == ["0"]  # what is left is numbered, whatever it was called
    with pytest.raises(TypeError, match="dict is not a Module"):
        nn.Sequential({"inner": nn.Identity()})


def test_module_list_and_dict() -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    layers += [nn.ReLU()]
    assert layers.insert(3, layers.pop(3)) is None
    assert len(layers) == 4 and len(list(layers.parameters())) == 6 and len(layers[:2]) == 2
    with pytest.raises(NotImplementedError):
        layers(torch.ones(1, 2))
    table = nn.ModuleDict({"a": nn.Linear(1, 1)})
    table["b"] = nn.ReLU()
    table.update([("c", nn.Tanh())])
    assert list(table) == list(table.keys()) == ["a", "b", "c"] and "b" in table
    assert isinstance(table.pop("b"), nn.ReLU) and len(table) == 2
    with pytest.raises(KeyError, match="already exists"):
        table["keys"] = nn.ReLU()


def test_parameter_list_and_dict() -> None:
    values = nn.ParameterList([torch.ones(2), nn.Parameter(torch.zeros(3))])
    values.append(torch.ones(1)).extend([torch.ones(4)])
    assert list(values.state_dict()) == ["0", "1", "2", "3"] and len(values) == 4
    assert isinstance(values[0], nn.Parameter) and values[-1].shape == (4,) and len(values[1:3]) == 2
    values[0] = torch.zeros(5)
    assert [p.numel() for p in values.parameters()] == [5, 3, 1, 4]
    table = nn.ParameterDict({"left": torch.ones(2), "right": nn.Parameter(torch.ones(3))})
    assert list(dict(table.named_parameters())) == ["left", "right"] and table.get("other") is None
    assert table.pop("left").shape == (2,) and list(table.keys()) == ["right"]
    assert "(right): Parameter containing: [torch.FloatTensor of size 3]" in repr(table)
    with pytest.raises(TypeError, match="iterable"):
        values.extend(nn.Parameter(torch.ones(2)))
    for called in (values, table):
        with pytest.raises(RuntimeError, match="should not be called"):
            called(torch.ones(1))


def test_a_vector_becomes_the_memory_of_parameters() -> None:
    layer, vector = nn.Linear(2, 1), torch.arange(4.0)  # one more than there are
    nn.utils.vector_to_parameters(vector, layer.parameters())
    vector += 10
    assert layer.weight.tolist() == [[10, 11]] and layer.bias.tolist() == [12]
    with pytest.raises(RuntimeError):
        nn.utils.vector_to_parameters(torch.ones(2), layer.parameters())


def test_conversions_of_modules() -> None:
    conv = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    assert conv.to(memory_format=torch.contiguous_format).weight.is_contiguous()
    with pytest.raises(RuntimeError, match="rank 4"):
        nn.Conv3d(2, 3, 2).to(memory_format=torch.channels_last)
    with pytest.warns(UserWarning, match="Complex modules"):
        wider = nn.Linear(2, 2, dtype=torch.complex64).to(torch.complex128)
    assert wider.weight.dtype is torch.complex128
    assert nn.Linear(1, 1).to(tensor=torch.ones(1).double()).weight.dtype is torch.float64
    norm = nn.BatchNorm1d(3).type("torch.DoubleTensor")
    assert norm.num_batches_tracked is not None and norm.num_batches_tracked.dtype is torch.float64


def test_a_module_hands_its_arguments_on_if_it_says_so() -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

    class Both(nn.Module, Named):
        call_super_init = True

        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.layer = nn.Linear(1, 1, bias=False)

    assert Both("a").name == "a" and list(Both("a").state_dict()) == ["layer.weight"]
    with pytest.raises(TypeError, match="call_super_init"):
        nn.Module("a")
