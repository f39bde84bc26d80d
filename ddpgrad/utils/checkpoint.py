"""`checkpoint`: keep the inputs of a part of the model, and recompute the rest in backward.

Without reentrance (`use_reentrant=False`) hooks on saved tensors leave empty places in the
graph; the first node that needs one makes the function run again, and all places are filled.
With it (`use_reentrant=True`) the part is one `Function`, whose backward runs the part again
and a backward pass of its own inside the one that is running.
Source of the idea: https://arxiv.org/abs/1604.06174; of the behaviour:
https://pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

import contextlib
import enum
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..amp import autocast_mode as amp
from ..autograd import Function, backward, enable_grad, engine, is_grad_enabled, no_grad
from ..core.tensor import Tensor
from ..random import fork_rng, get_rng_state, set_rng_state
from .recompute import Frame, set_checkpoint_debug_enabled, set_checkpoint_early_stop
from .recompute import RecomputeError as CheckpointError

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing: the default `context_fn`."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, without keeping what backward will need: that is computed again.

    use_reentrant: should be given; False supports keyword arguments, nested checkpoints, `grad`,
    arguments and results of any structure. preserve_rng_state: draw the same random numbers in
    both runs. context_fn: makes the contexts for the first run and for the one in backward.
    determinism_check: 'default' compares shape, dtype and device of what is computed again, 'none'
    does not. debug: name the operations of both runs in the error. early_stop: the second run
    ends when the last tensor that backward needs is there. The last five need
    `use_reentrant=False`. `CheckpointError` when the second run differs from the first.
    """
    if use_reentrant is None:
        warnings.warn(
            "utils.checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is "
            "recommended; not passing it means use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    if not use_reentrant:
        return _checkpoint(
            function, args, kwargs, preserve_rng_state, context_fn, determinism_check, debug, early_stop
        )
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}: they need use_reentrant=False")
    if context_fn is not noop_context_fn or debug:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
    return CheckpointFunction.apply(function, preserve_rng_state, *args)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A chain of modules or functions in `segments` parts of equal length, all but the last checkpointed.

    functions: an `nn.Sequential`, or a list. kwargs: `preserve_rng_state`, and with
    `use_reentrant=False` the others of `checkpoint`.
    """
    if use_reentrant is None:
        warnings.warn(
            "utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. "
            "use_reentrant=False is recommended; not passing it means use_reentrant=True.",
            stacklevel=2,
        )
        use_reentrant = True
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= len(chain):
        raise ValueError(
            f"segments must lie between 1 and the number of functions, {len(chain)}; got {segments}"
        )
    length = len(chain) // segments
    last = length * (segments - 1)
    for start in range(0, last, length):
        input = checkpoint(
            _chained(chain[start : start + length]), input, use_reentrant=use_reentrant, **kwargs
        )
    return _chained(chain[last:])(input)


def _chained(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return run


@contextlib.contextmanager
def _same_randomness(state: Tensor | None) -> Iterator[None]:
    """Run a block from the generator state `state`, and leave the generator as it was; None: do nothing."""
    with fork_rng(enabled=state is not None):
        if state is not None:
            set_rng_state(state)
        yield


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """`inputs`, with tensors cut from their history; they require gradients if they did before."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}"
        )
    return tuple(
        value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
        for value in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor of `inputs` requires a gradient."""
    if not any(value.requires_grad for value in inputs if isinstance(value, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", UserWarning, stacklevel=2
        )


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """No devices, no states: kernels on a GPU draw their keys from the host's generator, whose state says all."""
    return [], []


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Nothing: see `get_device_states`."""


class CheckpointPolicy(enum.Enum):
    """What becomes of the result of an op within a selective checkpoint: it is kept, or computed again in backward."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy is given besides the op: whether this is the second run, which it is never asked in, and the result."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> Contexts:
    """The two contexts of a checkpoint that keeps the results of some ops: what `context_fn` returns.

    policy_fn_or_list: ops, such as torch.ops.aten.mm.default, whose results are kept; or a function of
    (SelectiveCheckpointContext, op, *args, **kwargs) that returns a CheckpointPolicy. allow_cache_entry_mutation: do not
    refuse results that were changed in place meanwhile.
    """
    from .selective import contexts  # here, as few programs choose

    return contexts(policy_fn_or_list, allow_cache_entry_mutation)


class _SameAutocast:
    """The state of autocast now; as a context manager, brings it back."""

    def __init__(self) -> None:
        self._states = [
            (
                kind,
                amp.get_autocast_dtype(kind),
                amp.is_autocast_enabled(kind),
                amp.is_autocast_cache_enabled(),
            )
            for kind in ("cpu", "cuda")
        ]
        self._exits: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        exits = contextlib.ExitStack()
        for state in self._states:
            exits.enter_context(amp.autocast(*state))
        self._exits.append(exits)

    def __exit__(self, *exc: object) -> None:
        self._exits.pop().close()


# -- without reentrance --------------------------------------------------------------------------


def _checkpoint(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    preserve_rng_state: bool,
    context_fn: Callable[[], Contexts],
    determinism_check: str,
    debug: bool,
    early_stop: bool,
) -> Any:
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    first_context, second_context = context_fn()
    state = get_rng_state() if preserve_rng_state else None
    same_autocast = _SameAutocast()

    def again(*values: Any) -> None:
        with _same_randomness(state), same_autocast, second_context:
            function(*values, **kwargs)

    if not is_grad_enabled():
        with first_context:
            return function(*args, **kwargs)
    frame = Frame(again, args, determinism_check == "default", debug, early_stop)
    with frame.first_run(), first_context:
        return function(*args, **kwargs)


# -- with reentrance -----------------------------------------------------------------------------


class CheckpointFunction(Function):
    """One node for the whole part: backward runs it again, recorded, and backward through that."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        ctx.function = function
        ctx.state = get_rng_state() if preserve_rng_state else None
        ctx.same_autocast = _SameAutocast()
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        if not engine.is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.others)
        for i, saved in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = saved.detach().requires_grad_(saved.requires_grad)
        with _same_randomness(ctx.state), ctx.same_autocast, enable_grad():
            outputs = ctx.function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        roots = [
            (out, g)
            for out, g in zip(outputs, grads, strict=True)
            if isinstance(out, Tensor) and out.requires_grad
        ]
        if not roots:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([out for out, _ in roots], [g for _, g in roots])
        return None, None, *(x.grad if isinstance(x, Tensor) else None for x in inputs)


__all__ = [
    "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint",
    "checkpoint_sequential", "create_selective_checkpoint_contexts", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop",
]  # fmt: skip
