"""Anomaly mode: names the forward call behind an error or a NaN in backward.

Source of the behaviour: https://pytorch.org/docs/stable/autograd.html#anomaly-detection
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.registry import backend_for
from ..core.tensor import Tensor
from .nodes import Node, observers


class _State:
    """One for the whole process, as in PyTorch; `running` is the node that backward is at."""

    enabled = False
    check_nan = True
    running: Node | None = None


state = _State()

_TRACE, _PARENT = "traceback_", "parent_"


def is_anomaly_enabled() -> bool:
    """True when anomaly detection is on."""
    return state.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """True when backward would also look for NaN."""
    return state.check_nan


def _set(enabled: bool, check_nan: bool) -> None:
    if enabled and note_call not in observers:
        observers.append(note_call)
    elif not enabled and note_call in observers:
        observers.remove(note_call)
    state.enabled, state.check_nan = enabled, check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection on or off (see `set_detect_anomaly`)."""
    _set(enabled, check_nan)


class set_detect_anomaly:
    """Switches anomaly detection on or off; as a context manager, restores it at the end.

    While it is on, each node remembers where its operation was called; an error in backward,
    and with `check_nan` a NaN, is reported with that place.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = state.enabled, state.check_nan
        _set(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


class detect_anomaly:
    """Within the block, anomaly detection is on (see `set_detect_anomaly`), with a warning that it is slow."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._before = state.enabled, state.check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = state.enabled, state.check_nan
        _set(True, self._check_nan)

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


def note_call(node: Node) -> None:
    """Remember where the operation of `node` is called, and the node of backward that calls it."""
    node.metadata[_TRACE] = traceback.format_stack()
    if state.running is not None:
        node.metadata[_PARENT] = state.running


def report(node: Node) -> None:
    """Warn where the operation of `node` was called, and what led there."""
    name = node.name()
    if _TRACE not in node.metadata:
        _warn(
            f"Error detected in {name}. No forward pass information available. Enable detect anomaly during forward "
            "pass for more information."
        )
        return
    trace = "".join(node.metadata[_TRACE])
    _warn(f"Error detected in {name}. Traceback of forward call that caused the error:\n{trace}")
    parent = node.metadata.get(_PARENT)
    while parent is not None:
        known = parent.metadata.get(_TRACE)
        trace = (
            f"Traceback of forward call that induced the previous calculation:\n{''.join(known)}"
            if known
            else "No forward pass information available."
        )
        _warn(f"\n\nPrevious calculation was induced by {parent.name()}. {trace}")
        parent = parent.metadata.get(_PARENT)


def _warn(text: str) -> None:
    """Warn; where warnings are errors, write, for the error that is on its way says more."""
    try:
        warnings.warn(text, stacklevel=3)
    except Warning:
        print(text, file=sys.stderr)


def apply(node: Node, grad: Any, F: Any) -> Sequence[Any]:
    """`node.apply`, with errors and NaN reported. `RuntimeError` for a NaN."""
    before, state.running = state.running, node
    try:
        results = node.apply(grad, F)
        if state.check_nan:
            _check(node, results)
    except Exception:
        report(node)
        raise
    finally:
        state.running = before
    return results


def _check(node: Node, results: Sequence[Any]) -> None:
    for i, result in enumerate(results):
        array = result._array if isinstance(result, Tensor) else result
        if array is not None and _has_nan(array):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def _has_nan(array: Any) -> bool:
    if np.dtype(array.dtype).kind in "biu":
        return False
    if hasattr(array, "levels"):  # all examples of a vmap
        return _has_nan(array.whole)
    return bool(backend_for(array).isnan(array).any())


__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]
