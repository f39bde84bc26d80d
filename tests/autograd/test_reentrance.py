"""Backward passes inside one another, deeper than Python calls may nest."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad.autograd import Function, passes
from ddpgrad.errors import GraphError


def nested(x: torch.Tensor, at_the_bottom: Callable[[], object]) -> torch.Tensor:
    """A step whose backward makes a step from `x - 1` and runs backward through it, until that is negative."""

    class Nested(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                ctx.inner = x.detach().requires_grad_() - 1
            return ctx.inner.detach()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            if ctx.inner < 0:
                at_the_bottom()
            else:
                with torch.enable_grad():
                    Nested.apply(ctx.inner).backward()
            return grad

    return Nested.apply(x)


def start(depth: int, at_the_bottom: Callable[[], object]) -> torch.Tensor:
    x = torch.tensor(float(depth), requires_grad=True)
    nested(x, at_the_bottom).backward()
    assert x.grad is not None
    return x.grad


def test_two_thousand_passes():
    reached: list[bool] = []
    assert start(2000, lambda: reached.append(True)).item() == 1 and reached == [True]
    assert threading.active_count() < 100, "threads end with what they were for"


@pytest.mark.gpu
def test_work_stays_on_the_stream_of_a_gpu():
    seen: list[tuple[torch.cuda.Stream, threading.Thread]] = []
    torch.ones(1, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        own = torch.cuda.current_stream()
        start(200, lambda: seen.append((torch.cuda.current_stream(), threading.current_thread())))
    assert seen[0][1] is not threading.current_thread() and seen[0][0] == own


def test_the_state_of_the_thread_goes_along():
    seen: list[Any] = []
    packed: list[int] = []

    def look() -> None:
        x = torch.ones(2, 2, requires_grad=True)
        with torch.enable_grad():
            seen.append(((x @ x).dtype, torch.is_grad_enabled(), threading.current_thread().name))
        torch.autograd.Variable._execution_engine.queue_callback(lambda: seen.append("at the end"))

    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t),
    ):
        start(50, look)
    assert seen[0][:2] == (torch.bfloat16, True) and seen[0][2].startswith("backward at depth")
    assert seen[1:] == ["at the end"] and packed


def test_errors_come_back():
    def fails() -> None:
        raise KeyError("at the bottom")

    with pytest.raises(KeyError, match="at the bottom"):
        start(100, fails)
    assert torch.is_grad_enabled()


def test_what_never_ends_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(passes, "DEEPEST", 3 * passes.PASSES_A_THREAD)
    with pytest.raises(GraphError, match="from within backward 60 times"):
        start(100, lambda: None)


def test_callbacks_are_called_when_the_pass_that_queued_them_has_ended():
    seen: list[str] = []
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def inner() -> None:
        queue(lambda: seen.append("inner"))
        x = torch.ones(1, requires_grad=True)
        x.register_hook(lambda grad: queue(lambda: seen.append("innermost")))
        with torch.enable_grad():
            (x * 2).backward()
        seen.append("within")

    start(0, inner)
    assert seen == ["innermost", "within", "inner"]
