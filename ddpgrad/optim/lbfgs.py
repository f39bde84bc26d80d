"""L-BFGS: a quasi-Newton method with a limited history."""

from __future__ import annotations

from typing import Any

from ..autograd.grad_mode import enable_grad, no_grad
from ..backend.registry import backend_for
from ..core.tensor import Tensor, wrap
from .layout import real
from .line_search import Point, strong_wolfe
from .optimizer import Closure, Optimizer, ParamsT

Array = Any


class LBFGS(Optimizer):
    """Steps along -H g, where H approximates the inverse Hessian from the last `history_size` steps.

    `step(closure)` makes up to `max_iter` iterations with up to `max_eval` evaluations (5/4 of that
    by default), until no gradient is larger than `tolerance_grad`, or the loss or the parameters
    change by less than `tolerance_change`. line_search_fn: None (steps of size lr) or "strong_wolfe".
    There is one parameter group. Source: J. Nocedal and S. Wright, Numerical Optimization, 2nd ed.,
    algorithms 7.4 and 7.5.
    """

    _not_negative = ("lr",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @no_grad()
    def step(self, closure: Closure) -> Any:
        """Minimise what `closure` returns, which computes the gradients as well; its first result."""
        closure = enable_grad()(closure)
        (group,) = self.param_groups
        lr, change = float(group["lr"]), group["tolerance_change"]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"LBFGS: only 'strong_wolfe' is supported as line_search_fn, got {search!r}")
        state = self.state[group["params"][0]]  # of all parameters, as in PyTorch
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first = closure()
        loss, gradient = float(first), self._gradient()
        evaluations = 1
        state["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first

        history = _History(state, group["history_size"])
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                history.forget()
                direction = -gradient
                step = min(1.0, 1.0 / float(abs(gradient).sum())) * lr
            else:
                history.add(gradient)
                direction = history.direction(gradient)
                step = lr
            slope = float(gradient @ direction)
            history.start(gradient, loss, direction, step)
            if slope > -change:
                break
            previous, used = loss, 0
            if search is not None:
                before = [p._array.copy() for p in group["params"]]

                def evaluate(
                    step: float, direction: Array = direction, before: list[Array] = before
                ) -> Point:
                    self._move(step, direction)
                    value, gradient = float(closure()), self._gradient()
                    for p, array in zip(self.param_groups[0]["params"], before, strict=True):
                        p._array[...] = array
                    return Point(step, value, gradient, float(gradient @ direction))

                found, used = strong_wolfe(
                    evaluate,
                    Point(0.0, loss, gradient, slope),
                    step,
                    _largest(direction),
                    tolerance=change,
                    most=group["max_eval"] - evaluations,
                )
                step, loss, gradient = found.step, found.value, found.gradient
                self._move(step, direction)
                history.step = step
            else:
                self._move(step, direction)
                if iteration < group["max_iter"]:
                    loss, gradient, used = float(closure()), self._gradient(), 1
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(direction) * abs(step) <= change
                or abs(loss - previous) < change
            ):
                break
        history.save(state)
        return first

    def _gradient(self) -> Array:
        """All gradients in one vector; zeros for those that are missing."""
        (group,) = self.param_groups
        parts = []
        for p in group["params"]:
            grad = p._grad
            backend = backend_for(p._array)
            array = backend.new_zeros(p._array, p._array.shape) if grad is None else grad.to_dense()._array
            parts.append(real(backend.contiguous(array).reshape(-1)))
        return backend_for(parts[0]).cat(parts, 0)

    def _move(self, step: float, direction: Array) -> None:
        """Move all parameters by step * direction."""
        start = 0
        for p in self.param_groups[0]["params"]:
            array = p._array
            pairs = array.dtype.kind == "c"
            size = array.size * (2 if pairs else 1)
            change = step * direction[start : start + size]
            # The direction of 16-bit parameters may have become float32.
            array += (change.view(array.dtype) if pairs else change.astype(array.dtype)).reshape(array.shape)
            p._versions[0] += 1
            start += size


class _History:
    """The last steps and the changes of the gradient that they made; where they led from is noted by `start`."""

    def __init__(self, state: dict[str, Any], size: int) -> None:
        self.size = size
        self.changes: list[Array] = [t._array for t in state.get("old_dirs") or []]
        self.steps: list[Array] = [t._array for t in state.get("old_stps") or []]
        self.inverses: list[float] = [float(value) for value in state.get("ro") or []]
        self.scale = float(state.get("H_diag") or 1.0)
        if state.get("d") is not None:
            self.start(
                state["prev_flat_grad"]._array, state["prev_loss"], state["d"]._array, float(state["t"])
            )

    def forget(self) -> None:
        self.changes, self.steps, self.inverses, self.scale = [], [], [], 1.0

    def start(self, gradient: Array, loss: float, direction: Array, step: float) -> None:
        """Note the point that an iteration leaves, and how."""
        self.gradient, self.loss, self.last, self.step = gradient, loss, direction, step

    def add(self, gradient: Array) -> None:
        """Remember the last step by the gradient that it led to, unless the loss is not convex along it."""
        change, step = gradient - self.gradient, self.last * self.step
        curvature = float(change @ step)
        if not curvature > 1e-10:
            return
        if len(self.changes) == self.size:
            for values in (self.changes, self.steps, self.inverses):
                values.pop(0)
        self.changes.append(change)
        self.steps.append(step)
        self.inverses.append(1.0 / curvature)
        self.scale = curvature / float(change @ change)

    def direction(self, gradient: Array) -> Array:
        """- H gradient, by the two loops over the history."""
        out = -gradient
        weights = []
        for change, step, inverse in zip(
            reversed(self.changes), reversed(self.steps), reversed(self.inverses), strict=True
        ):
            weights.append(float(step @ out) * inverse)
            out -= weights[-1] * change
        out *= self.scale
        for change, step, inverse in zip(self.changes, self.steps, self.inverses, strict=True):
            out += (weights.pop() - float(change @ out) * inverse) * step
        return out

    def save(self, state: dict[str, Any]) -> None:
        """Into the optimizer's state, by PyTorch's names."""
        state.update(
            d=wrap(self.last),
            t=self.step,
            old_dirs=[wrap(array) for array in self.changes],
            old_stps=[wrap(array) for array in self.steps],
            ro=list(self.inverses),
            H_diag=self.scale,
            prev_flat_grad=wrap(self.gradient),
            prev_loss=self.loss,
        )


def _largest(array: Array) -> float:
    """The largest absolute value."""
    return float(abs(array).max())
