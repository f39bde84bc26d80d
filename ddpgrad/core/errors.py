"""All exceptions of ddpgrad, in one tree; and warnings that name the line of the program.

    RuntimeError
    +-- DdpgradError                 base of everything below
        +-- DeviceError              unknown or absent device, tensors on different devices
        +-- OutOfMemoryError         a GPU's or the host's memory does not suffice
        +-- CaptureError             what is done while a CUDA graph is captured cannot be part of it
        +-- KernelMissingError       an op has no kernel for a device
        +-- NoElementsError          what is asked of a tensor on meta depends on its elements
        +-- GraphError               misuse of the autograd graph
        |   +-- RecomputeError       a checkpointed function did not compute the same again
        +-- LinAlgError              a matrix is singular, not positive-definite, or does not converge
        +-- DistributedError         base of everything between ranks
        |   +-- TransportError       a transport cannot start (names what to install or change)
        |   +-- MismatchError        ranks are about to do different things
        |   +-- StallError           ranks wait for something that cannot or did not come in time
        |   +-- RankFailedError      another rank died or raised
        +-- CheckpointError          a checkpoint is damaged, incomplete or does not fit
        +-- DataError                a file of a dataset is damaged or is not what it should be
        +-- ExportError              a model cannot be written in another format
        +-- LaunchError              ddprun was asked for something it cannot do

Where PyTorch raises `ValueError`, `TypeError` or `IndexError`, so does ddpgrad; the
classes here are `RuntimeError`s because PyTorch's are. A message says what went wrong,
where (rank, parameter, file and line), what was expected and found, and what to do.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[1]) + "/"


class DdpgradError(RuntimeError):
    """Base of all errors that ddpgrad defines.

    ranks: those at fault, where that is known.
    """

    ranks: tuple[int, ...] = ()


class DeviceError(DdpgradError):
    """A device is unknown or absent, or tensors are on different devices."""


class OutOfMemoryError(DdpgradError, MemoryError):
    """A GPU's memory, or the host's, does not suffice for an array."""


class CaptureError(DdpgradError):
    """What is done while a CUDA graph is captured cannot be part of the graph."""


class KernelMissingError(DdpgradError, NotImplementedError):
    """An op has no kernel for a device."""


class NoElementsError(DdpgradError, NotImplementedError):
    """What is asked of a tensor on meta depends on its elements, which it does not have."""


class GraphError(DdpgradError):
    """The autograd graph was used in a way that cannot give right gradients."""


class RecomputeError(GraphError):
    """A function under `utils.checkpoint` did not compute the same again; there `CheckpointError`."""


class LinAlgError(DdpgradError):
    """A matrix is singular or not positive-definite, or an algorithm of linear algebra does not converge."""


class DistributedError(DdpgradError):
    """Base of the errors that happen between ranks."""


class TransportError(DistributedError):
    """A transport cannot start here."""


class MismatchError(DistributedError):
    """Ranks were about to take part in different collectives."""


class StallError(DistributedError):
    """Ranks wait for something that cannot come, or did not come in time. where: the line of the rank at fault, if it is known."""

    where: str = ""


class RankFailedError(DistributedError):
    """Another rank died or raised."""


class CheckpointError(DdpgradError):
    """A checkpoint is damaged, incomplete, or does not fit the program."""


class DataError(DdpgradError, ValueError):
    """A file of a dataset is damaged or is not what it should be; the message names it."""


class ExportError(DdpgradError):
    """A model cannot be written in another format; what of it, and what to do."""


class LaunchError(DdpgradError):
    """The launcher was asked for something it cannot do."""


def must_be_tensor(name: str, argument: str, place: int, value: Any) -> TypeError:
    """The error for an argument of function `name` that is no Tensor."""
    return TypeError(
        f"{name}(): argument '{argument}' (position {place + 1}) must be Tensor, not {type(value).__name__}"
    )


def not_of(
    tensors: type, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> TypeError | None:
    """The error for the first argument that must be a Tensor and is none; None where all are what they should be."""
    parameters = inspect.signature(function).parameters
    given = {**dict(zip(parameters, args, strict=False)), **kwargs}
    for place, (name, parameter) in enumerate(parameters.items()):
        if parameter.annotation == "Tensor" and name in given and not isinstance(given[name], tensors):
            return must_be_tensor(function.__name__, name, place, given[name])
    return None


def real_numbers(name: str, array: Any) -> Any:
    """`array`; `TypeError` for one of text, dates, None or complex numbers, which NumPy would make real numbers of."""
    if array.dtype.kind in "cUSMm" or (array.dtype.kind == "O" and any(x is None for x in array.flat)):
        raise TypeError(f"{name}(): data must be real numbers, got an array of {array.dtype}")
    return array


def warn_program(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program, however many functions of this package lie between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def out_of_memory(name: str, error: MemoryError) -> OutOfMemoryError:
    """NumPy's `error` in function `name` as what PyTorch's programs look for."""
    if isinstance(error, OutOfMemoryError):
        return error
    return OutOfMemoryError(
        f"{name}(): DefaultCPUAllocator: can't allocate memory: not enough memory. {error}"
    )


class NotMapped(BaseException):
    """What is asked of an array of examples needs them one by one: elements as numbers, a write, a function without a rule.

    No Exception, so that it passes what handles errors on its way to `vmap`, which then is a loop.
    """

    def __init__(self) -> None:
        super().__init__(
            "a tensor that holds all examples of a vmap was used as one outside of it, or after it"
        )
