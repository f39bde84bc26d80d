"""Mixed precision against PyTorch: the types of results, gradients, short trainings, and the scaler's course."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both import agree

import ddpgrad

pytestmark = pytest.mark.filterwarnings("ignore:.*mkldnn.*")

Call = Callable[[Any, Any, Any], Any]  # of the stack, a float32 matrix, and the same in bfloat16


def _filled(stack: Any, module: Any) -> Any:
    """The module with parameters that are the same in both stacks."""
    with stack.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(
                ((stack.arange(parameter.numel()) * (7 + i)) % 11 - 5).reshape(parameter.shape) / 10
            )
    return module


CALLS: dict[str, Call] = {
    "linear": lambda t, a, b: t.nn.functional.linear(a, a, a[0]),
    "matmul": lambda t, a, b: a @ a[0],
    "mixed": lambda t, a, b: a @ b,
    "mm": lambda t, a, b: t.mm(a, b),
    "bmm": lambda t, a, b: t.bmm(a[None], b[None]),
    "addmm": lambda t, a, b: t.addmm(a, a, a),
    "baddbmm": lambda t, a, b: t.baddbmm(a[None], a[None], a[None]),
    "einsum": lambda t, a, b: t.einsum("ij,jk->ik", a, a),
    "conv1d": lambda t, a, b: t.nn.functional.conv1d(a[None], a[:, :, None]),
    "conv_transpose1d": lambda t, a, b: t.nn.functional.conv_transpose1d(a[None], a[:, :, None]),
    "conv_transpose1d of lower type": lambda t, a, b: t.nn.functional.conv_transpose1d(b[None], a[:, :, None], a[0]),
    "conv_transpose2d with a bias": lambda t, a, b: t.nn.functional.conv_transpose2d(
        a[None, :, :, None], a[:, :, None, None], a[0]
    ),
    "conv_transpose3d": lambda t, a, b: t.nn.functional.conv_transpose3d(
        a[None, :, :, None, None], a[:, :, None, None, None]
    ),
    "lstm of lower type": lambda t, a, b: _filled(t, t.nn.LSTM(4, 4))(b)[0],
    "gru": lambda t, a, b: _filled(t, t.nn.GRU(4, 4))(a)[0],
    "gru of lower type": lambda t, a, b: _filled(t, t.nn.GRU(4, 4))(b)[0],
    "rnn of lower type": lambda t, a, b: _filled(t, t.nn.RNN(4, 4))(b)[0],
    "prelu": lambda t, a, b: t.nn.functional.prelu(a, a[0]),
    "attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(a[None], a[None], a[None]),
    "add": lambda t, a, b: a + b,
    "float64": lambda t, a, b: a.double() @ a.double(),
    "integers": lambda t, a, b: a.long() @ a.long(),
    "softmax": lambda t, a, b: t.softmax(b, 1),
    "exp": lambda t, a, b: b.exp(),
    "layer_norm": lambda t, a, b: t.nn.functional.layer_norm(b, (4,)),
    "sum": lambda t, a, b: b.sum(),
    "prod": lambda t, a, b: b.prod(),
    "trace": lambda t, a, b: b.trace(),
    "cdist": lambda t, a, b: t.cdist(b, b),
    "avg_pool3d": lambda t, a, b: t.nn.functional.avg_pool3d(b[None, None, None], (1, 2, 2)),
    "max_pool2d": lambda t, a, b: t.nn.functional.max_pool2d(b[None, None], 2),
    "mse_loss": lambda t, a, b: t.nn.functional.mse_loss(b, target=b.abs()),
    "l1_loss": lambda t, a, b: t.nn.L1Loss()(b, b.abs()),
    "cross_entropy": lambda t, a, b: t.nn.functional.cross_entropy(b, t.tensor([0, 1, 2, 3])),
    "nll_loss": lambda t, a, b: t.nn.functional.nll_loss(b, t.tensor([0, 1, 2, 3])),
    "bce_with_logits": lambda t, a, b: t.nn.functional.binary_cross_entropy_with_logits(b, b.sigmoid()),
    "kl_div": lambda t, a, b: t.nn.functional.kl_div(b, b.abs(), reduction="sum"),
    "cat": lambda t, a, b: t.cat([a, b]),
    "cat of one type": lambda t, a, b: t.cat([b, b]),
    "stack": lambda t, a, b: t.stack((b, a)),
    "tensordot": lambda t, a, b: t.tensordot(a, a, 1),
    "inner": lambda t, a, b: t.inner(a, a),
    "vecdot": lambda t, a, b: t.linalg.vecdot(a, a),
    "reflect": lambda t, a, b: t.nn.functional.pad(b[None], (1, 1), mode="reflect"),
    "replicate": lambda t, a, b: t.nn.functional.pad(b[None, None], (1, 1, 1, 1), mode="replicate"),
    "circular": lambda t, a, b: t.nn.functional.pad(b[None], (1, 1), mode="circular"),
    "adaptive_max_pool3d": lambda t, a, b: t.nn.functional.adaptive_max_pool3d(b[None, None], (1, 2, 2)),
    "rms_norm": lambda t, a, b: t.nn.functional.rms_norm(b * 0.1, (4,)),
    "index_copy": lambda t, a, b: a.index_copy(0, t.tensor([1]), b[:1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", CALLS)
def test_types_and_values_of_results(case: str, kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)

    def program(stack: Any) -> Any:
        a, lower = stack.tensor(values), getattr(stack, kind)
        with stack.autocast("cpu", dtype=lower):
            return CALLS[case](stack, a, a.to(lower)).detach()

    agree(program, 2e-2 if kind == "bfloat16" else 3e-3)


def _network(stack: Any) -> Any:
    nn = stack.nn
    return nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_running_statistics_are_those_before_rounding(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)

    def program(stack: Any) -> Any:
        layer = stack.nn.BatchNorm1d(4)
        layer(stack.tensor(values).to(getattr(stack, kind)))
        return layer.running_mean, layer.running_var

    assert agree(program)[0].dtype is ddpgrad.float32


@pytest.mark.parametrize(("kind", "tolerance"), [("bfloat16", 3e-2), ("float16", 4e-3)])
def test_training_like_pytorch(kind: str, tolerance: float) -> None:
    """20 steps with scaled losses and clipped gradients: parameters and gradients stay float32."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, 6)).astype(np.float32), rng.integers(0, 3, 32)

    def program(stack: Any) -> Any:
        model = _network(stack)
        optimizer = stack.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scaler = stack.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            with stack.autocast("cpu", dtype=getattr(stack, kind)):
                out = model(stack.tensor(x))
                loss = stack.nn.functional.cross_entropy(out, stack.tensor(y))
            assert out.dtype is getattr(stack, kind) and loss.dtype is stack.float32
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            stack.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
        assert all(p.dtype is p.grad.dtype is stack.float32 for p in model.parameters())
        assert scaler.get_scale() == 1024.0 * 2**4
        return losses

    losses = agree(program, tolerance)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_scaler_with_infinite_gradients(name: str, fused: bool | None) -> None:
    def program(stack: Any) -> Any:
        p = stack.nn.Parameter(stack.ones(3))
        optimizer = getattr(stack.optim, name)([p], lr=0.1, fused=fused)
        scaler = stack.amp.GradScaler(
            "cpu", init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=3
        )
        course: list[Any] = []
        for step in range(24):
            if step == 12:
                state, scaler = scaler.state_dict(), stack.amp.GradScaler("cpu", init_scale=1.0)
                scaler.load_state_dict(state)
            optimizer.zero_grad()
            loss = (p * p).sum() * (float("inf") if step in (4, 5, 13) else 1.0)
            scaler.scale(loss).backward()
            if step % 5 == 4:
                scaler.unscale_(optimizer)
            if step == 20:
                p.grad[1] = float("nan")
            scaler.step(optimizer)
            scaler.update(0.5 if step == 17 else None)
            state = scaler.state_dict()
            course += [state.pop("scale"), state.pop("_growth_tracker"), *p.detach().tolist()]
        return course, state

    agree(program, 1e-5)
