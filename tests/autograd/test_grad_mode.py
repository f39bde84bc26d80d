"""Grad modes as context managers, decorators and at once."""

import threading
from typing import Any

import pytest

import ddpgrad as torch

X = torch.ones(2, requires_grad=True)


def recorded() -> bool:
    return (X * 2).requires_grad


def test_contexts_nest_and_restore():
    with torch.no_grad():
        assert not recorded()
        with torch.enable_grad():
            assert recorded()
            with torch.set_grad_enabled(False):
                assert not recorded()
            assert recorded()
        assert not torch.is_grad_enabled()
    assert recorded()
    with torch.inference_mode():
        assert not recorded()
    with torch.inference_mode(False), torch.inference_mode(mode=False):
        assert recorded()


def test_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), torch.no_grad():
        _ = 1 / 0
    assert recorded()


def test_decorators():
    for decorate in (torch.no_grad(), torch.no_grad, torch.inference_mode(), torch.inference_mode):
        assert not decorate(recorded)()
        assert recorded()
    assert not torch.set_grad_enabled(False)(recorded)()
    assert recorded()
    with torch.no_grad():
        assert torch.enable_grad()(recorded)()


def test_decorated_generator_holds_the_mode_only_while_it_runs():
    @torch.no_grad()
    def steps():
        """Documented."""
        got = yield recorded()
        try:
            yield got, recorded()
        except KeyError:
            yield "caught"
        return recorded()

    generator = steps()
    assert steps.__doc__ == "Documented."
    assert next(generator) is False
    assert recorded()
    assert generator.send("sent") == ("sent", False)
    assert generator.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value is False


def test_set_grad_enabled_acts_at_once():
    torch.set_grad_enabled(False)
    assert not recorded()
    torch.set_grad_enabled(True)
    assert recorded()


def test_mode_belongs_to_the_thread():
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_backward_inside_no_grad():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    with torch.no_grad():
        y.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert not x.grad.requires_grad


def test_a_decorated_class_is_made_in_the_mode():
    class Made:
        def __init__(self) -> None:
            self.mode = torch.is_grad_enabled()

    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        decorated = torch.no_grad()(Made)
    assert decorated().mode is False and torch.is_grad_enabled()


def test_views_and_arrays_of_what_requires_grad():
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    with torch.no_grad():
        view = y.view(2, 1)
        assert x.numpy().tolist() == [1.0, 1.0]
    assert view.requires_grad and view.is_leaf
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.add_(1)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\)"):
        x.numpy()
    with torch.autograd.set_multithreading_enabled(False):
        y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("value", [None, 1, "False"])
def test_the_mode_is_a_bool(value: Any):
    with pytest.raises(TypeError, match="must be bool"):
        torch.set_grad_enabled(value)
    assert recorded(), "a mode that is refused changes nothing"


def test_clones():
    assert recorded() and torch.no_grad().clone()(recorded)() is False
    assert torch.inference_mode(False).clone().mode is False
    contexts = torch.set_grad_enabled(True).clone()
    assert contexts.mode is True and repr(contexts).endswith("set_grad_enabled(mode=True)")
