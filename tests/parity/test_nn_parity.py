"""Initial values, random draws, hooks and edges of layers against PyTorch; `test_every_module.py` has every layer."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both import agree


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


EXTREMES: dict[str, tuple[Callable[..., Any], np.ndarray, np.ndarray | None]] = {
    "log-sigmoid": (lambda t, x, y: t.nn.LogSigmoid()(x), _images(3, 4) * 50, None),
    "bce": (
        lambda t, x, y: t.nn.BCELoss()(x, y), np.array([0, 0.2, 1, 1], np.float32), np.array([1, 0.5, 1, 0], np.float32)
    ),
    "bce-logits": (
        lambda t, x, y: t.nn.BCEWithLogitsLoss(pos_weight=t.tensor([0.5, 1.5, 2.0, 0.7]))(x, y),
        _images(3, 4) * 40, np.abs(np.sin(_images(3, 4))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_values(case: str) -> None:
    def program(t: Any) -> Any:
        loss, values, target = EXTREMES[case]
        x = t.tensor(values, requires_grad=True)
        out = loss(t, x, None if target is None else t.tensor(target))
        out.sum().backward()
        return out, x.grad

    agree(program)


INITS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda init, w: init.uniform_(w, -2.0, 3.0),
    "normal": lambda init, w: init.normal_(w, 1.0, 2.0),
    "trunc-normal": lambda init, w: init.trunc_normal_(w, 0.1, 0.5, -0.4, 0.9),
    "trunc-normal-narrow": lambda init, w: init.trunc_normal_(w, 0.0, 1.0, 0.5, 0.9),
    "xavier-uniform": lambda init, w: init.xavier_uniform_(w, init.calculate_gain("tanh")),
    "xavier-normal": lambda init, w: init.xavier_normal_(w),
    "kaiming-uniform": lambda init, w: init.kaiming_uniform_(w, mode="fan_out", nonlinearity="relu"),
    "kaiming-normal": lambda init, w: init.kaiming_normal_(w, a=0.3),
    "orthogonal": lambda init, w: init.orthogonal_(w, 2.0),
    "constant": lambda init, w: init.constant_(w, 0.3),
    "dirac": lambda init, w: init.dirac_(w, 2),
}


@pytest.mark.parametrize("case", INITS)
def test_initial_values(case: str) -> None:
    def program(t: Any) -> Any:
        made = [t.nn.Parameter(t.empty(shape)) for shape in ((6, 4, 3, 3), (4, 30, 1, 1))]
        assert all(INITS[case](t.nn.init, p) is p for p in made)
        return *made, t.rand(1)  # which stands at the same place of the stream

    agree(program, 1e-5 if case == "orthogonal" else 2e-6, seed=5)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping(norm_type: float, max_norm: float) -> None:
    def program(t: Any) -> Any:
        gradients = [_images(4, 3), _images(7) * 3, np.array(2.0, np.float32)]
        params = [t.nn.Parameter(t.zeros(g.shape)) for g in gradients]
        for p, g in zip(params, gradients, strict=True):
            p.grad = t.tensor(g)
        norm = t.nn.utils.clip_grad_norm_(iter(params), max_norm, norm_type)
        clipped = [p.grad.clone() for p in params]
        t.nn.utils.clip_grad_value_(params, 0.1)
        return norm, clipped, [p.grad for p in params]

    agree(program)


def test_backward_hooks_see_what_pytorch_shows() -> None:
    def program(t: Any) -> Any:
        log: list[Any] = []
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 2))

        def note(module: Any, grad_input: Any, grad_output: Any) -> None:
            gradients = [None if g is None else g.detach().clone() for g in (*grad_input, *grad_output)]
            log.append([type(module).__name__, *gradients])

        for module in model:
            module.register_full_backward_hook(note)
        model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that the first input needs no gradient
            model(t.tensor(_images(5, 3))).sum().backward()
        return log, model[0].weight.grad

    agree(program, 1e-5)


@pytest.mark.parametrize("between", ["permuted", "relu", "softmax", "layer_norm"])
@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(3, 40, 5), (3, 1, 50)])
def test_dropout_after_a_permutation_draws_in_order_of_memory(
    shape: tuple[int, ...], order: tuple[int, ...], between: str
):
    def program(t: Any) -> Any:
        functions = t.nn.functional
        x = t.ones(*shape, requires_grad=True)
        y = x.permute(order)
        if between == "layer_norm":
            y = functions.layer_norm(y, y.shape[1:], bias=t.ones(y.shape[1:]))
        elif between != "permuted":
            y = functions.relu(y) if between == "relu" else functions.softmax(y * 2, 1)
        dropped = functions.dropout(y, 0.5)
        dropped.square().sum().backward()
        return dropped, x.grad

    agree(program, seed=4)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "form", ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
)
def test_dropout_draws_pytorchs_numbers(form: str, p: float):
    def program(t: Any) -> Any:
        x = t.ones(3, 40, 2, 3000 if p < 0.5 else 3)
        x = x.flatten(2) if "1d" in form else x[..., None] if "3d" in form else x
        drop = getattr(t.nn.functional, form)
        return drop(x, p, True), drop(x[..., :0], p, True), t.rand(2)

    agree(program, seed=4)


@pytest.mark.parametrize("form", ["max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"])
def test_in_ceil_mode_one_window_may_be_larger_than_the_image(form: str):
    shape = (2, 3, 7) if form.endswith("1d") else (2, 3, 7, 5)

    def program(t: Any) -> Any:
        pool = getattr(t.nn.functional, form)
        x = t.arange(float(np.prod(shape))).reshape(shape).requires_grad_()
        pooled = pool(x, 8, ceil_mode=True)
        pooled.sum().backward()
        with pytest.raises(RuntimeError):
            pool(x, 8)
        with pytest.raises(RuntimeError):
            pool(x, 8, stride=1, ceil_mode=True)
        return pooled, x.grad

    agree(program)
