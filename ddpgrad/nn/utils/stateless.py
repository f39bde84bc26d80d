"""Modules called as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor]
    | tuple[Mapping[str, Tensor], ...]
    | list[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `module(*args, **kwargs)` gives with these tensors in place of its parameters and buffers of the same names.

    tie_weights: a parameter that has several names is replaced under all of them. strict: every
    name must be given, and known. Source: https://pytorch.org/docs/stable/generated/torch.func.functional_call.html
    """
    given = parameter_and_buffer_dicts
    values: dict[str, Tensor] = {}
    for part in given if isinstance(given, (tuple, list)) else (given,):
        values.update(part)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, values, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def _replaced(module: Module, values: dict[str, Tensor], tie_weights: bool, strict: bool) -> Iterator[None]:
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    if strict:
        missing, unexpected = own.keys() - values.keys(), values.keys() - own.keys()
        if missing or unexpected:
            raise RuntimeError(
                f"Error(s) in functional_call: missing key(s) {sorted(missing)}, unexpected key(s) {sorted(unexpected)}"
            )
    if tie_weights:
        by_tensor = {id(own[name]): value for name, value in values.items() if name in own}
        values = {**{n: by_tensor[id(t)] for n, t in own.items() if id(t) in by_tensor}, **values}
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in values.items():
            path, _, last = name.rpartition(".")
            attributes = module.get_submodule(path).__dict__
            if last not in attributes:
                raise AttributeError(f"{type(module).__name__} has no parameter or buffer '{name}'")
            before.append((attributes, last, attributes[last]))
            # Members are plain attributes: written past the checks that ask for a Parameter.
            attributes[last] = value
        yield
    finally:
        for attributes, last, value in reversed(before):
            attributes[last] = value
