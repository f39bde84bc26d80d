"""GradScaler: scales the loss so that small float16 gradients survive, and unscales the gradients."""

from __future__ import annotations

import enum
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import cuda
from ..backend import dtype as dtypes
from ..backend.device import on_capture_failure
from ..backend.registry import alike, backend_for, stored
from ..core.taping import taped
from ..core.tensor import Tensor, wrap
from ..ops.creation.factories import full
from ..ops.dispatch import update as _update  # noqa: F401  registers the kernels' portable bodies
from ..optim.optimizer import Optimizer


class OptState(enum.Enum):
    """What has been done to the gradients of an optimizer since the last update."""

    READY, UNSCALED, STEPPED = range(3)


def _refresh_per_optimizer_state() -> dict[str, Any]:
    """Where an optimizer is between two updates; found_inf_per_device: 1.0 if a gradient there is not finite."""
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """`scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`.

    A step whose gradients are not all finite is left out and lowers the scale by `backoff_factor`;
    `growth_interval` steps without raise it by `growth_factor`. Gradients may be changed, or
    clipped, after `unscale_`. Optimizers that say `fused=True` unscale within their step, and on a GPU
    nothing then waits for it. Source: https://pytorch.org/docs/stable/amp.html#gradient-scaling
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        if enabled and device == "cuda" and not cuda.is_available():
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2
            )
            enabled = False
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale, self._init_growth_tracker = init_scale, 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._scale: Tensor | None = None  # made where the first loss is
        self._growth_tracker: Tensor | None = None
        # By identity of the optimizer. Trainers with a loop of their own read and change it, under PyTorch's name.
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    # -- scaling -----------------------------------------------------------------------------

    def scale(self, outputs: Tensor | Iterable[Any]) -> Any:
        """A tensor, or each of a list or tuple of them, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale_on(outputs)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(part) for part in outputs])
        if isinstance(outputs, Iterable):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _scale_on(self, where: Tensor) -> Tensor:
        if self._scale is None:
            self._scale = full((), self._init_scale, dtype=dtypes.float32, device=where.device)
            self._growth_tracker = full(
                (), self._init_growth_tracker, dtype=dtypes.int32, device=where.device
            )
        return self._scale.to(where.device)

    @taped
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, in place, once before its step."""
        if not self._enabled:
            return
        progress = self._progress("unscale_", optimizer)
        if progress["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if progress["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        assert self._scale is not None
        self._check(optimizer, progress, 1.0 / self._scale._array.astype(np.float64))
        progress["stage"] = OptState.UNSCALED

    def _check(self, optimizer: Optimizer, progress: dict[str, Any], factor: Any) -> None:
        """Multiply gradients by a factor, if it is not None, and note whether all were finite."""
        grads = [p._grad for group in optimizer.param_groups for p in group["params"] if p._grad is not None]
        if factor is not None and any(grad.dtype is dtypes.float16 for grad in grads):
            raise ValueError("Attempting to unscale FP16 gradients.")
        arrays = [stored(grad._array, coalesce=grad.dtype is dtypes.float16) for grad in grads]
        found: dict[Any, Any] = {}  # by device
        for device, together in alike(arrays):
            bad = backend_for(together[0]).unscale_(together, factor)
            found[device] = found[device] | bad if device in found else bad
        progress["found_inf_per_device"] = {
            device: wrap(backend_for(bad).asarray(bad, dtypes.float32)) for device, bad in found.items()
        }
        if factor is not None:
            for grad in grads:
                grad._versions[0] += 1

    # -- stepping ----------------------------------------------------------------------------

    @taped
    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` with unscaled gradients, unless some are not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        progress = self._progress("step", optimizer)
        if progress["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_that_unscales(optimizer, progress, args, kwargs)
        else:
            if progress["stage"] is OptState.READY:
                self.unscale_(optimizer)
            self._require_checked(progress)
            finite = not any(float(found) for found in progress["found_inf_per_device"].values())
            result = optimizer.step(*args, **kwargs) if finite else None
        progress["stage"] = OptState.STEPPED
        return result

    def _step_that_unscales(
        self, optimizer: Optimizer, progress: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if progress["stage"] is OptState.READY:
            self._check(optimizer, progress, None)
        self._require_checked(progress)
        scaled: Any = optimizer
        scaled.grad_scale = self._scale if progress["stage"] is OptState.READY else None
        assert self._scale is not None
        device = self._scale.device
        scaled.found_inf = sum(found.to(device) for found in progress["found_inf_per_device"].values())
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del scaled.grad_scale, scaled.found_inf

    def _require_checked(self, progress: dict[str, Any]) -> None:
        if not progress["found_inf_per_device"]:
            raise AssertionError(
                "No inf checks were recorded for this optimizer: none of its parameters has a gradient."
            )

    def _progress(self, what: str, optimizer: Optimizer) -> dict[str, Any]:
        self._require_scale(what)
        on_capture_failure(self._per_optimizer_states.clear)
        return self._per_optimizer_states[id(optimizer)]

    def _found_inf_per_device(self, optimizer: Optimizer) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def _require_scale(self, what: str) -> None:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    # -- the scale ---------------------------------------------------------------------------

    @taped
    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Lower or raise the scale by what the steps since the last update found; or set it."""
        if not self._enabled:
            return
        self._require_scale("update")
        scale, tracker = self._scale, self._growth_tracker
        assert scale is not None and tracker is not None
        if new_scale is not None:
            scale.fill_(new_scale if isinstance(new_scale, (int, float)) else float(new_scale))
        else:
            found = [
                found.to(scale.device)._array
                for progress in self._per_optimizer_states.values()
                for found in progress["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            backend = backend_for(scale._array)
            bad = sum(found[1:], start=found[0]) > 0
            grown = scale._array * self._growth_factor
            steps = tracker._array + 1
            full_interval = steps == self._growth_interval
            grown = backend.where(full_interval & backend.isfinite(grown), grown, scale._array)
            scale._array[...] = backend.where(bad, scale._array * self._backoff_factor, grown)
            tracker._array[...] = backend.where(bad | full_interval, 0, steps)
        self._per_optimizer_states.clear()

    def get_scale(self) -> float:
        """The scale. On a GPU, this waits for it."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale)

    def is_enabled(self) -> bool:
        """False for a scaler that does nothing."""
        return self._enabled

    def get_growth_factor(self) -> float:
        """By how much the scale is raised."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Choose by how much the scale is raised."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By how much the scale is lowered."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Choose by how much the scale is lowered."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale is raised."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Choose after how many good steps the scale is raised."""
        self._growth_interval = new_interval

    # -- saving and loading ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and good steps so far; empty if the scaler is not enabled."""
        if not self._enabled:
            return {}
        tracker = self._growth_tracker
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._init_growth_tracker if tracker is None else int(tracker),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)
