"""The table of Kullback-Leibler divergences by the types of both distributions; users can extend it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import Tensor

__all__ = ["kl_divergence", "register_kl"]

Rule = Callable[[Any, Any], Tensor]
_KL_REGISTRY: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorate `rule(p, q)`, which computes KL(p || q) for these types and their subclasses; TypeError for what is no type.

    As in PyTorch, a library may have a base of distributions of its own.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(rule: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: Any, q: Any) -> Tensor:
    """KL(p || q), of shape batch_shape; NotImplementedError when no rule knows these types."""
    for type_p in type(p).__mro__:
        for type_q in type(q).__mro__:
            if (type_p, type_q) in _KL_REGISTRY:
                return _KL_REGISTRY[type_p, type_q](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )
