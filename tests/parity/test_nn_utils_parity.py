"""`nn.utils` and hooks of modules against PyTorch."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

VALUES = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)


def _close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        found.detach().numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance
    )


def _steps(stack: Any, module: Any, values: np.ndarray = VALUES) -> list[Any]:
    """Two forward passes and one backward: outputs, gradients by name, state."""
    x = stack.tensor(values)
    module(x)
    out = module(x)
    (out * out).sum().backward()
    grads = [p.grad for _, p in module.named_parameters()]
    return [out, *[g for g in grads if g is not None], *module.state_dict().values()]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning")
@pytest.mark.parametrize("case", ["weight_norm", "spectral_norm", "new_weight_norm", "new_spectral_norm"])
def test_reparametrisations(case: str) -> None:
    found = []
    for stack in (oracle, ddpgrad):
        stack.manual_seed(4)
        utils = stack.nn.utils
        package = utils.parametrizations if case.startswith("new_") else utils
        norm = getattr(package, case.removeprefix("new_"))
        conv = norm(stack.nn.Conv2d(2, 3, 3), "weight")
        layer = norm(stack.nn.Linear(5, 4), **({"dim": None} if "weight" in case else {}))
        clone = copy.deepcopy(layer) if case.startswith("new_") else layer
        results = _steps(stack, layer) + list(conv.state_dict().values())
        names = [*layer.state_dict(), *conv.state_dict(), repr(conv)]
        if case.startswith("new_"):
            layer.weight = layer.weight.detach() * 2
            results.append(layer.weight)
            results.append(clone(stack.tensor(VALUES)))
            utils.parametrize.remove_parametrizations(layer, "weight")
        else:
            getattr(utils, f"remove_{case}")(layer)
        assert type(layer) is stack.nn.Linear
        found.append(([*results, layer.eval()(stack.tensor(VALUES))], names, list(layer.state_dict())))
    assert found[1][1:] == found[0][1:]
    for expected, got in zip(found[0][0], found[1][0], strict=True):
        _close(got, expected)


def test_parametrisation_by_a_module_of_ones_own() -> None:
    found = []
    for stack in (oracle, ddpgrad):
        stack.manual_seed(1)
        parametrize = stack.nn.utils.parametrize

        class Symmetric(stack.nn.Module):  # type: ignore[name-defined, misc]
            def forward(self, x: Any) -> Any:
                return x.triu() + x.triu(1).transpose(-1, -2)

        layer = stack.nn.Linear(5, 5)
        before = layer.weight
        parametrize.register_parametrization(layer, "weight", Symmetric())
        assert (
            parametrize.is_parametrized(layer, "weight") and layer.parametrizations.weight.original is before
        )
        with parametrize.cached():
            assert layer.weight is layer.weight
        found.append(_steps(stack, layer))
        with pytest.raises(ValueError, match=r"does not have a parameter, a buffer"):
            parametrize.register_parametrization(layer, "nothing", Symmetric())
    for expected, got in zip(*found, strict=True):
        _close(got, expected)


PRUNE: dict[str, Callable[[Any, Any], Any]] = {
    "l1": lambda prune, m: prune.l1_unstructured(m, "weight", 0.3),
    "random": lambda prune, m: prune.random_unstructured(m, "weight", 7),
    "ln": lambda prune, m: prune.ln_structured(m, "weight", 0.5, 2, 0),
    "random-structured": lambda prune, m: prune.random_structured(m, "weight", 2, 1),
    "channels-of-the-pruned": lambda prune, m: prune.ln_structured(
        prune.l1_unstructured(m, "weight", 11), "weight", 0.5, 1, 0
    ),
    "twice": lambda prune, m: prune.l1_unstructured(
        prune.ln_structured(m, "weight", 1, 1, 1), "weight", 0.25
    ),
    "global": lambda prune, m: prune.global_unstructured(
        [(m, "weight"), (m, "bias")], prune.L1Unstructured, amount=0.4
    ),
    "identity": lambda prune, m: prune.identity(m, "bias"),
}


@pytest.mark.parametrize("case", PRUNE)
def test_pruning(case: str) -> None:
    found = []
    for stack in (oracle, ddpgrad):
        stack.manual_seed(2)
        prune, layer = importlib.import_module(f"{stack.__name__}.nn.utils.prune"), stack.nn.Linear(5, 4)
        PRUNE[case](prune, layer)
        assert prune.is_pruned(stack.nn.Sequential(layer))
        results, names = _steps(stack, layer), list(layer.state_dict())
        for name in [n.removesuffix("_mask") for n in names if n.endswith("_mask")]:
            prune.remove(layer, name)
        assert not prune.is_pruned(layer)
        found.append((results + list(layer.state_dict().values()), names, list(layer.state_dict())))
    assert found[1][1:] == found[0][1:]
    for expected, got in zip(found[0][0], found[1][0], strict=True):
        _close(got, expected)


def test_fusion_and_functional_calls() -> None:
    found = []
    for stack in (oracle, ddpgrad):
        stack.manual_seed(2)
        nn = stack.nn
        conv, norm = nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3)
        x = stack.tensor(np.random.default_rng(0).standard_normal((4, 2, 5, 5)).astype(np.float32))
        norm(conv(x))
        fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
        found.append([fused(x), norm(conv(x))])
        layer = nn.Linear(5, 2)
        weight = stack.ones(2, 5, requires_grad=True)
        before = layer.weight
        functional_call = (
            oracle.func.functional_call if stack is oracle else nn.utils.stateless.functional_call
        )
        out = functional_call(layer, {"weight": weight * 2}, stack.tensor(VALUES))
        out.sum().backward()
        assert layer.weight is before and before.grad is None
        found[-1] += [out, weight.grad, layer.bias.grad]
    for expected, got in zip(*found, strict=True):
        _close(got, expected)
    _close(found[1][0], found[1][1])


def test_modules_made_without_initial_values_leave_the_random_stream_alone() -> None:
    ddpgrad.manual_seed(0)
    layer = ddpgrad.nn.utils.skip_init(ddpgrad.nn.Linear, 3, 4)
    assert layer.weight.shape == (4, 3)
    after = ddpgrad.rand(1)
    ddpgrad.manual_seed(0)
    assert ddpgrad.equal(after, ddpgrad.rand(1))


def test_hooks_of_all_modules_come_first() -> None:
    """Every kind of hook, of all modules and of one, in the order in which PyTorch calls them."""
    logs = []
    for stack in (oracle, ddpgrad):
        log: list[Any] = []
        where = stack.nn.modules.module
        inner, outer = stack.nn.Identity(), stack.nn.Sequential()
        outer.add_module("inner", inner)

        def note(kind: str, log: list[Any] = log) -> Callable[..., None]:
            return lambda module, *rest, **kwargs: log.append((kind, type(module).__name__, len(rest)))

        handles = [
            where.register_module_forward_pre_hook(note("all pre")),
            where.register_module_forward_hook(note("all post"), always_call=True),
            where.register_module_forward_hook(note("all post, with keywords"), with_kwargs=True),
            where.register_module_full_backward_pre_hook(note("all backward pre")),
            where.register_module_full_backward_hook(note("all backward")),
            inner.register_forward_pre_hook(note("pre"), with_kwargs=True),
            inner.register_forward_pre_hook(note("first pre"), prepend=True),
            inner.register_forward_hook(note("post")),
            inner.register_full_backward_pre_hook(note("backward pre")),
            inner.register_full_backward_hook(note("backward")),
        ]
        x = stack.ones(2, requires_grad=True)
        outer(x).sum().backward()
        with pytest.raises(TypeError):
            outer(x, x)
        for handle in handles:
            handle.remove()
        outer(x).sum().backward()
        logs.append(log)
    assert logs[1] == logs[0] and len(logs[0]) > 15


def test_module_lists_print_repeated_layers_once() -> None:
    texts = []
    for stack in (oracle, ddpgrad):
        nn = stack.nn
        layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(1, 1))])
        texts.append(repr(nn.ModuleDict({"body": layers, "none": nn.ModuleList()})))
        doubled = nn.Sequential(nn.ReLU(), nn.Tanh()) * 2
        doubled += nn.Sequential(nn.Identity())
        texts[-1] += repr(doubled) + repr(nn.Sequential(nn.ReLU()) + doubled)
    assert texts[1] == texts[0]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_of_each_example(reduction: str) -> None:
    found = []
    for stack in (oracle, ddpgrad):
        call = importlib.import_module(
            f"{stack.__name__}.nn.utils._per_sample_grad"
        ).call_for_per_sample_grads
        stack.manual_seed(0)
        module = stack.nn.Sequential(
            stack.nn.Linear(5, 4), stack.nn.Tanh(), stack.nn.Linear(4, 2, bias=False)
        )
        module[0].bias.requires_grad_(False)
        x = stack.tensor(VALUES).requires_grad_()
        out = call(module, loss_reduction=reduction)(x)
        getattr(out.square(), reduction)().backward()
        assert module[0].weight.grad is None and getattr(module[0].bias, "grad_sample", None) is None
        found.append([out, x.grad, module[0].weight.grad_sample, module[2].weight.grad_sample])
        for wrong, message in (
            ({}, "grad_sample"),
            ({"batch_size": 0}, "positive"),
            ({"loss_reduction": "max"}, "sum or mean"),
        ):
            with pytest.raises(RuntimeError, match=message):
                call(module, **wrong)
        module.zero_grad()
        module[0].weight.grad_sample = module[2].weight.grad_sample = None
        with pytest.raises(RuntimeError, match="batch"):
            call(module)()
    for one, other in zip(*found, strict=True):
        assert one.shape == other.shape
        _close(other, one)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_a_norm_folded_into_weights(transpose: bool, affine: bool) -> None:
    rng = np.random.default_rng(0)
    weight, mean, variance = rng.standard_normal((4, 4, 2)), rng.standard_normal(4), rng.random(4) + 0.5
    found = []
    for stack in (oracle, ddpgrad):
        arrays = [stack.tensor(a) for a in (weight, mean, mean, variance, mean + 1, mean)]
        arrays[0].requires_grad_()
        w, b, rm, rv, scale, shift = arrays
        rest = (scale, shift) if affine else (None, None)
        found.append(
            stack.nn.utils.fusion.fuse_conv_bn_weights(
                w, b if affine else None, rm, rv, 1e-3, *rest, transpose
            )
        )
    for expected, got in zip(*found, strict=True):
        assert type(got) is ddpgrad.nn.Parameter
        _close(got, expected)
    assert found[1][0].requires_grad
