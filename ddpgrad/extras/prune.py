"""Pruning: parameters with elements held at 0 by a mask.

A pruned `weight` is the product of the parameter `weight_orig` and the buffer `weight_mask`,
computed before each forward. Source: https://pytorch.org/docs/stable/nn.html#utilities
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import Tensor, cat, norm, ones_like, rand, rand_like, reshape, topk, zeros_like
from ..nn.modules.module import Module

Pairs = Iterable[tuple[Module, str]]


class BasePruningMethod(ABC):
    """A way to choose what is pruned. A subclass has `PRUNING_TYPE` and `compute_mask(t, default_mask)`.

    PRUNING_TYPE: "unstructured" (of the elements that are left), "structured" (of the channels
    along `dim` that are left) or "global" (of all).
    """

    PRUNING_TYPE: str = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, 1 for what stays; `t` says how important each element is, 0 in `default_mask` stays 0."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor."""
        name = self._tensor_name
        original = getattr(module, f"{name}_orig")
        return getattr(module, f"{name}_mask").to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune `module.<name>`, on top of how it is pruned already."""
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        old = _hook_of(module, name)
        if old is not None:
            del module._forward_pre_hooks[old[0]]
            container = PruningContainer(*(old[1] if isinstance(old[1], PruningContainer) else (old[1],)))
            container.add_pruning_method(method)
            container._tensor_name = name
            method = container
        present = getattr(module, name)
        scores = present if importance_scores is None else importance_scores
        if scores.shape != present.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{list(scores.shape)} and {list(present.shape)}"
            )
        default = ones_like(present.detach()) if old is None else getattr(module, f"{name}_mask").detach()
        mask = method.compute_mask(scores.detach(), default)
        if old is None:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", present)
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """`t` with what this method chooses at 0."""
        scores = t if importance_scores is None else importance_scores
        default = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default)

    def remove(self, module: Module) -> None:
        """Make the pruned tensor the parameter again; what was pruned stays 0."""
        name = self._tensor_name
        original = getattr(module, f"{name}_orig")
        original.data = self.apply_mask(module).data
        for part in (name, f"{name}_orig", f"{name}_mask"):
            delattr(module, part)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods for one tensor; each chooses among what the ones before have left."""

    def __init__(self, *methods: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in methods:
            self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add one more, of the same tensor."""
        if method is None:
            return
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """`default_mask` with what the latest method chooses of the rest."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype, copy=True)
        where: Any = slice(None)
        if method.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.ndim  # type: ignore[attr-defined]
            left = mask.sum(tuple(d for d in range(t.ndim) if d != dim)) != 0
            where = (slice(None),) * dim + (left.nonzero().squeeze(1),)
        elif method.PRUNING_TYPE != "global":
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[where] = method.compute_mask(t[where], mask[where])
        return mask


def _hook_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


# The names of the next ones are those that PyTorch's own tests call them by.
def _validate_pruning_amount_init(amount: int | float) -> None:
    """TypeError or ValueError for what can be no amount."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (isinstance(amount, float) and amount > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )


def _validate_pruning_amount(amount: int | float, tensor_size: int) -> None:
    if isinstance(amount, int) and amount > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}"
        )


def _validate_structured_pruning(t: Tensor) -> None:
    if t.ndim < 2:
        raise ValueError(
            f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape}"
        )


def _compute_nparams_toprune(amount: int | float, tensor_size: int) -> int:
    """How many of `tensor_size` an amount is: a number of them, or a share."""
    return amount if isinstance(amount, int) else round(amount * tensor_size)


def _count(amount: int | float, size: int) -> int:
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    """The n-norm of each channel along `dim`."""
    return norm(t, n, tuple(d for d in range(t.ndim) if d != dim % t.ndim))


class Identity(BasePruningMethod):
    """Prunes nothing, but sets up what pruning needs."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """`default_mask` itself."""
        return default_mask


class _ByAmount(BasePruningMethod):
    """Methods that prune a number of elements, or a share of them."""

    def __init__(self, amount: int | float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _without(self, scores: Tensor, default_mask: Tensor, largest: bool) -> Tensor:
        """The mask without the elements with the largest, or smallest, scores."""
        mask = default_mask.clone()
        count = _count(self.amount, scores.numel())
        if count:
            flat = reshape(mask, (-1,))
            flat[topk(reshape(scores, (-1,)), count, largest=largest).indices] = 0
            mask = reshape(flat, tuple(mask.shape))
        return mask


class RandomUnstructured(_ByAmount):
    """Elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """As the base class says."""
        return self._without(rand_like(t), default_mask, True)


class L1Unstructured(_ByAmount):
    """The elements of smallest magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """As the base class says."""
        return self._without(t.abs(), default_mask, False)


class _Structured(BasePruningMethod):
    """Methods that prune whole channels along `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """As the base class says: without the channels of smallest score."""
        _validate_structured_pruning(t)
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        channels = t.shape[self.dim]
        count = _count(self.amount, channels)
        if not count:
            return default_mask
        kept = topk(
            self._scores(t), channels - count
        ).indices  # of equal scores the first stay, as in PyTorch
        mask = zeros_like(t)
        mask[(slice(None),) * (self.dim % t.ndim) + (kept,)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Channels at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """The channels of smallest n-norm."""

    def __init__(self, amount: int | float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        return _compute_norm(t, self.n, self.dim)


class CustomFromMask(BasePruningMethod):
    """What a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """As the base class says."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Set up a mask of ones for `module.<name>`."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prune elements of `module.<name>` at random: `amount` of them, or that share."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements of `module.<name>` of smallest magnitude, or score."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prune channels of `module.<name>` along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: int | float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the channels of `module.<name>` along `dim` of smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune where `mask` is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Pairs,
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune elements of all `parameters` (module, name), chosen as if they were one tensor."""
    if not issubclass(pruning_method, BasePruningMethod) or pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {pruning_method.PRUNING_TYPE}"
        )
    pairs = list(parameters)
    given = importance_scores or {}
    scores: list[Tensor] = [given[pair] if pair in given else getattr(pair[0], pair[1]) for pair in pairs]
    masks = [_mask_of(module, name) for module, name in pairs]
    method = pruning_method(**kwargs)
    method._tensor_name = "all"
    container = PruningContainer(method)
    whole = container.compute_mask(
        cat([reshape(s.detach(), (-1,)) for s in scores]), cat([reshape(m, (-1,)) for m in masks])
    )
    start = 0
    for (module, name), mask in zip(pairs, masks, strict=True):
        part = whole[start : start + mask.numel()]
        custom_from_mask(module, name, reshape(part, tuple(mask.shape)))
        start += mask.numel()


def _mask_of(module: Module, name: str) -> Tensor:
    mask = getattr(module, f"{name}_mask", None)
    return ones_like(getattr(module, name).detach()) if mask is None else mask


def is_pruned(module: Module) -> bool:
    """Whether the module, or one below, has a pruned tensor."""
    return any(
        isinstance(hook, BasePruningMethod)
        for part in module.modules()
        if part._hooks is not None
        for hook in part._forward_pre_hooks.values()
    )


def remove(module: Module, name: str) -> Module:
    """Make pruning of `module.<name>` permanent: the pruned tensor becomes the parameter."""
    found = _hook_of(module, name)
    if found is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    key, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module
