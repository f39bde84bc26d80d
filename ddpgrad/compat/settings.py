"""Switches by PyTorch's names: threads, determinism, precision."""

from __future__ import annotations

from typing import Any

from ..backend import dtype as dtypes
from ..backend.cpu import threads
from ..backend.device import float32_precision
from ..core.errors import warn_program
from ..core.modes import uninitialised
from ..core.rank_local import RankLocal
from ..ops.creation.interop import TYPED

_PRECISIONS = ("highest", "high", "medium")
_DEBUG_MODES = ("default", "warn", "error")


class _Switches:
    """What was asked for, so that programs can read it back."""

    deterministic = False
    warn_only = False
    warn_always = False


_switches: RankLocal[_Switches] = RankLocal(_Switches)


def get_num_threads() -> int:
    """The number of threads that BLAS and large kernels may use. Bits depend on it in products of few rows alone, by BLAS."""
    return threads.blas_threads()


def _require_count(name: str, num: int) -> None:
    if num < 1:
        raise RuntimeError(f"{name} expects a positive integer, got {num}")
    if num >= 1 << 31:
        raise ValueError(f"Overflow when unpacking long: {name} takes integers of 32 bits, got {num}")


def set_num_threads(num: int) -> None:
    """Let BLAS and large kernels use `num` threads. More than one rank on a host should stay with one each."""
    if type(num) is not int:
        raise RuntimeError(f"set_num_threads expects an int, but got {type(num).__name__}")
    _require_count("set_num_threads", num)
    threads.set_threads(num)


def get_num_interop_threads() -> int:
    """1: ops do not run beside one another."""
    return 1


def set_num_interop_threads(num: int) -> None:
    """Checked, and without effect: ops do not run beside one another."""
    _require_count("set_num_interop_threads", num)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Fill `empty` with NaN or the largest integer. Every kernel here, on a CPU and on a GPU, has the same bits each time anyway."""
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms(): mode must be bool, not {type(mode).__name__}")
    if not isinstance(warn_only, bool):
        raise TypeError(
            f"use_deterministic_algorithms(): argument 'warn_only' must be bool, not {type(warn_only).__name__}"
        )
    uninitialised.get().deterministic = mode
    _switches.get().deterministic, _switches.get().warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was last given."""
    return _switches.get().deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The `warn_only` that `use_deterministic_algorithms` was last given."""
    return _switches.get().warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by the names 'default', 'warn' and 'error', or 0, 1 and 2."""
    name = _DEBUG_MODES[debug_mode] if debug_mode in (0, 1, 2) else debug_mode
    if name not in _DEBUG_MODES:
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error` or 0, 1, 2, but got "
            f"{debug_mode!r}"
        )
    use_deterministic_algorithms(name != "default", warn_only=name == "warn")


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, as `set_deterministic_debug_mode` takes them."""
    return 0 if not _switches.get().deterministic else 1 if _switches.get().warn_only else 2


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was last given; 'highest' at first."""
    return float32_precision.get()


def set_float32_matmul_precision(precision: str) -> None:
    """'highest', 'high' or 'medium': the least precision of products. Below 'highest' a GPU rounds operands to TF32; a CPU nothing."""
    if precision not in _PRECISIONS:
        raise RuntimeError(
            f"set_float32_matmul_precision(): expected one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    float32_precision.set(precision)


def set_flush_denormal(mode: bool) -> bool:
    """False: this installation cannot tell the CPU to flush denormal numbers, which PyTorch may answer too."""
    return False


def set_warn_always(mode: bool) -> None:
    """True: show what is said once per process every time."""
    if not isinstance(mode, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(mode).__name__}")
    _switches.get().warn_always = bool(mode)


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was last given."""
    return _switches.get().warn_always


def set_default_tensor_type(t: Any) -> None:
    """PyTorch's former way to `set_default_dtype`: a class such as `torch.DoubleTensor`, or its name."""
    name = t if isinstance(t, str) else f"torch.{getattr(t, '__name__', t)}"
    kind, _, short = name.rpartition(".")
    if kind != "torch" or short not in TYPED:
        raise TypeError(
            f"set_default_tensor_type(): expected a CPU type such as torch.FloatTensor, got {name}; for tensors on "
            "a GPU use torch.set_default_device('cuda')"
        )
    dtypes.set_default_dtype(TYPED[short].dtype)


_said: set[str] = set()


def say_once(what: str, text: str) -> None:
    """Warn, once in this process for each `what`, that something does less than in PyTorch."""
    if what not in _said or _switches.get().warn_always:
        _said.add(what)
        warn_program(text)
