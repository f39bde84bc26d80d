"""What `torch.compile` and `Module.compile` take, and the errors of `torch._dynamo.exc`."""

from __future__ import annotations

from typing import Any

from .settings import say_once

BACKENDS = ("cudagraphs", "inductor", "openxla", "tvm")
FOR_DEBUGGING = (
    "aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner", "aot_ts", "eager", "eager_debug",
    "eager_noexcept", "ipex", "onnxrt", "pre_dispatch_eager",
)  # fmt: skip
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


class TorchDynamoException(RuntimeError):
    """What a compiler refuses."""


class InvalidBackend(TorchDynamoException):
    """An unknown backend."""


class TensorifyScalarRestartAnalysis(TorchDynamoException):
    """Never raised."""


class Unsupported(TorchDynamoException):
    """Never raised."""


def check(
    fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor", mode: str | None = None,
    options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False,
    recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None,
    **unknown: Any,
) -> None:  # fmt: skip
    """PyTorch's errors for arguments of `compile`."""
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument '{min(unknown)}'")
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if disable:
        return
    if backend == "inductor" and mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise AssertionError(f"Expected enable to be a bool, got {type(dynamic)}")
    if not callable(backend) and backend not in BACKENDS + FOR_DEBUGGING:
        raise InvalidBackend(
            f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends."
        )
    also = ", and its backend is not called" if callable(backend) else ""
    say_once(
        f"compile{also}",
        f"torch.compile has no effect in ddpgrad: the model runs as it is{also} (torch.captured_step repeats a whole training step)",
    )
