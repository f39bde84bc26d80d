"""Objects that are no Tensors and have a `__torch_function__` are asked by what is given one."""

from __future__ import annotations

from typing import Any

import pytest

import ddpgrad as torch

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
