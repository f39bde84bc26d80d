"""Elementwise: the base of optimizers whose update treats each element by itself.

Such an optimizer is its options, the names of the state that it keeps, and a *rule*: a function
of one parameter, its gradient, its state and some numbers that returns their new values. The
rule is written once. It is compiled into a loop over flat memory on a CPU and into one kernel on
a GPU, runs on arrays where neither is at hand, and on Tensors if the step is to be
differentiated (`differentiable=True`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..autograd.grad_mode import set_grad_enabled
from ..backend.device import capturing
from ..backend.registry import SparseArray, Unsupported, alike, backend_for, stored
from ..core.dispatching import is_told, telling
from ..core.errors import CaptureError
from ..core.tensor import Tensor
from ..ops import VOCABULARY
from ..ops.dispatch.update import Rule
from .flat import SCALARS, STEP, FlatMemory, Run
from .layout import full_like, new_scalar, zeros_like
from .optimizer import Closure, Optimizer, ParamsT, evaluated


class Update(NamedTuple):
    """One update: rule(F, shrink * param, grad + decay * param, *states, *numbers)."""

    rule: Rule
    numbers: tuple[Any, ...]
    decay: Any = 0.0
    shrink: Any = 1.0


class Elementwise(Optimizer):
    """A subclass defines `_state_names` and `_update`; `_new_state` for state that does not start with zeros.

    Of the arguments that all have: maximize goes up instead of down; differentiable records the
    step for autograd; foreach is accepted for PyTorch's sake, and so is fused, since updates always
    are, but it says in addition that `GradScaler` may leave unscaling to the step, and that Adam
    counts its steps on the GPU, as does capturable.
    """

    _not_negative: ClassVar[tuple[str, ...]] = ("lr", "eps", "weight_decay")
    _counts_on_device = False  # True for those whose numbers can be computed on a device
    found_inf: Tensor | None = None  # set by GradScaler for one step: skip it if this is not 0
    grad_scale: Tensor | None = None  # and divide the gradients by this

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._flat = FlatMemory()
        self._with_sparse: set[int] = set()  # groups that had sparse gradients
        super().__init__(params, defaults)
        if defaults.get("fused"):
            if defaults["differentiable"]:
                raise RuntimeError("`fused` does not support `differentiable`")
            if defaults["foreach"]:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
            for parameter in (p for group in self.param_groups for p in group["params"]):
                if not parameter.is_floating_point():
                    raise RuntimeError(
                        f"`fused=True` requires all the params to be floating point Tensors, got {parameter.dtype}"
                    )
            self._step_supports_amp_scaling = True

    def _check_options(self, group: Mapping[str, Any]) -> None:
        """As the base class, and betas have to be in [0, 1)."""
        super()._check_options(group)
        for i, beta in enumerate(group.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")

    def _state_names(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The kinds of state that a parameter of `group` has: scalars, and then the rest in the rule's order."""
        raise NotImplementedError

    def _update(self, group: Mapping[str, Any], run: Run, skip: Any) -> Update:
        """The update of one run, which is counted here; tensors among the options are numbers already."""
        raise NotImplementedError

    def _new_state(self, parameter: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        """State of one kind for a parameter that has none."""
        if name in SCALARS:
            return self._scalar(0.0, parameter, group)
        return zeros_like(parameter)

    def _scalar(self, value: float, parameter: Tensor, group: Mapping[str, Any]) -> Tensor:
        on_device = self._counts_on_device and (group.get("capturable") or group.get("fused"))
        return new_scalar(value, parameter if on_device else None)

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters from their gradients; the result of `closure`, called first, if given."""
        loss = evaluated(closure)
        factor, skip = self._amp()
        if skip is True:
            return loss
        for i, group in enumerate(self.param_groups):
            if group.get("differentiable"):
                self._step_on_tensors(group, True)
                continue
            if telling and is_told(group["params"], {}):  # they have no memory that a kernel could write to
                self._step_on_tensors(group, False)
                continue
            options = _in_numbers(group)
            if capturing.now is not None and options["lr"].__class__ is float:  # each replay asks anew
                options["lr"] = capturing.now.number(lambda i=i: float(self.param_groups[i]["lr"]))
            scale = -factor if group["maximize"] else factor
            for run in self._runs(group, options, scale, skip):
                update = self._update(options, run, skip)
                run.apply(update.rule, update.numbers, scale, update.decay, update.shrink, skip)
        if self.grad_scale is not None:
            factor = 1.0 / self.grad_scale._array.astype(np.float64)
            self._unscale(factor if skip is None else factor * ~skip + skip)
        if capturing.now is not None:
            capturing.now.checks.append(partial(self._changed, self._resting()))
        return loss

    def _resting(self) -> list[tuple[Any, ...]]:
        """What a captured step has in its arguments: where parameters and state lie, and the options of groups."""
        resting = []
        for group in self.param_groups:
            options = {k: v for k, v in group.items() if isinstance(v, (int, float, bool)) and k != "lr"}
            tensors = [v for v in group.values() if isinstance(v, Tensor)] + group["params"]
            states = [self.state.get(p, {}) for p in group["params"]]
            tensors += [value for state in states for value in state.values()]
            resting.append((options, [tensor._array for tensor in tensors]))
        return resting

    def _changed(self, before: list[tuple[Any, ...]]) -> str | None:
        name = type(self).__name__
        for (options, arrays), (new_options, new_arrays) in zip(before, self._resting(), strict=True):
            if options != new_options:
                return f"options of {name} have changed since it was captured"
            if len(arrays) != len(new_arrays) or any(map(operator.is_not, arrays, new_arrays)):
                return f"parameters or state of {name} lie elsewhere than when it was captured"
        return None

    def _check_captured(self) -> None:
        name = type(self).__name__
        if not all(group.get("capturable", True) for group in self.param_groups):
            raise RuntimeError(
                f"Attempting CUDA graph capture of step() for an instance of {name} but param_groups' capturable is "
                f"False. Make it with {name}(..., capturable=True)."
            )
        if not self._counts_on_device or any(group.get("differentiable") for group in self.param_groups):
            super()._check_captured()

    def _runs(self, group: dict[str, Any], options: Mapping[str, Any], scale: Any, skip: Any) -> list[Run]:
        """What is left to update of `group` when the parameters with sparse gradients were updated."""
        names, params = self._state_names(group), group["params"]

        def new(parameter: Tensor, name: str) -> Tensor:
            if capturing.now is not None:
                raise CaptureError(
                    f"the optimizer's state '{name}' does not exist when a step is captured as a CUDA graph, and every "
                    "replay would begin with a new one. Take at least one step before the capture"
                )
            return self._new_state(parameter, name, group)

        if id(group) not in self._with_sparse:
            try:
                return self._flat.runs(id(group), params, self.state, names, new)
            except Unsupported:
                self._with_sparse.add(id(group))
        dense = []
        for parameter in params:
            grad = parameter._grad
            if grad is None or not isinstance(grad._array, SparseArray):
                dense.append(parameter)
            elif skip is None or not bool(skip):
                self._sparse_step(group, options, parameter, grad, scale)
        return self._flat.runs(id(group), dense, self.state, names, new)

    def _sparse_step(
        self, group: dict[str, Any], options: Mapping[str, Any], parameter: Tensor, grad: Tensor, scale: Any
    ) -> None:
        """Update one parameter from its sparse gradient, which is to be multiplied by `scale`. RuntimeError by default."""
        self._refuse_sparse(grad)

    def _rows_step(
        self, group: dict[str, Any], options: Mapping[str, Any], parameter: Tensor, grad: Tensor, scale: Any
    ) -> None:
        """Apply the rule to the rows that a sparse gradient names, in the parameter and in its state."""
        names = self._state_names(group)
        state = self.state[parameter] if names else {}
        fresh = [name for name in names if state.get(name) is None]
        state.update({name: self._new_state(parameter, name, group) for name in fresh})
        scalars: dict[str, Any] = {name: state[name]._array.reshape(-1) for name in names if name in SCALARS}
        run = Run((parameter,), (), scalars, {parameter} if fresh else set())
        rule, numbers, _, shrink = self._update(options, run, None)
        whole = grad._array.coalesce()
        rows = tuple(whole.indices)
        arrays = [parameter._array, *(state[name]._array for name in names if name not in SCALARS)]
        param, *states = [wide(array[rows]) for array in arrays]
        new = rule(run.backend, param * shrink, wide(whole.values) * scale, *states, *numbers)
        for array, values in zip(arrays, new if isinstance(new, tuple) else (new,), strict=True):
            array[rows] = values
        parameter._versions[0] += 1

    def _amp(self) -> tuple[Any, Any]:
        """What to multiply gradients by; and whether to skip the step: None, True, or a bool array on a device."""
        scale, found = self.grad_scale, self.found_inf
        factor: Any = 1.0
        skip: Any = None
        if scale is not None:
            factor = 1.0 / (scale._array.astype(np.float64) if scale.is_cuda else float(scale))
        if found is not None:
            if found.is_cuda and self._counts_on_device:
                skip = found._array.reshape(()) != 0
            elif float(found):
                skip = True
        return factor, skip

    def _unscale(self, factor: Any) -> None:
        """Multiply the gradients, which programs look at after the step, by what the step multiplied them by."""
        grads = [p._grad for group in self.param_groups for p in group["params"] if p._grad is not None]
        for _, together in alike([stored(grad._array) for grad in grads]):
            backend_for(together[0]).unscale_(together, factor)
        for grad in grads:
            grad._versions[0] += 1

    def _step_on_tensors(self, group: dict[str, Any], recorded: bool) -> None:
        """Update parameters and state by ops. recorded: in such a way that autograd can go back through it."""
        names = self._state_names(group)
        for parameter in group["params"]:
            grad = parameter._grad
            if grad is None:
                continue
            if parameter.is_complex():
                raise NotImplementedError(
                    f"{type(self).__name__}: differentiable=True is not supported for complex parameters"
                )
            state = self.state[parameter]
            fresh = [name for name in names if state.get(name) is None]
            state.update({name: self._new_state(parameter, name, group) for name in fresh})
            scalars: dict[str, Any] = {name: state[name] for name in names if name in SCALARS}
            for name, value in scalars.items():
                if not value.requires_grad:
                    scalars[name] = value._array.reshape(-1)
            run = Run((parameter,), (), scalars, {parameter} if fresh else set())
            arrays = [name for name in names if name not in SCALARS]
            with set_grad_enabled(recorded):
                rule, numbers, decay, shrink = self._update(group, run, None)
                before = parameter.clone()  # the rule's gradients may need it, and it is about to change
                grad = -grad if group["maximize"] else grad
                new = rule(
                    VOCABULARY,
                    before * shrink,
                    grad + decay * before,
                    *[state[name] for name in arrays],
                    *numbers,
                )
                new = new if isinstance(new, tuple) else (new,)
                parameter.copy_(new[0])
            state.update(zip(arrays, new[1:], strict=True))
            state.update({name: value for name, value in scalars.items() if isinstance(value, Tensor)})

    # -- saving and loading ------------------------------------------------------------------

    def _loaded(self, owner: Tensor, group: dict[str, Any], number: Any, name: Any, value: Any) -> Any:
        names = self._state_names(group)
        if name in SCALARS and name in names:
            return self._scalar(float(value), owner, group)
        if isinstance(value, Tensor) and name in names and value.shape != owner.shape:
            raise ValueError(
                f"loaded state dict: {name} of parameter {number} has shape {list(value.shape)}, but the parameter "
                f"has {list(owner.shape)}"
            )
        return super()._loaded(owner, group, number, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {
            key: value
            for key, value in super().__getstate__().items()
            if key not in ("_flat", "_with_sparse")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._flat, self._with_sparse = FlatMemory(), set()
        super().__setstate__(state)


def _in_numbers(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a group with numbers in place of tensors."""
    capturable = group.get("capturable")

    def number(value: Any) -> Any:
        if isinstance(value, Tensor):
            if capturable and value.is_cuda:  # no waiting for the device
                return value._array.reshape(()).astype(np.float64)
            return float(value)
        return value

    return {
        key: tuple([number(v) for v in value]) if value.__class__ is tuple else number(value)
        for key, value in group.items()
    }


def wide(array: Any) -> Any:
    """A raw array of 16-bit floats in float32, in which steps are computed; another as it is."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The `locals()` of an `__init__` as the defaults of an optimizer."""
    return {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}


__all__ = [
    "STEP", "Elementwise", "Update", "full_like", "options", "wide",
]  # fmt: skip
