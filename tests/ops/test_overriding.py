"""Objects that are no Tensors and have a `__torch_function__` are asked by what is given one."""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F

CALLS: dict[str, Any] = {
    "exp": lambda x: torch.exp(x),
    "sum": lambda x: torch.sum(x, -1),
    "sum by name": lambda x: torch.sum(x, dim=-1),
    "matmul": lambda x: torch.matmul(x, torch.ones(2)),
    "add": lambda x: torch.add(x, torch.ones(2)),
    "mul": lambda x: torch.ones(2) * x,
    "rmatmul": lambda x: torch.matmul(torch.ones(2), x),
    "stack": lambda x: torch.stack([torch.ones(2), x]),
    "where": lambda x: torch.where(torch.tensor(True), x, x),
    "unsqueeze": lambda x: torch.unsqueeze(x, 0),
    "linear": lambda x: torch.nn.functional.linear(torch.ones(2), x),
    "linalg_solve": lambda x: torch.linalg.solve(x, torch.ones(2)),
    "linalg_cholesky": lambda x: torch.linalg.cholesky(x),
    "logdet": lambda x: torch.logdet(x),
}


class Lazy:
    """Answers with what it was asked."""

    answer: Any = None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.answer(func, types, args, kwargs or {})


class Silent:
    """Does not answer."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


@pytest.mark.parametrize("name", CALLS)
def test_it_is_asked_with_the_function_and_its_arguments(name: str) -> None:
    lazy = Lazy()
    Lazy.answer = staticmethod(lambda *asked: asked)
    func, types, args, kwargs = CALLS[name](lazy)
    expected = {"mul": torch.Tensor.mul, "rmatmul": torch.matmul, "sum by name": torch.sum}.get(name) or (
        getattr(torch.linalg, name[7:])
        if name.startswith("linalg")
        else getattr(torch, name, torch.nn.functional.linear)
    )
    assert func is expected
    assert Lazy in types and set(types) <= {Lazy, torch.Tensor} and kwargs in ({}, {"dim": -1})
    flat = [part for a in args for part in (a if isinstance(a, list) else [a])]
    assert any(part is lazy for part in flat) and len(args) + len(kwargs) == {"sum": 2, "sum by name": 2}.get(
        name, len(args)
    )


def test_arguments_are_told_as_they_were_given() -> None:
    lazy, x = Lazy(), torch.ones(2)
    Lazy.answer = staticmethod(lambda func, types, args, kwargs: (args, kwargs))
    assert torch.softmax(lazy, dim=-1) == ((lazy,), {"dim": -1})
    assert torch.cat([lazy, x], dim=0) == (([lazy, x],), {"dim": 0})
    assert torch.cat([lazy, x], 0) == (([lazy, x], 0), {})
    assert torch.chunk(lazy, chunks=2) == ((lazy,), {"chunks": 2})
    assert torch.baddbmm(lazy, x, x, alpha=1) == ((lazy, x, x), {"alpha": 1})


def test_who_does_not_answer_leaves_the_error() -> None:
    for call in CALLS.values():
        with pytest.raises(TypeError):
            call(Silent())


def test_errors_of_the_answer_are_the_programs() -> None:
    def refuse(*asked: Any) -> None:
        raise KeyError("mine")

    Lazy.answer = staticmethod(refuse)
    with pytest.raises(KeyError, match="mine"):
        torch.exp(Lazy())  # type: ignore[arg-type]


PACKAGES = (torch, F, torch.linalg, torch.fft, torch.special)
IN_PLACE = {"as_strided_", "detach_", "fill_", "index_put_", "resize_as_", "zero_"}  # of tensors only


def functions_of_tensors() -> list[Callable[..., Any]]:
    """The public functions whose first argument is a tensor, or several."""
    found = []
    for package in PACKAGES:
        for name in sorted({*dir(package)} - IN_PLACE - {"set_rng_state"}):
            function = getattr(package, name)
            if inspect.isfunction(function) and not name.startswith("_"):
                first = next(iter(inspect.signature(function).parameters.values()), None)
                if first is not None and "Tensor" in str(first.annotation):
                    found.append(function)
    return found


def test_all_functions_ask_what_is_no_tensor() -> None:
    lazy, silent = Lazy(), []
    Lazy.answer = staticmethod(lambda func, *_: func)
    functions = functions_of_tensors()
    for function in functions:
        required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        named = {p.name: lazy for p in required if p.kind is p.KEYWORD_ONLY}
        answer = function(*[lazy] * (len(required) - len(named)), **named)
        if answer is not function:
            silent.append((function.__name__, answer))
    assert not silent and len(functions) > 600


def test_operands_in_a_list_are_asked_one_by_one() -> None:
    lazy, x = Lazy(), torch.ones(2, 2)
    Lazy.answer = staticmethod(lambda func, types, args, kwargs: (func, args))
    assert torch.einsum("ij,jk->ik", [x, lazy]) == (torch.einsum, ("ij,jk->ik", x, lazy))
    assert torch._assert(lazy, "said") == (torch._assert, (lazy, "said"))


class Right:
    """Knows what to do with a tensor on its left."""

    def known(self, other: Any) -> str:
        return "answered"

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = known
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __lt__ = __le__ = __gt__ = __ge__ = known


class RightTuple(Right, tuple[int, ...]):
    __lt__, __le__, __gt__, __ge__ = (Right.known,) * 4  # type: ignore[assignment]


OPERATORS = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift",
    "rshift", "lt", "le", "gt", "ge", "iadd", "isub", "imul", "itruediv",
]  # fmt: skip


@pytest.mark.parametrize("right", [Right(), RightTuple((1, 2))], ids=["object", "tuple"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_leave_unknown_operands_to_their_methods(name: str, right: Any) -> None:
    assert getattr(operator, name)(torch.ones(2, dtype=torch.int64), right) == "answered"
    assert getattr(operator, name)(torch.ones(2).as_subclass(Plain), right) == "answered"
    with pytest.raises(TypeError, match="supported"):
        getattr(operator, name)(torch.ones(2, dtype=torch.int64), None)


class Plain(torch.Tensor):
    pass


def test_what_is_no_number_is_not_equal() -> None:
    x = torch.zeros(2)
    assert (x == "a") is False and (x != None) is True  # noqa: E711
