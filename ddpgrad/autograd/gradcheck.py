"""`gradcheck` and `gradgradcheck`: gradients against difference quotients.

Source of the signatures: https://pytorch.org/docs/stable/autograd.html#numerical-gradient-checking
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._tensor import Tensor, wrap
from ..backend.registry import backend_for, to_device
from .functional import grad
from .grad_mode import enable_grad

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """Gradient and difference quotient do not agree, or cannot be compared."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of `func` with central differences of step `eps`.

    inputs: the arguments; those that require grad, which should be float64, are differentiated.
    Each pair of a floating-point output and an input is compared by its whole Jacobian or, with
    `fast_mode`, along one random direction on each side: |a - n| <= atol + rtol * |n|.
    nondet_tol: by how much two runs of backward may differ. Outputs are differentiated one at a
    time, so a function of several outputs always meets undefined gradients of the others, also
    with `check_undefined_grad=False`. `GradcheckError` where they disagree, or False without
    `raise_exception`.
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    try:
        _Check(func, args, eps, atol, rtol, nondet_tol, check_grad_dtypes).run(fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    fast_mode: bool = False,
) -> bool:
    """`gradcheck` of the gradient of `func`, as a function of the inputs and of `grad_outputs`.

    grad_outputs: one for each output that requires grad; random ones by default.
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = _differentiable(func(*args))
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [_like(o, rng.standard_normal(o._array.shape)) for o in outputs]
        for seed in seeds:
            seed.requires_grad = True
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(args)

    def gradient(*values: Any) -> tuple[Tensor, ...]:
        wanted = [v for v in values[:count] if isinstance(v, Tensor) and v._requires_grad]
        results = _differentiable(func(*values[:count]))
        with enable_grad():
            found = grad(results, wanted, values[count:], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient,
        (*args, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
    )


def _tensors(outputs: Any) -> list[Tensor]:
    return [
        o for o in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if isinstance(o, Tensor)
    ]


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _tensors(outputs) if o._requires_grad]


def _host(tensor: Tensor | None, like: Tensor) -> Array:
    """The values in double precision on the CPU; zeros for None."""
    if tensor is None:
        return np.zeros(like._array.shape)
    backend = backend_for(tensor._array)
    array = tensor._array if backend.kind == "cpu" else backend.to_host(tensor._array)
    return np.asarray(array, dtype=np.float64)


def _like(tensor: Tensor, values: Array) -> Tensor:
    """`values` in the dtype and on the device of `tensor`."""
    return wrap(to_device(values.astype(tensor._array.dtype), tensor.device))


class _Check:
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
                "gradcheck expects at least one input tensor to require gradient, but none of the them have "
                "requires_grad=True."
            )
        for i in self.places:
            name = args[i].dtype.name
            if args[i].is_complex():
                raise ValueError(f"gradcheck compares real gradients only, but input {i} is {name}")
            if name != "float64":
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point ({name}). This check "
                    "will likely fail if all the inputs are not of double precision.",
                    stacklevel=4,
                )

    def run(self, fast: bool) -> None:
        inputs = [self.args[i] for i in self.places]
        outputs = _tensors(self.func(*self.args))
        for o, output in enumerate(outputs):
            if output.dtype.category < 2:
                continue
            if not output._requires_grad:
                self._expect_constant(o, output, inputs)
            elif fast:
                self._compare_along_directions(o, output, inputs)
            else:
                self._compare_jacobians(o, output, inputs)

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
        ends = []
        for sign in (1, -1):
            args = list(self.args)
            for i in self.places:
                args[i] = args[i].detach()
                if i == self.places[which]:
                    moved = _host(args[i], args[i]) + sign * self.eps * direction
                    args[i] = _like(args[i], moved)
                args[i].requires_grad = True  # func may differentiate by itself
            ends.append(_host(out := _tensors(self.func(*args))[o], out).copy())
        return (ends[0] - ends[1]) / (2 * self.eps)

    def _numerical_jacobian(self, which: int, x: Tensor, o: int, size: int) -> Array:
        """Rows: elements of the input; columns: elements of the output."""
        rows = np.zeros((x._array.size, size))
        for k in range(len(rows)):
            unit = np.zeros(len(rows))
            unit[k] = 1
            rows[k] = self._slope(which, unit.reshape(x._array.shape), o).reshape(-1)
        return rows

    # -- comparisons -----------------------------------------------------------------------

    def _compare_jacobians(self, o: int, output: Tensor, inputs: Sequence[Tensor]) -> None:
        size = output._array.size
        analytical = [np.zeros((x._array.size, size)) for x in inputs]
        for k in range(size):
            seed = np.zeros(size)
            seed[k] = 1
            for jacobian, g in zip(
                analytical, self._gradients(output, inputs, seed.reshape(output._array.shape), o), strict=True
            ):
                jacobian[:, k] = g.reshape(-1)
        for i, (x, a) in enumerate(zip(inputs, analytical, strict=True)):
            n = self._numerical_jacobian(i, x, o, size)
            if not np.allclose(a, n, self.rtol, self.atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i},\nnumerical:{n}\nanalytical:{a}\n"
                )

    def _compare_along_directions(self, o: int, output: Tensor, inputs: Sequence[Tensor]) -> None:
        rng = np.random.default_rng(o)
        seed = _direction(rng, output._array.shape)
        for i, (x, g) in enumerate(zip(inputs, self._gradients(output, inputs, seed, o), strict=True)):
            u = _direction(rng, x._array.shape)
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
            n = self._slope(i, _direction(rng, x._array.shape), o)
            if n.size and np.abs(n).max() > self.atol:
                raise GradcheckError(
                    f"Numerical gradient for function expected to be zero: output {o} does not require grad, but "
                    f"changes with input {i}"
                )


def _direction(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A random direction of length 1."""
    values = rng.standard_normal(shape)
    return values / max(float(np.sqrt((values * values).sum())), 1e-12)
