"""Subclasses of Tensor: what ops return of them, and their own `__torch_function__`."""

import copy
import io
import pickle
from typing import Any, ClassVar

import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.core.tensor import Tensor
from ddpgrad.nn import functional as F


class Kept(torch.Tensor):
    """Has no `__torch_function__` of its own, and a `numpy` without options."""

    def numpy(self) -> Any:
        return torch.Tensor.numpy(self)


class Younger(Kept):
    """A subclass of that."""


class Telling(torch.Tensor):
    """Writes down what it is asked, and keeps a note beside the elements."""

    asked: ClassVar[list[tuple[Any, Any]]] = []
    note: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append((func, types))
        usual: Any = super()
        result = usual.__torch_function__(func, types, args, kwargs)
        if isinstance(result, cls):
            result.note = next(a.note for a in args if isinstance(a, cls))
        return result


class Unwrapped(torch.Tensor):
    """Makes plain tensors of its own, as classes do that keep something beside the elements."""

    mark: int

    @staticmethod
    def __new__(cls, data: Any, mark: int) -> Any:
        made: Any = torch.Tensor._make_subclass(cls, data)
        made.mark = mark
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        marks = [a.mark for a in args if isinstance(a, cls)]
        plain = [a.as_subclass(torch.Tensor) if isinstance(a, cls) else a for a in args]
        return cls(func(*plain, **(kwargs or {})), sum(marks))


class Forwarding(torch.Tensor):
    """Answers for every attribute that it has not."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.zeros(2), name)


class Silent(torch.Tensor):
    """Answers nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def kept(*values: float) -> Any:
    return torch.tensor(values or (1.0, 2.0)).as_subclass(Kept)


RESULTS: dict[str, Any] = {
    "operator": lambda x: x + 1,
    "number first": lambda x: 1 - x,
    "plain tensor first": lambda x: torch.ones(2) * x,
    "function": lambda x: torch.exp(x),
    "function by name": lambda x: torch.sum(x, dim=0),
    "integers": lambda x: torch.ones(2, dtype=torch.int64) + x.long(),
    "three operands": lambda x: F.linear(torch.ones(1, 2), x[None]),
    "list": lambda x: torch.stack([torch.ones(2), x]),
    "composed": lambda x: F.mse_loss(x, torch.ones(2)),
    "several": lambda x: torch.split(x, 1),
    "named tuple": lambda x: torch.max(x, dim=0),
    "view": lambda x: x.view(2, 1),
    "element": lambda x: x[0],
    "iteration": lambda x: tuple(x),
    "attribute": lambda x: x.data,
    "conversion": lambda x: x.to(torch.float64),
    "like": lambda x: torch.zeros_like(x),
    "new": lambda x: x.new_zeros(3),
    "out": lambda x: torch.add(x, 1, out=torch.empty(2)),
    "in place": lambda x: torch.ones(2).add_(x),
    "module": lambda x: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2))(x),
    "gradient": lambda x: torch.autograd.grad(x.requires_grad_().sum(), x),
    "collated": lambda x: torch.utils.data.default_collate([x, x]),
    "inherited": lambda x: x + x.as_subclass(Younger),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_class_stays(name: str) -> None:
    results = RESULTS[name](kept())
    for result in results if type(results) is not Kept and isinstance(results, tuple) else [results]:
        assert type(result) is (Younger if name == "inherited" else Kept)


COUNTED: dict[str, Any] = {
    "repeats": lambda n: torch.repeat_interleave(torch.arange(2), n),
    "indices repeated": torch.repeat_interleave,
    "lengths of segments": lambda n: torch.segment_reduce(torch.ones(3), "sum", lengths=n),
    "lengths of sequences": lambda n: nn.utils.rnn.pack_padded_sequence(torch.ones(2, 2), n, True).data,
    "lengths of labels": lambda n: F.ctc_loss(torch.zeros(2, 2, 3), torch.ones(2, 2).long(), n, n),
    "offsets of bags": lambda n: F.embedding_bag(n - 1, torch.eye(2), n - n[1]),
    "pivots": lambda n: torch.lu_unpack(torch.eye(2), n.int())[0],
}


@pytest.mark.parametrize("name", COUNTED)
def test_arguments_are_read_without_their_own_numpy(name: str) -> None:
    counts = torch.tensor([2, 1]) if name not in ("pivots", "offsets of bags") else torch.tensor([2, 2])
    assert COUNTED[name](counts.as_subclass(Kept)).tolist() == COUNTED[name](counts).tolist()


def test_making_and_unwrapping_ask_nobody() -> None:
    x = Unwrapped(torch.ones(2), 1)
    made: Any = x + Unwrapped(torch.ones(2), 2)
    assert type(made) is Unwrapped and made.mark == 3 and made.as_subclass(torch.Tensor).tolist() == [2, 2]


def test_attributes_that_a_class_makes_up_change_nothing() -> None:
    x: Any = torch.ones(2).as_subclass(Forwarding)
    for result in (x + 1, 3 - x, torch.ones(2) * 2 * x, torch.stack([x])[0] + 1, x.split(2)[0] + 1):
        assert type(result) is Forwarding and result.tolist() == [2, 2]


def test_what_no_class_is_asked_about() -> None:
    x = kept().requires_grad_()
    (x * 2).sum().backward()
    assert type(x.grad) is torch.Tensor and x.grad.tolist() == [2, 2]
    assert x.shape == (2,) and x.detach().numpy().tolist() == [1, 2] and float(x[1]) == 2
    with torch._C.DisableTorchFunctionSubclass():
        assert type(x + 1) is torch.Tensor and type(x.data) is torch.Tensor
    assert type(nn.Parameter(torch.ones(2)) + 1) is torch.Tensor


def test_a_class_is_told_the_function_and_its_types() -> None:
    x: Any = torch.ones(2).as_subclass(Telling)
    x.note = "mine"
    calls: list[tuple[Any, Any]] = [
        (lambda: torch.add(torch.ones(2), x), torch.add),
        (lambda: torch.ones(2) + x, torch.Tensor.add),
        (lambda: x.add(1), torch.Tensor.add),
        (lambda: F.relu(x), F.relu),
        (lambda: F.layer_norm(x, (2,)), F.layer_norm),
        (lambda: nn.MSELoss()(x, torch.ones(2)), F.mse_loss),
        (lambda: x[0], torch.Tensor.__getitem__),
        (lambda: x.real, torch.Tensor.real.__get__),
        (lambda: torch.unbind(x)[0], torch.unbind),
    ]
    for call, function in calls:
        Telling.asked.clear()
        result = call()
        assert Telling.asked == [(function, (Telling,))], function
        assert type(result) is Telling or function is torch.unbind
    assert (x * 2).note == "mine" and torch.add is not torch.Tensor.add


def test_who_is_asked_first_and_who_answers() -> None:
    assert type(torch.add(kept(), kept().as_subclass(Younger))) is Younger
    for unanswered in (
        lambda: torch.exp(torch.ones(1).as_subclass(Silent)),
        lambda: kept() + torch.ones(2).as_subclass(Silent),
    ):
        with pytest.raises(TypeError, match="Multiple dispatch failed"):
            unanswered()


def test_writing_through_a_subclass_reaches_the_history_of_the_base() -> None:
    base, factor = torch.ones(2), torch.tensor([2.0, 3.0], requires_grad=True)
    base.as_subclass(Kept)[:1].mul_(factor[:1])
    base.sum().backward()
    assert factor.grad is not None and factor.grad.tolist() == [1, 0]


def test_a_parameter_of_a_subclass() -> None:
    layer = nn.Linear(2, 1)
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Kept))
    assert isinstance(layer.weight, nn.Parameter) and isinstance(layer.weight, Kept)
    before = layer.weight.tolist()
    optimizer = torch.optim.Adam(layer.parameters())
    for _ in range(2):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert layer.weight.tolist() != before and type(layer.double().weight) is Kept
    assert type(copy.deepcopy(layer).weight) is Kept and isinstance(copy.deepcopy(layer).weight, nn.Parameter)
    assert not isinstance(kept(), nn.Parameter)


def test_a_subclass_in_files_and_copies() -> None:
    x: Any = kept()
    x.tag = "mine"
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    restored: list[Any] = [
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(x),
        torch.load(file, weights_only=False),
    ]
    for again in restored:
        assert (type(again), again.tag, again.tolist()) == (Kept, "mine", [1, 2])


def test_a_mode_is_asked_by_ops_while_it_lasts() -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        def __init__(self) -> None:
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x, mode = torch.ones(2), Counting()
    with mode:
        x.add_(F.relu(x + 1).sum())
        torch.split(x, 1)
    torch.exp(x)
    assert mode.names == ["add", "relu", "sum", "add_", "split"]
    with mode:
        torch.nn.Linear(2, 1)
        x.new_zeros(2)
        torch.arange(3), torch.tensor([1]), torch.rand(2), torch.hann_window(3), torch.tril_indices(2, 2)
    made = ["empty", "new_zeros", "arange", "tensor", "rand", "hann_window", "tril_indices"]
    assert [name for name in mode.names[5:] if name in made or name[:3] == "new"] == [made[0], *made]
    del mode.names[:]
    with mode:
        x[0], x[:1] = x[1], 3.0
        x.copy_(torch.ones(2)), x.fill_(2), x.zero_()
    assert mode.names == ["__getitem__", "__setitem__", "__setitem__", "ones", "copy_", "fill_", "zero_"]
    assert vars(Tensor)["_operand"] is vars(Tensor)["_array"]  # plain tensors pay nothing again


def test_what_programs_ask_about_functions() -> None:
    from ddpgrad import overrides

    def mine(x: Any) -> Any:
        if overrides.has_torch_function_unary(x):
            return overrides.handle_torch_function(mine, (x,), x)
        return x + 1

    assert type(mine(kept())) is Kept and type(mine(torch.ones(1))) is torch.Tensor
    assert overrides.resolve_name(torch.add) == "torch.add"
    assert overrides.resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.resolve_name(len) is None
    functions = overrides.get_overridable_functions()
    assert torch.add in functions[torch] and F.mse_loss in functions[F]
    assert torch.Tensor.add in functions[torch.Tensor]
    assert overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert not overrides.is_tensor_method_or_property(torch.add)
    assert torch.Tensor.grad.__get__ in overrides.get_default_nowrap_functions()


def test_backward_asks():
    x: Any = torch.ones(2).as_subclass(Telling)
    x.note = "of x"
    loss = (x.requires_grad_() * 2).sum()
    Telling.asked.clear()
    torch.autograd.backward(loss)
    assert Telling.asked[0][0] is torch.autograd.backward
