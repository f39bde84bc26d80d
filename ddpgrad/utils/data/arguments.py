"""Checks of DataLoader's arguments, with PyTorch's exceptions."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from multiprocessing.context import BaseContext
from typing import Any


def check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool, context: Any
) -> None:
    """Refuse impossible numbers, and options that only workers can fulfil."""
    if num_workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative (0: read in this process), got {num_workers}"
        )
    if timeout < 0:
        raise ValueError(
            f"timeout option should be non-negative (0: wait as long as it takes), got {timeout}"
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"prefetch_factor option should be non-negative, got {prefetch_factor}")
    if num_workers == 0:
        for name, given in (
            ("prefetch_factor", prefetch_factor is not None),
            ("persistent_workers", persistent_workers),
            ("multiprocessing_context", context is not None),
            ("timeout", timeout > 0),
        ):
            if given:
                raise ValueError(
                    f"{name} {_ALONE[name]} (num_workers > 0), but got num_workers=0: leave it out, or ask for workers"
                )
    elif isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {methods}, but got "
                f"multiprocessing_context={context!r}"
            )
    elif context is not None and not isinstance(context, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={context!r}"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores is not None and num_workers > cores:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes, more than the {cores} CPU cores that "
            "this process may use; they will slow each other down",
            stacklevel=3,
        )


def can_pin() -> bool:
    """Whether there is a GPU to lock memory for."""
    from ... import cuda  # here, as few programs pin

    return cuda.is_available()


def check_pinning(pin_memory: bool, pin_memory_device: str) -> None:
    """Warn as PyTorch does of what has no effect."""
    if pin_memory_device:
        warnings.warn("pin_memory_device is deprecated; the current device is used", stacklevel=3)
    if pin_memory and not can_pin():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
            "won't be used.",
            stacklevel=3,
        )


_ALONE = {
    "prefetch_factor": "option could only be specified in multiprocessing",
    "persistent_workers": "option needs multi-process loading",
    "multiprocessing_context": "can only be used with multi-process loading",
    "timeout": "option needs multi-process loading",
}
"""What PyTorch says of options that are for workers."""


def check_order(
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> None:
    """Refuse two things that both decide the order."""
    if iterable:
        for name, given, said in (
            ("shuffle", shuffle, shuffle),
            ("sampler", sampler is not None, sampler),
            ("batch_sampler", batch_sampler is not None, batch_sampler),
        ):
            if given:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={said}. The dataset "
                    "has its own order"
                )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle: the sampler decides the order")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last: it decides all"
        )
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )
