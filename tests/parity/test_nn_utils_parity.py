"""`nn.utils` and hooks of modules against PyTorch."""

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle
from both import agree

import ddpgrad

VALUES = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)


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
    def program(stack: Any) -> Any:
        utils = stack.nn.utils
        package = utils.parametrizations if case.startswith("new_") else utils
        norm = getattr(package, case.removeprefix("new_"))
        conv = norm(stack.nn.Conv2d(2, 3, 3), "weight")
        layer = norm(stack.nn.Linear(5, 4), **({"dim": None} if "weight" in case else {}))
        clone = copy.deepcopy(layer) if case.startswith("new_") else layer
        results = [*_steps(stack, layer), *conv.state_dict().values()]
        names = [*layer.state_dict(), *conv.state_dict(), repr(conv)]
        if case.startswith("new_"):
            layer.weight = layer.weight.detach() * 2
            results += [layer.weight.clone(), clone(stack.tensor(VALUES))]
            utils.parametrize.remove_parametrizations(layer, "weight")
        else:
            getattr(utils, f"remove_{case}")(layer)
        assert type(layer) is stack.nn.Linear
        return *results, names, layer.eval()(stack.tensor(VALUES)), list(layer.state_dict())

    agree(program, 1e-5, seed=4)


def test_parametrisation_by_a_module_of_ones_own() -> None:
    def program(stack: Any) -> Any:
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
        with pytest.raises(ValueError, match=r"does not have a parameter, a buffer"):
            parametrize.register_parametrization(layer, "nothing", Symmetric())
        return _steps(stack, layer)

    agree(program, 1e-5)


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
    def program(stack: Any) -> Any:
        prune, layer = importlib.import_module(f"{stack.__name__}.nn.utils.prune"), stack.nn.Linear(5, 4)
        PRUNE[case](prune, layer)
        assert prune.is_pruned(stack.nn.Sequential(layer))
        results, names = _steps(stack, layer), list(layer.state_dict())
        for name in [n.removesuffix("_mask") for n in names if n.endswith("_mask")]:
            prune.remove(layer, name)
        assert not prune.is_pruned(layer)
        return results, names, dict(layer.state_dict())

    agree(program, 1e-5, seed=2)


def test_fusion_and_functional_calls() -> None:
    x = np.random.default_rng(0).standard_normal((4, 2, 5, 5)).astype(np.float32)

    def program(stack: Any) -> Any:
        nn, images = stack.nn, stack.tensor(x)
        conv, norm = nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3)
        norm(conv(images))
        fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
        layer = nn.Linear(5, 2)
        weight = stack.ones(2, 5, requires_grad=True)
        before = layer.weight
        home = stack.func if stack is oracle else nn.utils.stateless
        out = home.functional_call(layer, {"weight": weight * 2}, stack.tensor(VALUES))
        out.sum().backward()
        assert layer.weight is before and before.grad is None
        assert stack.allclose(fused(images), norm(conv(images)), atol=1e-5)
        return fused(images), out, weight.grad, layer.bias.grad

    agree(program, 1e-5, seed=2)


def test_modules_made_without_initial_values_leave_the_random_stream_alone() -> None:
    ddpgrad.manual_seed(0)
    layer = ddpgrad.nn.utils.skip_init(ddpgrad.nn.Linear, 3, 4)
    assert layer.weight.shape == (4, 3)
    after = ddpgrad.rand(1)
    ddpgrad.manual_seed(0)
    assert ddpgrad.equal(after, ddpgrad.rand(1))


def test_hooks_of_all_modules_come_first() -> None:
    """Every kind of hook, of all modules and of one, in the order in which PyTorch calls them."""

    def program(stack: Any) -> list[Any]:
        log: list[Any] = []
        where = stack.nn.modules.module
        inner, outer = stack.nn.Identity(), stack.nn.Sequential()
        outer.add_module("inner", inner)

        def note(kind: str) -> Callable[..., None]:
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
        return log

    assert len(agree(program)) > 15


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_of_each_example(reduction: str) -> None:
    def program(stack: Any) -> Any:
        call = importlib.import_module(
            f"{stack.__name__}.nn.utils._per_sample_grad"
        ).call_for_per_sample_grads
        module = stack.nn.Sequential(
            stack.nn.Linear(5, 4), stack.nn.Tanh(), stack.nn.Linear(4, 2, bias=False)
        )
        module[0].bias.requires_grad_(False)
        x = stack.tensor(VALUES).requires_grad_()
        out = call(module, loss_reduction=reduction)(x)
        getattr(out.square(), reduction)().backward()
        assert module[0].weight.grad is None and getattr(module[0].bias, "grad_sample", None) is None
        found = [out, x.grad, module[0].weight.grad_sample, module[2].weight.grad_sample]
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
        return found

    agree(program, 1e-5)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_a_norm_folded_into_weights(transpose: bool, affine: bool) -> None:
    rng = np.random.default_rng(0)
    weight, mean, variance = rng.standard_normal((4, 4, 2)), rng.standard_normal(4), rng.random(4) + 0.5

    def program(stack: Any) -> Any:
        w, b, rm, rv, scale, shift = (stack.tensor(a) for a in (weight, mean, mean, variance, mean + 1, mean))
        rest = (scale, shift) if affine else (None, None)
        return stack.nn.utils.fusion.fuse_conv_bn_weights(
            w.requires_grad_(), b if affine else None, rm, rv, 1e-3, *rest, transpose
        )

    found = agree(program)
    assert found[0].requires_grad and all(type(p) is ddpgrad.nn.Parameter for p in found)
