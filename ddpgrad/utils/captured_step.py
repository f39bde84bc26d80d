"""`captured_step`: a training step that is captured and repeated without its Python, or runs eagerly and says why."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd import anomaly_mode
from ..autograd.grad_mode import is_grad_enabled
from ..backend.dtype import get_default_dtype
from ..core.taping import taping
from ..core.tensor import Tensor
from ..ops.dispatch.autocast import casting
from ..ops.dispatch.autocast import state as autocast
from . import _pytree

_MOST_KINDS = 4  # of inputs, each of which has a capture of its own
_MOST_CAPTURES = 8  # of one kind of inputs, of those that have not paid
_PAYS_AFTER = 50  # replays


class _Kind:
    """What is known for inputs of one kind. eager, replays: steps since there was a capture; step: what captures and repeats it."""

    def __init__(self, step: Any) -> None:
        self.eager = self.captures = self.replays = 0
        self.step = step


class CapturedStep:
    """A step that `captured_step` made. why_not: the reason why the last call was not a replay, if it should have been."""

    def __init__(self, function: Callable[..., Any], warmup: int, device: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self._function, self._warmup, self._device = function, warmup, device
        self._kinds: dict[Any, _Kind] = {}
        self._pool: Any = None
        self._said: set[str] = set()
        self._failed: str | None = None
        self.why_not: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The step for these arguments: the function's result, in tensors of its own."""
        if taping.now is not None:  # as part of another captured step
            return self._function(*args, **kwargs)
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        self.why_not = self._failed or self._unfit(leaves)
        kind = None if self.why_not else self._kind(leaves, tree)
        if kind is None:
            self._say()
            return self._function(*args, **kwargs)
        step = kind.step
        if not step.ready:
            if kind.eager >= self._warmup:
                result = step.record(leaves, args, kwargs)
                if step.failure is not None:
                    self.why_not = self._failed = step.failure
                    self._say()
                return result
        elif (changed := step.changed()) is None:
            kind.replays += 1
            return step.replay(leaves)
        else:
            self._begin_again(kind, leaves, changed)
            self._say()
        kind.eager += 1
        return self._function(*args, **kwargs)

    def _kind(self, leaves: list[Any], tree: Any) -> _Kind | None:
        """What is known for inputs like these; None where there are too many kinds."""
        casts = (tuple(autocast.enabled.items()), tuple(autocast.dtypes.items())) if casting else ()
        key = (tree, is_grad_enabled(), get_default_dtype(), casts, *map(_described, leaves))
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) == _MOST_KINDS:
                self.why_not = f"its inputs come in more than {_MOST_KINDS} shapes"
                return None
            kind = self._kinds[key] = _Kind(self._new(leaves))
        return kind

    def _begin_again(self, kind: _Kind, leaves: list[Any], changed: str) -> None:
        """Drop a capture that does not hold any more."""
        kind.step, kind.eager = self._new(leaves), 0
        kind.captures += kind.replays < _PAYS_AFTER
        kind.replays = 0
        if kind.captures == _MOST_CAPTURES:
            self._failed = changed
        self.why_not = changed

    def _on_gpu(self, leaves: list[Any]) -> bool:
        if self._device is not None:
            return self._device == "cuda"
        return any(isinstance(leaf, Tensor) and leaf.device.type == "cuda" for leaf in leaves)

    def _new(self, leaves: list[Any]) -> Any:
        """What captures and repeats the step for inputs like these."""
        if self._on_gpu(leaves):
            from ..cuda.graphs import graph_pool_handle  # here and below, as a program needs one of them
            from .graphed_step import GraphedStep

            self._pool = self._pool or graph_pool_handle()
            return GraphedStep(self._function, self._pool)
        from .taped_step import TapedStep

        return TapedStep(self._function)

    def _unfit(self, leaves: list[Any]) -> str | None:
        """Why a step with these inputs cannot be captured, or None."""
        if anomaly_mode.state.enabled:
            return "anomaly detection is on"
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if leaf._requires_grad:
                    return f"input {i} requires a gradient"
            elif leaf.__class__.__hash__ is None:
                return (
                    f"input {i} is a {type(leaf).__name__}, which cannot be compared with that of other steps"
                )
        if not self._on_gpu(leaves):
            return None
        from .graphed_step import unfit

        return unfit(leaves)

    @property
    def code(self) -> str:
        """The Python that replays do on a CPU, for each kind of inputs so far; nothing for steps on a GPU."""
        found = [getattr(kind.step, "code", None) for kind in self._kinds.values()]
        return "\n\n".join(text for text in found if text)

    def _say(self) -> None:
        reason = self.why_not
        if reason is not None and reason not in self._said:
            self._said.add(reason)
            name = getattr(self._function, "__name__", "step")
            warnings.warn(f"{name} runs eagerly, not as a captured step: {reason}", stacklevel=3)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        array = leaf._array
        steps = getattr(array, "strides", None)
        if isinstance(array, np.ndarray) and array.flags.c_contiguous:
            steps = None
        counts = leaf._versions.__class__ is list  # as those of inference mode do not
        return tuple(leaf.shape), leaf.dtype, leaf.device, leaf._requires_grad, steps, counts
    return type(leaf), leaf


def captured_step(
    function: Callable[..., Any] | None = None, *, warmup: int = 3, device: str | None = None
) -> Any:
    """A training step that is captured: zero_grad, forward, backward, clipping, optimizer; or a decorator.

        @torch.captured_step
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    The first `warmup` calls are eager steps. On a GPU the next one is captured as one CUDA graph; on a CPU the next two are
    recorded, compared, and become a row of kernels without graph, dispatch and Module (`step.code` shows it). From then on a
    call repeats that, and returns tensors of its own: the same losses and parameters, to the bit. Inputs of another shape,
    type or value have captures of their own. Random numbers, learning rates and the optimizer's counts go on as in eager
    steps. What cannot be captured runs eagerly, with one warning that says why (`step.why_not`): reading a value (`.item()`);
    on a GPU inputs on the host, an optimizer without `capturable=True`, `GradScaler` without a fused optimizer.

    What else the function does on the host happens at the capture only: keep logging and counting outside. On a CPU what its
    Python has read (attributes and members of the modules that are called, what functions close over, globals) is compared before
    each step, schedulers may be stepped within, and the communication of `DistributedDataParallel` goes on as always.

    device: "cpu" or "cuda"; by default where the inputs are.
    """
    if function is None:
        return functools.partial(captured_step, warmup=warmup, device=device)
    if not callable(function):
        raise TypeError(f"captured_step takes the function of a step, got {type(function).__name__}")
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"captured_step captures steps on 'cpu' or 'cuda', got device={device!r}")
    if not isinstance(warmup, int) or warmup < 1:
        raise ValueError(
            f"captured_step needs a step that runs before the capture: warmup >= 1, got {warmup!r}"
        )
    return CapturedStep(function, warmup, device)


__all__ = ["CapturedStep", "captured_step"]
