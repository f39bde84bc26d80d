"""Policies that say which parts of a model form groups of their own, by PyTorch's names.

A policy is called as `policy(module=..., recurse=..., nonwrapped_numel=...)`: with recurse=True it says whether to look at the
children, with False whether `module` itself, of whose elements so many are in no group yet, becomes a group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.rank_local import RankLocal
from ...nn.modules.attention import MultiheadAttention
from ...nn.modules.container import ModuleDict, ModuleList
from ...nn.modules.module import Module

Policy = Callable[..., bool | dict[str, Any]]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


class ModuleWrapPolicy:
    """The modules of these classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._classes)


class CustomPolicy:
    """The modules for which `lambda_fn(module)` is True, or a dict of their own options: mixed_precision, sharding_strategy."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._chosen = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool | dict[str, Any]:
        chosen = recurse or self._chosen(module)
        if not isinstance(chosen, (bool, dict)):
            raise ValueError(
                f"CustomPolicy: expected True, False or a dict of options for a {type(module).__name__}, got {chosen!r}"
            )
        return chosen


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """The modules for which `lambda_fn(module)` is true."""
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[Module]]
) -> bool:
    """The modules of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Iterable[type[Module]] | None = None,
    exclude_wrap_modules: Iterable[type[Module]] | None = None,
) -> bool:
    """Modules of at least `min_num_params` elements that are in no group yet; leaves are not looked into."""
    leaves = (MultiheadAttention,) if force_leaf_modules is None else tuple(force_leaf_modules)
    excluded = (ModuleList, ModuleDict) if exclude_wrap_modules is None else tuple(exclude_wrap_modules)
    return nonwrapped_numel >= min_num_params and not isinstance(module, leaves if recurse else excluded)


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Policy]) -> bool:
    """What one of several policies chooses."""
    return any(
        policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies
    )


_wrapping: RankLocal[list[Callable[[Module], Module]]] = RankLocal(list)


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Within it, `wrap(module)` is `wrapper_cls(module, **wrapper_kwargs)`."""
    _wrapping.get().append(functools.partial(wrapper_cls, **wrapper_kwargs))
    try:
        yield
    finally:
        _wrapping.get().pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """`module`, wrapped within `enable_wrap`, and as it is elsewhere."""
    wrapping = _wrapping.get()
    return wrapping[-1](module, **wrap_overrides) if wrapping else module


def apply_policy(module: Module, policy: Policy, shard: Callable[..., Any], outside: set[int]) -> int:
    """Call `shard` for those modules below `module` that `policy` chooses, with their options; returns how many elements these have.

    outside: ids of modules that are left alone.
    """
    taken = 0
    for child in list(module.children()):
        if id(child) in outside:
            continue
        total = sum(p.numel() for p in child.parameters())
        if not policy(module=child, recurse=True, nonwrapped_numel=total):
            continue
        inner = apply_policy(child, policy, shard, outside)
        chosen = policy(module=child, recurse=False, nonwrapped_numel=total - inner)
        if chosen or isinstance(chosen, dict):
            shard(child, **(chosen if isinstance(chosen, dict) else {}))
            inner = total
        taken += inner
    return taken
