"""GradScaler: the order of its calls, and what it refuses; its course is in tests/parity."""

from collections import defaultdict
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import nn, optim
from ddpgrad.amp.grad_scaler import OptState, _refresh_per_optimizer_state


def start(**options: Any) -> tuple[Any, Any, Any]:
    p = nn.Parameter(torch.ones(2))
    return p, optim.SGD([p], lr=0.5, **options), torch.amp.GradScaler("cpu", init_scale=4.0)


def test_gradients_are_unscaled_once() -> None:
    p, optimizer, scaler = start()
    scaler.scale(p.sum()).backward()
    assert p.grad.tolist() == [4.0, 4.0]
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert p.tolist() == [0.5, 0.5]
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    assert scaler.state_dict()["_growth_tracker"] == 1


def test_a_fused_step_unscales_itself() -> None:
    p, optimizer, scaler = start(fused=True)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    assert p.tolist() == [0.5, 0.5] and p.grad.tolist() == [1.0, 1.0]
    assert optimizer.grad_scale is None and optimizer.found_inf is None


@pytest.mark.parametrize("fused", [False, True])
def test_one_optimizer_of_two_is_skipped(fused: bool) -> None:
    p, optimizer, scaler = start(fused=fused)
    q, other, _ = start(fused=fused)
    scaler.scale(p.sum() + (q * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.step(other)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and q.tolist() == [1.0, 1.0] and scaler.get_scale() == 2.0
    assert p.grad.tolist() == [1.0, 1.0]


def test_what_it_refuses() -> None:
    p, optimizer, scaler = start()
    with pytest.raises(AssertionError, match="Attempted step but _scale is None"):
        scaler.step(optimizer)
    scaler.scale(p.sum())
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    half = nn.Parameter(torch.ones(2, dtype=torch.float16))
    half.grad = torch.ones(2, dtype=torch.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optim.SGD([half]))
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        scaler.load_state_dict({})


def test_several_losses_and_a_scaler_that_is_off() -> None:
    p, optimizer, scaler = start()
    a, (b, c) = scaler.scale([p.sum(), (p.sum(), p.prod())])
    assert (float(a), float(b), float(c)) == (8.0, 8.0, 4.0)
    off = torch.amp.GradScaler("cpu", enabled=False)
    off.scale(p.sum()).backward()
    off.unscale_(optimizer)
    off.step(optimizer)
    off.update()
    assert p.tolist() == [0.5, 0.5] and off.get_scale() == 1.0 and off.state_dict() == {}


def test_trainers_look_up_and_change_where_an_optimizer_is() -> None:
    p, optimizer, scaler = start()
    scaler.scale(p.sum()).backward()
    scaler.unscale_(optimizer)
    state = scaler._per_optimizer_states[id(optimizer)]
    (found,) = state["found_inf_per_device"].values()
    assert state["stage"] is OptState.UNSCALED and found.item() == 0.0
    assert scaler._found_inf_per_device(optimizer) is state["found_inf_per_device"]
    state["stage"] = OptState.READY  # as a closure that computes the gradients again does
    scaler.unscale_(optimizer)
    scaler._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)
    assert scaler._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY
