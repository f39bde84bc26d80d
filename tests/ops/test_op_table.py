"""Every op of the table: forward against its reference, first and second gradient against differences."""

import gc
import warnings
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import ops
from ddpgrad.ops.dispatch.declare import OPS, Op

ops.load_all()  # those of modules that are loaded on use, too
UNIQUE = sorted({op.name for op in OPS.values()})
SAMPLED = [name for name in UNIQUE if OPS[name].samples is not None]
# Ops that are only reached as the gradient of another op, which tests them.
REACHED = {"convolution_weight",
           "dropout_backward", "move"}  # fmt: skip
# Ops of complex numbers, of matrices with a structure that a random direction breaks, or with an input that has no
# gradient: tests/parity/test_op_db.py has them, and tests/ops/test_linalg.py and test_fourier.py.
COMPARED = {
    "cholesky_factor", "cholesky_solve", "complete_qr", "complex", "conj", "eig_factor", "eigh_factor",
    "eigvals", "fft_c2c", "fft_c2r", "fft_r2c", "floor_divide", "heaviside", "igamma", "igammac", "imag",
    "ldl_factor", "ldl_solve", "view_as_complex", "view_as_real", "zeta",
}  # fmt: skip


def samples_of(op: Op) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    assert op.samples is not None
    return list(op.samples(np.random.default_rng(0)))


def to_tensors(value: Any, device: str, grad: bool = False) -> Any:
    if isinstance(value, (np.ndarray, np.floating)):
        t = torch.tensor(np.asarray(value), device=device)
        return t.requires_grad_() if grad and value.dtype.kind == "f" else t
    return [to_tensors(v, device, grad) for v in value] if isinstance(value, list) else value


def leaves(args: Any) -> list[torch.Tensor]:
    flat = [x for a in args for x in (a if isinstance(a, list) else [a])]
    return [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]


def first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def test_every_op_is_sampled_or_reached():
    assert {n for n in UNIQUE if OPS[n].samples is None} == REACHED | COMPARED


@pytest.mark.parametrize("name", SAMPLED)
def test_forward_equals_reference(name: str, device: str):
    op = OPS[name]
    assert op.reference is not None, f"op {name} has samples but no reference"
    for args, kwargs in samples_of(op):
        out = op.call(
            *[to_tensors(a, device) for a in args], **{k: to_tensors(v, device) for k, v in kwargs.items()}
        )
        expected = op.reference(*args, **kwargs)
        pairs = zip(out, expected, strict=True) if isinstance(out, tuple) else [(out, expected)]
        for got, want in pairs:
            assert got.shape == np.shape(want)
            found = got.numpy(force=True)
            if (
                name == "svd_factor" and device != "cpu"
            ):  # the signs of singular vectors are the library's choice
                found, want = np.abs(found), np.abs(want)
            np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def several(out: Any) -> tuple[torch.Tensor, ...]:
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.parametrize("name", sorted({*SAMPLED} - {"index_by", "nonzero"}))
def test_shapes_on_meta(name: str):
    op = OPS[name]
    for args, kwargs in samples_of(op):
        results = []
        for device in ("cpu", "meta"):
            given = to_tensors(list(args), device, grad=True)
            out = several(op.call(*given, **{k: to_tensors(v, device) for k, v in kwargs.items()}))
            roots = [t for t in out if t.requires_grad]
            ones = [torch.ones_like(t) for t in roots]
            grads = torch.autograd.grad(roots, leaves(given), ones, allow_unused=True) if roots else ()
            assert {t.device.type for t in (*out, *grads) if t is not None} <= {device}
            results.append([t for t in (*out, *grads) if t is not None])
        for cpu, meta in zip(*results, strict=True):
            assert (cpu.shape, cpu.dtype) == (meta.shape, meta.dtype)
            assert meta.is_contiguous() or not cpu.is_contiguous()


def directional_error(
    function: Any, inputs: list[np.ndarray], gradients: list[np.ndarray], rng: Any
) -> float:
    """|difference quotient - gradient . direction| along one random direction, relative."""
    step = 1e-6
    direction = [rng.standard_normal(x.shape) for x in inputs]
    up = function([x + step * d for x, d in zip(inputs, direction, strict=True)])
    down = function([x - step * d for x, d in zip(inputs, direction, strict=True)])
    slope = (up - down) / (2 * step)
    expected = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    return abs(slope - expected) / max(1.0, abs(slope), abs(expected))


DIFFERENTIABLE = [n for n in SAMPLED if OPS[n].rules or OPS[n].joint]


class Scalar:
    """sum(op(inputs) * weights) as a function of the floating-point inputs of one sample."""

    def __init__(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> None:
        self.op, self.args, self.kwargs, self.device = op, args, kwargs, device
        # Masks given by keyword are not differentiated.
        out = first(
            op.call(*to_tensors(list(args), device), **{k: to_tensors(v, device) for k, v in kwargs.items()})
        )
        self.weights = np.random.default_rng(1).standard_normal(out.shape)

    def tensors(self, values: list[np.ndarray] | None = None) -> list[Any]:
        args = to_tensors(list(self.args), self.device, grad=True)
        if values is not None:
            with torch.no_grad():
                for leaf, value in zip(leaves(args), values, strict=True):
                    leaf.copy_(torch.tensor(value))
        return args

    def __call__(self, args: list[Any]) -> torch.Tensor:
        out = first(self.op.call(*args, **{k: to_tensors(v, self.device) for k, v in self.kwargs.items()}))
        return (out * torch.tensor(self.weights, device=self.device)).sum()


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_and_second_gradient(name: str, device: str):
    op = OPS[name]
    rng = np.random.default_rng(2)
    for args, kwargs in samples_of(op):
        scalar = Scalar(op, args, kwargs, device)
        tensors = scalar.tensors()
        variables = leaves(tensors)
        values = [t.numpy(force=True).copy() for t in variables]
        gradients = torch.autograd.grad(scalar(tensors), variables, create_graph=True)
        plain = torch.autograd.grad(scalar(tensors), variables)
        for a, b in zip(gradients, plain, strict=True):
            np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=1e-9, atol=1e-11)
        error = directional_error(
            lambda v, f=scalar: f(f.tensors(v)).item(), values, [g.numpy(force=True) for g in gradients], rng
        )
        assert error < 1e-6, f"gradient of {name}{kwargs or ''} is off by {error:.1e}"
        weights = [np.random.default_rng(3).standard_normal(g.shape) for g in gradients]

        def slope(v: list[np.ndarray], f: Scalar = scalar, weights: list[np.ndarray] = weights) -> float:
            args = f.tensors(v)
            found = torch.autograd.grad(f(args), leaves(args))
            return sum(float((g.numpy(force=True) * w).sum()) for g, w in zip(found, weights, strict=True))

        if not any(g.requires_grad for g in gradients):
            assert directional_error(slope, values, [np.zeros_like(v) for v in values], rng) < 1e-5
            continue
        total = sum(
            ((g * torch.tensor(w, device=device)).sum() for g, w in zip(gradients, weights, strict=True)),
            torch.zeros(()),
        )
        second = torch.autograd.grad(total, variables, allow_unused=True, materialize_grads=True)
        error = directional_error(slope, values, [g.numpy(force=True) for g in second], rng)
        assert error < 1e-5, f"second gradient of {name}{kwargs or ''} is off by {error:.1e}"


@pytest.mark.full
def test_every_op_has_the_same_bits_in_a_captured_step():
    unlike = []
    for name in SAMPLED:
        gc.freeze()  # each recording looks for the tensors that are there: not among what was there before
        if not same_bits_captured(OPS[name]):
            unlike.append(name)
    assert unlike == ["nonzero"]  # whose shape depends on elements


def same_bits_captured(op: Op) -> bool:
    """Whether replays of the op and its gradient are made, and have the bits of eager steps."""
    given, options = samples_of(op)[0]

    def run(captured: bool) -> tuple[list[Any], str | None]:
        torch.manual_seed(0)
        args = [to_tensors(a, "cpu", True) for a in given]
        kwargs = {k: to_tensors(v, "cpu", True) for k, v in options.items()}
        inputs = leaves([*args, *kwargs.values()])

        def step(factor: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for t in inputs:
                t.grad = None
            outs = [t for t in several(op.call(*args, **kwargs)) if isinstance(t, torch.Tensor)]
            losses = [(t * factor).abs().square().sum() for t in outs if t.requires_grad]
            if losses:
                torch.autograd.backward(losses)
            return tuple(t.detach() for t in outs)

        run: Any = torch.captured_step(step, warmup=1) if captured else step
        bits = []
        for i in range(4):
            outs = run(torch.tensor(1.0 + i, dtype=torch.float64))
            bits.append(
                [None if t is None else t.numpy().tobytes() for t in (*outs, *[x.grad for x in inputs])]
            )
            with torch.no_grad():
                for t in inputs:
                    t.mul_(0.9)
        return bits, getattr(run, "why_not", None)

    eager, _ = run(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again, why_not = run(True)
    return again == eager and why_not is None
