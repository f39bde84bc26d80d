"""Modules called as functions of their parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module
from ..modules.registration import put

_NOTHING = object()


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in place of its parameters, buffers and attributes of these names.

    The module keeps its own. What it assigns to a replaced name meanwhile is in the dictionary afterwards, if there
    is one only. args: a tuple, or the only argument. tie_weights: what shares a tensor with a replaced one is
    replaced too. strict: `RuntimeError` unless the names are exactly those of the parameters and buffers.
    `ValueError` for a name in two dictionaries, or two values for what is tied.
    Source: https://pytorch.org/docs/stable/generated/torch.func.functional_call.html
    """
    given: Any = parameter_and_buffer_dicts
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    given = given if isinstance(given, Mapping) else _merged(given)
    with _reparametrize_module(module, given, tie_weights=tie_weights, strict=strict):
        return module(*arguments, **(kwargs or {}))


def _merged(dicts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if not isinstance(dicts, Sequence):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}"
        )
    if not all(isinstance(part, Mapping) for part in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    counts = Counter(name for part in dicts for name in part)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: tensor for part in dicts for name, tensor in part.items()}


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    *,
    tie_weights: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    """A block in which `module` has these tensors, as `functional_call` gives them to it."""
    given = parameters_and_buffers
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    values = _tied(given, own) if tie_weights else dict(given)
    if strict:
        _check_names(module, values, own)
    before: dict[str, Any] = {}
    try:
        for name, value in values.items():
            _require_tensor(module, name, value)
            before[name] = _swap(module, name, value)
        yield
    finally:
        after = {name: _swap(module, name, value) for name, value in reversed(before.items())}
        if isinstance(given, MutableMapping):
            given.update(
                {name: after[name] for name in list(given) if after.get(name, _NOTHING) is not _NOTHING}
            )


def _swap(module: Module, name: str, value: Any) -> Any:
    """Give a member of `module` another value, past the checks that ask for a Parameter; the value that it had."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    old = owner.__dict__.get(last, _NOTHING)
    if value is _NOTHING:
        owner.__dict__.pop(last, None)
    else:
        put(owner, last, value)
    return old


def _require_tensor(module: Module, name: str, value: Any) -> None:
    """`TypeError` unless `value`, and what it replaces if there is something, is a Tensor or None."""
    path, _, last = name.rpartition(".")
    if not last:
        raise KeyError(f"tensor name can't be empty string {name!r}")
    old = getattr(module.get_submodule(path), last, None)
    for text, found in ((f"the value of '{name}'", value), (f"attribute `{last}`", old)):
        if found is not None and not isinstance(found, Tensor):
            raise TypeError(f"{text}: {found} is not an instance of Tensor")


def _tied(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`given`, also under the other names of the tensors that it replaces."""
    replaced: dict[int, Tensor] = {}
    for name, tensor in given.items():
        if name in own and replaced.setdefault(id(own[name]), tensor) is not tensor:
            tied = sorted(other for other, mine in own.items() if mine is own[name])
            raise ValueError(
                f"functional_call got multiple values for keys {tied}, which are tied. Consider using tie_weights=False"
            )
    return {**given, **{name: replaced[id(mine)] for name, mine in own.items() if id(mine) in replaced}}


def _check_names(module: Module, values: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """`RuntimeError` unless `values` are for exactly what `module` has."""
    unexpected = [name for name in values if name not in own]
    missing = [name for name in own if name not in values]
    if unexpected or missing:
        lines = [f"Unexpected key(s): {', '.join(map(repr, unexpected))}."] if unexpected else []
        lines += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
        raise RuntimeError(
            f"Error(s) in reparametrizing for {type(module).__name__}:\n\t" + "\n\t".join(lines)
        )
