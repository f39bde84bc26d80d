"""Checkpoints: the same results and gradients, less memory, the same random numbers."""

import contextlib
import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.utils import checkpoint as checkpoint_module
from ddpgrad.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

Tensor = torch.Tensor
both = pytest.mark.parametrize("use_reentrant", [True, False])


def leaf(*values: float) -> Tensor:
    return torch.tensor(values or (0.5, 2.0), requires_grad=True)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


def wave(x: Tensor) -> Tensor:
    return x.sin().exp().sin()


@both
def test_gradients_of_inputs_and_parameters(use_reentrant: bool):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3, requires_grad=True)
    model(x).square().sum().backward()
    expected = [t.grad.clone() for t in (x, *model.parameters())]
    x.grad = None
    model.zero_grad()
    part = Counted(model)
    out = checkpoint(part, x, use_reentrant=use_reentrant)
    assert part.calls == 1
    out.square().sum().backward()
    assert part.calls == 2
    for t, g in zip((x, *model.parameters()), expected, strict=True):
        assert t.grad.equal(g)


@both
def test_the_same_dropout_in_both_runs(use_reentrant: bool):
    x = torch.ones(100, requires_grad=True)
    y = checkpoint(lambda x: nn.functional.dropout(x.exp(), 0.5), x, use_reentrant=use_reentrant)
    between = torch.rand(3)
    state = torch.get_rng_state()
    y.sum().backward()
    assert ((x.grad != 0) == (y != 0)).all()
    assert torch.get_rng_state().equal(state), "the second run leaves the generator as it was"
    x.grad = None
    y = checkpoint(
        lambda x: nn.functional.dropout(x.exp(), 0.5),
        x,
        use_reentrant=use_reentrant,
        preserve_rng_state=False,
    )
    y.sum().backward()
    assert not ((x.grad != 0) == (y != 0)).all()
    assert between.shape == (3,)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_other_random_numbers_in_the_second_run(use_reentrant: bool):
    drawn = []

    def noisy(x):
        drawn.append(torch.rand(4).tolist())
        return x.exp()

    checkpoint(noisy, leaf(), use_reentrant=use_reentrant, preserve_rng_state=False).sum().backward()
    assert len(drawn) == 2 and drawn[0] != drawn[1]


def test_arguments_and_results_of_any_structure():
    def part(numbers: dict[str, Tensor], name: str, *, scale: float) -> dict[str, Any]:
        return {"out": (numbers["x"] * scale).exp(), "name": name, "none": None}

    x = leaf()
    result = checkpoint(part, {"x": x}, "first", scale=2.0, use_reentrant=False)
    assert result["name"] == "first" and result["none"] is None
    result["out"].sum().backward()
    np.testing.assert_allclose(x.grad.tolist(), (2 * (2 * x).exp()).tolist(), rtol=1e-6)


def test_reentrant_outputs_that_are_no_tensors():
    x = leaf()
    out, text = checkpoint(lambda x: (x.exp(), "text"), x, use_reentrant=True)
    assert text == "text"
    out.sum().backward()
    assert x.grad.tolist() == x.exp().tolist()


@both
def test_memory_is_freed(use_reentrant: bool):
    """10 parts of 10 layers: 100 arrays without checkpoints, and 10 with the layers of one part besides."""
    size = 8 * 50_000

    def part(x: Tensor) -> Tensor:
        for _ in range(10):
            x = x.tanh()
        return x

    def peak(wrapped: Callable[[Tensor], Tensor]) -> float:
        x = torch.zeros(50_000, dtype=torch.float64, requires_grad=True)
        gc.collect()
        tracemalloc.start()
        h = x
        for _ in range(10):
            h = wrapped(h)
        h.sum().backward()
        found = tracemalloc.get_traced_memory()[1] / size
        tracemalloc.stop()
        return found

    assert peak(part) > 100
    assert peak(lambda x: checkpoint(part, x, use_reentrant=use_reentrant)) < 28


def test_nothing_is_left_when_the_graph_is_gone():
    gc.collect()
    gc.disable()
    try:
        x = leaf()
        y = checkpoint(lambda x: checkpoint(wave, x, use_reentrant=False) * x, x, use_reentrant=False)
        y.sum().backward(retain_graph=True)
        dying = [weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(x)]
        del x, y
        assert [r() for r in dying] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("early_stop", [True, False])
def test_nested_and_differentiated_twice(early_stop: bool):
    x = leaf()

    def slope(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]

    def kept(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: checkpoint(function, x, use_reentrant=False)

    with set_checkpoint_early_stop(early_stop):
        for plain, wrapped in (
            (wave, kept(kept(wave))),
            (slope(wave), slope(kept(kept(wave)))),
            (slope(slope(wave)), slope(kept(slope(kept(wave))))),
        ):
            expected, found = plain(x), wrapped(x)
            assert found.tolist() == expected.tolist()
            (a,), (b,) = torch.autograd.grad(expected.sum(), x), torch.autograd.grad(found.sum(), x)
            assert a.tolist() == b.tolist()


def test_nested_runs():
    """The inner part runs once more for the outer one, and once for itself."""
    inner, outer = Counted(wave), Counted(lambda x: checkpoint(inner, x.cos(), use_reentrant=False).tanh())
    checkpoint(outer, leaf(), use_reentrant=False).sum().backward()
    assert (outer.calls, inner.calls) == (2, 3)


@pytest.mark.parametrize(("early_stop", "runs"), [(True, 1), (False, 2)])
def test_early_stop(early_stop: bool, runs: int):
    last = Counted(lambda x: x + 1)  # saves nothing
    checkpoint(lambda x: last(x.exp()), leaf(), use_reentrant=False, early_stop=early_stop).sum().backward()
    assert last.calls == runs


def test_backward_twice_computes_twice():
    part = Counted(wave)
    x = leaf()
    y = checkpoint(part, x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert part.calls == 3
    expected = torch.autograd.grad(wave(x).sum(), x)[0]
    assert x.grad.tolist() == (2 * expected).tolist()


def test_a_saved_tensor_that_is_looked_at():
    part = Counted(lambda x: x.sin().exp())
    y = checkpoint(part, leaf(), use_reentrant=False)
    assert y.grad_fn._saved_result.tolist() == y.tolist() and part.calls == 2


def test_contexts():
    log: list[str] = []

    @contextlib.contextmanager
    def noted(text: str) -> Iterator[None]:
        log.append(text)
        yield

    y = checkpoint(wave, leaf(), use_reentrant=False, context_fn=lambda: (noted("first"), noted("second")))
    assert log == ["first"]
    y.sum().backward()
    assert log == ["first", "second"]


def test_grad_mode_and_autocast_are_those_of_the_first_run():
    modes: list[tuple[bool, str]] = []

    def part(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        modes.append((torch.is_grad_enabled(), y.dtype.name))
        return y.exp()

    x, w = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    with torch.amp.autocast("cpu"):
        y = checkpoint(part, x, w, use_reentrant=False)
    y.float().sum().backward()
    assert modes == [(True, "bfloat16")] * 2
    with torch.no_grad():
        assert not checkpoint(part, x, w, use_reentrant=False).requires_grad


class Changing:
    """Another function in each run."""

    def __init__(self, *functions: Callable[[Tensor], Tensor]) -> None:
        self.functions = iter(functions)

    def __call__(self, x: Tensor) -> Tensor:
        return next(self.functions)(x)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (lambda x: x.sin(), "A different number of tensors was saved(.|\n)*forward: 2\n.*recomputation: 1"),
        (lambda x: x.sin().sin().sin(), "trying to save more tensors during recomputation"),
        (lambda x: x.double().sin().exp(), "tensors have different metadata(.|\n)*position 0(.|\n)*float64"),
    ],
)
def test_a_second_run_that_differs(second: Callable[[Tensor], Tensor], text: str):
    part = Changing(lambda x: x.sin().exp(), second)
    with pytest.raises(CheckpointError, match=text):
        checkpoint(part, leaf(), use_reentrant=False, early_stop=False).sum().backward()


def test_the_operations_of_both_runs_are_named():
    for switch, given in ((True, False), (None, True)):
        part = Changing(lambda x: x.sin().exp(), lambda x: x.cos())
        with (
            set_checkpoint_debug_enabled(switch),
            pytest.raises(CheckpointError, match=r"forward: SinBackward0, ExpBackward0\n.*: CosBackward0"),
        ):
            checkpoint(part, leaf(), use_reentrant=False, debug=given).sum().backward()


def test_differences_are_tolerated_on_request():
    part = Changing(lambda x: (x * x)[:1], lambda x: x.reshape(2, 1) * x.reshape(2, 1))
    x = leaf()
    checkpoint(part, x, use_reentrant=False, determinism_check="none", early_stop=False)


def test_an_argument_changed_in_place():
    x = leaf() * 1
    y = checkpoint(torch.exp, x, use_reentrant=False)
    z = checkpoint(wave, x, use_reentrant=False)
    x.add_(1)
    with pytest.raises(
        RuntimeError, match=r"an argument of checkpoint\(\) .* is at version 1; expected version 0"
    ):
        (y + z).sum().backward()


def test_reentrant_limits():
    x = leaf()
    y = checkpoint(wave, x, use_reentrant=True).sum()
    assert y.grad_fn.next_functions[0][0].name() == "CheckpointFunctionBackward"
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        torch.autograd.grad(y, x)
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        checkpoint(wave, x, use_reentrant=True).sum().backward(inputs=[x])
    checkpoint(wave, x, use_reentrant=True).sum().backward()
    assert x.grad is not None
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(wave, torch.ones(2), use_reentrant=True)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        checkpoint(lambda x: x.detach(), x, use_reentrant=True).sum().backward()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"use_reentrant": True, "scale": 1}, "Unexpected keyword arguments: scale"),
        ({"use_reentrant": True, "debug": True}, "only supported when use_reentrant=False"),
        ({"use_reentrant": False, "determinism_check": "all"}, "determinism_check should be one of"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        checkpoint(wave, leaf(), **options)


def test_the_choice_should_be_made():
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(wave, leaf())
    with pytest.warns(UserWarning, match="checkpoint_sequential: the use_reentrant parameter"):
        checkpoint_sequential([torch.sin, torch.exp], 2, leaf())


@both
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_sequential(use_reentrant: bool, segments: int):
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(3, 3), nn.Tanh())))
    x = torch.randn(2, 3, requires_grad=True)
    model(x).sum().backward()
    expected, x.grad = x.grad, None
    checkpoint_sequential(model, segments, x, use_reentrant=use_reentrant).sum().backward()
    assert x.grad.equal(expected)
    with pytest.raises(ValueError, match="segments must lie between"):
        checkpoint_sequential(model, 9, x, use_reentrant=use_reentrant)


def test_surrounding_hooks_and_hooks_inside():
    x = leaf()
    expected = torch.autograd.grad(wave(wave(x)).sum(), x)[0]
    with torch.autograd.graph.save_on_cpu():
        y = checkpoint(wave, wave(x), use_reentrant=False)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == expected.tolist()

    def inside(x: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            x = wave(x)
        return wave(x)

    y = checkpoint(inside, x, use_reentrant=False)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == expected.tolist()


def test_inputs_are_cut_from_their_history():
    x = torch.ones(2, requires_grad=True)
    other, number = checkpoint_module.detach_variable((x * 2, 3))
    assert other.requires_grad and other.grad_fn is None and number == 3
    with pytest.raises(RuntimeError, match="Only tuple"):
        checkpoint_module.detach_variable(x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint_module.check_backward_validity([torch.ones(1), 3])


def test_wrappers_keep_names_and_gradients():
    from ddpgrad.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        ActivationWrapper,
        checkpoint_wrapper,
        offload_wrapper,
    )

    layer = torch.nn.Linear(3, 2)
    x = torch.ones(4, 3)
    layer(x).square().sum().backward()
    expected = layer.weight.grad.clone()
    for wrap in (checkpoint_wrapper, offload_wrapper):
        wrapped = wrap(layer)
        layer.zero_grad()
        wrapped(x).square().sum().backward()
        assert torch.equal(layer.weight.grad, expected) and isinstance(wrapped, ActivationWrapper)
        assert list(wrapped.state_dict()) == ["weight", "bias"] and wrapped.in_features == 3
