"""The comparisons of `gradcheck`: gradients and tangents against difference quotients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from . import forward_ad
from .entry import grad
from .function import Function
from .real_numbers import host as _host
from .real_numbers import like as _like
from .real_numbers import real_shape as _real_shape

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """Gradient and difference quotient do not agree, or cannot be compared."""


def tensors_of(outputs: Any) -> list[Tensor]:
    return [
        o for o in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if isinstance(o, Tensor)
    ]


def differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in tensors_of(outputs) if o._requires_grad]


class Undefined(Function):
    """A copy whose gradient is not defined."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> None:
        return None


class Check:
    """One comparison of `func` at `args`."""

    def __init__(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        eps: float,
        atol: float,
        rtol: float,
        nondet_tol: float,
        check_dtypes: bool,
    ) -> None:
        self.func, self.args, self.eps, self.atol, self.rtol = func, args, eps, atol, rtol
        self.nondet_tol, self.check_dtypes = nondet_tol, check_dtypes
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a._requires_grad]
        if not self.places:
            raise ValueError(
                "gradcheck expects at least one input tensor to require gradient, but none of them have "
                "requires_grad=True."
            )
        for i in self.places:
            if any(step == 0 and n > 1 for step, n in zip(args[i].stride(), args[i].shape, strict=True)):
                raise RuntimeError(
                    f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs whose elements do not "
                    "overlap, which it can change one by one: clone() it first."
                )
            name = args[i].dtype.name
            if name not in ("float64", "complex128"):
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point ({name}). This check "
                    "will likely fail if all the inputs are not of double precision.",
                    stacklevel=4,
                )

    def run(self, fast: bool) -> None:
        inputs = [self.args[i] for i in self.places]
        outputs = tensors_of(self.func(*self.args))
        self.kinds = [(o.shape, o.dtype) for o in outputs]
        some = any(output._requires_grad for output in outputs)
        for o, output in enumerate(outputs):
            if output.dtype.category < 2:
                continue
            if not output._requires_grad:
                if not some:  # beside others, one without history is a constant on purpose
                    self._expect_constant(o, output, inputs)
            elif fast:
                self._compare_along_directions(o, output, inputs)
            else:
                self._compare_jacobians(o, output, inputs)

    def run_batched(self) -> None:
        """Two gradients of each output together, and one after the other."""
        rng = np.random.default_rng(0)
        inputs = [self.args[i] for i in self.places]
        for o, output in enumerate(differentiable(self.func(*self.args))):
            seeds = [_like(output, rng.standard_normal(_real_shape(output))) for _ in range(2)]
            alone = [grad(output, inputs, seed, retain_graph=True, allow_unused=True) for seed in seeds]
            batch = _like(output, np.stack([_host(seed, seed) for seed in seeds]))
            together = grad(
                output, inputs, batch, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for i, (x, found) in enumerate(zip(inputs, together, strict=True)):
                expected = np.stack([_host(gradients[i], x) for gradients in alone])
                if not np.allclose(0.0 if found is None else _host(found, found), expected):
                    raise GradcheckError(
                        "gradcheck or gradgradcheck failed while testing batched gradient computation: the gradients of "
                        f"output {o} with respect to input {i} are {found}, one by one they are {expected}"
                    )

    def run_zero(self) -> None:
        """Backward with gradients of zero, from which only zeros can come."""
        inputs = [self.args[i] for i in self.places]
        outputs = differentiable(self.func(*self.args))
        seeds = [_like(o, np.zeros(_real_shape(o))) for o in outputs]
        found = grad(outputs, inputs, seeds, allow_unused=True) if outputs else ()
        if any(g is not None and _host(g, g).any() for g in found):
            raise GradcheckError("backward not multiplied by grad_output")

    def run_undefined(self) -> None:
        """Backward with no gradient for all outputs, then for each of them alone."""
        count = len(differentiable(self.func(*self.args)))
        for only in [None, *range(count if count > 1 else 0)]:
            outputs = differentiable(self.func(*self.args))
            roots = [Undefined.apply(o) if only in (None, i) else o for i, o in enumerate(outputs)]
            inputs = [self.args[i] for i in self.places]
            seeds = [_like(o, np.zeros(_real_shape(o))) for o in outputs]
            try:
                found = grad(roots, inputs, seeds, allow_unused=True) if roots else ()
            except Exception as error:
                warnings.warn(
                    "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but "
                    "it may break existing callers of this function. If this is true for you, you can call this function "
                    'with "check_undefined_grad=False" to disable the feature',
                    stacklevel=3,
                )
                raise GradcheckError(
                    "Expected backward function to handle undefined output grads (None), but it raised "
                    f"{type(error).__name__}: {error}"
                ) from error
            if any(g is not None and _host(g, g).any() for g in found):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
                )

    def run_forward(self) -> None:
        """The tangent of each output as one input moves along a random direction."""
        self.kinds = [(o.shape, o.dtype) for o in tensors_of(self.func(*self.args))]
        rng = np.random.default_rng(0)
        for which, place in enumerate(self.places):
            moving, args = self.args[place], list(self.args)
            direction = rng.standard_normal(_real_shape(moving))
            with forward_ad.dual_level():
                args[place] = forward_ad.make_dual(moving.detach(), _like(moving, direction))
                outputs = tensors_of(self.func(*args))
                tangents = [forward_ad.unpack_dual(output).tangent for output in outputs]
            for o, (output, tangent) in enumerate(zip(outputs, tangents, strict=True)):
                found, expected = _host(tangent, output), self._slope(which, direction, o)
                if output.dtype.category > 1 and not np.allclose(found, expected, self.rtol, self.atol):
                    raise GradcheckError(
                        f"Jacobian computed with forward mode mismatch for output {o} with respect to input {which}: "
                        f"the tangent is {found}, the difference quotient {expected}"
                    )

    # -- gradients -----------------------------------------------------------------------

    def _gradients(self, output: Tensor, inputs: Sequence[Tensor], seed: Array, o: int) -> list[Array]:
        """seed . J for each input, computed twice."""
        found = []
        for _ in range(2):
            row = grad(output, inputs, _like(output, seed), retain_graph=True, allow_unused=True)
            for i, (g, x) in enumerate(zip(row, inputs, strict=True)):
                if g is not None and g._array.shape != x._array.shape:
                    raise GradcheckError(f"gradient of input {i} has size {g.shape}, expected {x.shape}")
                if self.check_dtypes and g is not None and g.dtype is not x.dtype:
                    raise GradcheckError(f"gradient of input {i} has dtype {g.dtype}, expected {x.dtype}")
            found.append([_host(g, x) for g, x in zip(row, inputs, strict=True)])
        for i, (first, again) in enumerate(zip(*found, strict=True)):
            if first.size and np.abs(first - again).max() > self.nondet_tol:
                raise GradcheckError(
                    f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                    f"times gives different values: the gradients of output {o} with respect to input {i} differ by "
                    f"{np.abs(first - again).max():.3g} (nondet_tol {self.nondet_tol})"
                )
        return found[0]

    # -- difference quotients --------------------------------------------------------------

    def _slope(self, which: int, direction: Array, o: int) -> Array:
        """Difference quotient of output `o` as input `which` moves along `direction`."""
        moving = self.args[self.places[which]]
        before = _host(moving, moving).copy()
        ends = []
        try:
            for sign in (1, -1):
                # In place: what `func` closes over moves too, such as a parameter of a module.
                moving._array[...] = _like(moving, before + sign * self.eps * direction)._array
                out = tensors_of(self.func(*self.args))[o]
                self._same_kind(out, o)
                ends.append(_host(out, out).copy())
        finally:
            moving._array[...] = _like(moving, before)._array
        return (ends[0] - ends[1]) / (2 * self.eps)

    def _same_kind(self, out: Tensor, o: int) -> None:
        """`AssertionError` when output `o` has another shape or dtype than at the inputs themselves."""
        for what, expected, got in zip(
            ("shape", "dtype"), self.kinds[o], (out.shape, out.dtype), strict=True
        ):
            assert got == expected, (
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed on the elementwise "
                f"basis, but got {expected} and {got}"
            )

    def _numerical_jacobian(self, which: int, x: Tensor, o: int, size: int) -> Array:
        """Rows: elements of the input; columns: elements of the output."""
        rows = np.zeros((math.prod(_real_shape(x)), size))
        for k in range(len(rows)):
            unit = np.zeros(len(rows))
            unit[k] = 1
            rows[k] = self._slope(which, unit.reshape(_real_shape(x)), o).reshape(-1)
        return rows

    # -- comparisons -----------------------------------------------------------------------

    def _compare_jacobians(self, o: int, output: Tensor, inputs: Sequence[Tensor]) -> None:
        shape = _real_shape(output)
        size = math.prod(shape)
        analytical = [np.zeros((math.prod(_real_shape(x)), size)) for x in inputs]
        for k in range(size):
            seed = np.zeros(size)
            seed[k] = 1
            for jacobian, g in zip(
                analytical, self._gradients(output, inputs, seed.reshape(shape), o), strict=True
            ):
                jacobian[:, k] = g.reshape(-1)
        parts = {"": slice(None)}
        if output.is_complex():
            parts = {f"While considering the {part} part of complex outputs only, ": slice(i, None, 2)
                     for part, i in (("imaginary", 1), ("real", 0))}  # fmt: skip
        for i, (x, a) in enumerate(zip(inputs, analytical, strict=True)):
            n = self._numerical_jacobian(i, x, o, size)
            for part, columns in parts.items():
                if not np.allclose(a[:, columns], n[:, columns], self.rtol, self.atol):
                    raise GradcheckError(
                        f"{part}Jacobian mismatch for output {o} with respect to input {i},\nnumerical:{n[:, columns]}\n"
                        f"analytical:{a[:, columns]}\n"
                    )

    def _compare_along_directions(self, o: int, output: Tensor, inputs: Sequence[Tensor]) -> None:
        rng = np.random.default_rng(o)
        seed = _direction(rng, _real_shape(output))
        for i, (x, g) in enumerate(zip(inputs, self._gradients(output, inputs, seed, o), strict=True)):
            u = _direction(rng, _real_shape(x))
            a, n = (g * u).sum(), (self._slope(i, u, o) * seed).sum()
            if not np.allclose(a, n, self.rtol, self.atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i} along a random direction,\n"
                    f"numerical:{n}\nanalytical:{a}\nfast_mode=False shows the whole Jacobian.\n"
                )

    def _expect_constant(self, o: int, output: Tensor, inputs: Sequence[Tensor]) -> None:
        """An output without history must not depend on the inputs."""
        rng = np.random.default_rng(o)
        for i, x in enumerate(inputs):
            n = self._slope(i, _direction(rng, _real_shape(x)), o)
            if n.size and np.abs(n).max() > self.atol:
                raise GradcheckError(
                    f"Numerical gradient for function expected to be zero: output {o} does not require grad, but "
                    f"changes with input {i}"
                )


def _direction(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A random direction of length 1."""
    values = rng.standard_normal(shape)
    return values / max(float(np.sqrt((values * values).sum())), 1e-12)
