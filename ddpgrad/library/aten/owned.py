"""The functions that compute ops of PyTorch's which have no other name here: the table that other modules fill."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

ROOT = __name__.partition(".")[0]

OWN: dict[str, Callable[..., Any]] = {}
"""Functions that have no other name here, by PyTorch's name; or by name and overload."""


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` computes the op of its name, without the underscore that ends it."""
    OWN[function.__name__.removesuffix("_of")] = function
    return function


def functional() -> Any:
    """`torch.nn.functional`."""
    return import_module(f"{ROOT}.nn.functional")
