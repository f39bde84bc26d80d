"""Parametrizations: parameters computed from others each time they are read.

The computed attribute is a property of a class of the module's own, made for the purpose; what it
is computed from is a parameter of `module.parametrizations.<name>`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.rank_local import RankLocal
from ...core.tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter


class _Cache:
    """Values computed within `cached()`, by (module, name); None outside of it."""

    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[tuple[int, str], Tensor] = {}


_cache: RankLocal[_Cache] = RankLocal(_Cache)


@contextmanager
def cached() -> Iterator[None]:
    """Within the block, compute each parametrized tensor once, when it is first read."""
    cache = _cache.get()
    cache.depth += 1
    try:
        yield
    finally:
        cache.depth -= 1
        if not cache.depth:
            cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and what they start from.

    That is `original`, or `original0`, `original1`, … where the first one's `right_inverse`
    returns several tensors.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        expected = original.detach()
        with no_grad():
            new = original
            for module in reversed(list(modules)):
                new = _inverse(module, new, new)
        self.is_tensor = isinstance(new, Tensor)
        if isinstance(new, Tensor):
            self.ntensors = 1
            if new.dtype is not original.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            if new.device != original.device:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the device.\n"
                    f"original.device: {original.device}\nright_inverse(original).device: {new.device}"
                )
            original.data = new.data  # the same parameter, which an optimizer may know already
            _register(self, "original", original)
        elif isinstance(new, Sequence):
            self.ntensors = len(new)
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                        f"{i} of the sequence with type {type(part).__name__}."
                    )
                part = part.detach()
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _register(self, f"original{i}", part)
        else:
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
                f"{type(new).__name__}"
            )
        if not unsafe:
            _check_like(self(), expected)

    def _original_names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _originals(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._original_names()]

    def right_inverse(self, value: Tensor) -> None:
        """Change what the tensor is computed from so that it becomes `value`."""
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                new = module.right_inverse(new)
            parts = [new] if self.is_tensor else list(new)
            if len(parts) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                    f"length {len(parts)}."
                )
            for original, part in zip(self._originals(), parts, strict=True):
                if part.dtype is not original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {part.dtype} while `original` has dtype "
                        f"{original.dtype}"
                    )
                original.data = part.data.clone()

    def forward(self) -> Tensor:
        first, *more = self
        value = first(*self._originals())
        for module in more:
            value = module(value)
        return value

    def __iter__(self) -> Iterator[Any]:
        return (child for name, child in self._modules.items() if name.isdigit())

    def __len__(self) -> int:
        return sum(name.isdigit() for name in self._modules)


def _inverse(module: Module, value: Any, otherwise: Any) -> Any:
    """`module.right_inverse(value)`, or `otherwise` where there is none."""
    if not hasattr(module, "right_inverse"):
        return otherwise
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return otherwise


def _check_like(found: Any, expected: Tensor) -> None:
    """`found` must be a tensor of the dtype and shape of `expected`."""
    if not isinstance(found, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
    for name in ("dtype", "shape"):
        before, after = getattr(expected, name), getattr(found, name)
        if before != after:
            raise ValueError(
                f"Registering a parametrization may not change the {name} of the tensor, unless the `unsafe` flag is enabled.\n"
                f"unparametrized {name}: {before}\nparametrized {name}: {after}"
            )


def _check_inverse(found: Any, expected: Tensor) -> None:
    """What a parametrization after the first starts from must be a tensor of the dtype and shape of `expected`."""
    if not isinstance(found, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(found).__name__}")
    for name in ("dtype", "shape"):
        if getattr(found, name) != getattr(expected, name):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {name} as the tensor it is "
                f"registered on, unless the `unsafe` flag is enabled: got {getattr(found, name)}, expected "
                f"{getattr(expected, name)}"
            )


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _deepcopy(self: Module, memo: dict[int, Any]) -> Module:
    """A copy of the same class: the default way would go through `__reduce_ex__` of a class without a name to import."""
    replica = self.__class__.__new__(self.__class__)
    memo[id(self)] = replica
    Module.__setstate__(replica, copy.deepcopy(Module.__getstate__(self), memo))
    return replica


def _no_state(self: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): their class is made at run time"
    )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """From now on `module.<tensor_name>` is `parametrization(what it was)`, computed when it is read.

    Several are applied in order of registration. A `right_inverse` of the parametrization says
    what to start from, and lets the attribute be assigned. unsafe: shape and dtype may change.
    Source: https://pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.register_parametrization.html
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            found = parametrization(value)
            _check_like(found, value)
            if hasattr(parametrization, "right_inverse"):
                _check_inverse(_inverse(parametrization, found, value), value)
        chain.append(parametrization)
        chain.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        chain = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            base = type(module)
            own: dict[str, Any] = {} if hasattr(base, "__deepcopy__") else {"__deepcopy__": _deepcopy}
            own["__getstate__"] = _no_state
            module.__class__ = type(f"Parametrized{base.__name__}", (base,), own)
            module.parametrizations = ModuleDict()
        setattr(type(module), tensor_name, _property(tensor_name))
        module.parametrizations[tensor_name] = chain
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _property(name: str) -> property:
    def get(self: Module) -> Tensor:
        cache = _cache.get()
        if not cache.depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in cache.values:
            cache.values[key] = self.parametrizations[name]()
        return cache.values[key]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrized tensor, or one of this name."""
    chains = module.__dict__.get("parametrizations")
    if not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor an ordinary parameter again: with its computed value, or else with the original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    chain = module.parametrizations[tensor_name]
    if not chain.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    value = getattr(module, tensor_name)
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            original.data = value.data
    else:
        original = Parameter(value.detach()) if value.requires_grad else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of the module, as it was before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` the parametrizations of `from_module`, of one tensor or of all, and what they compute from."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            _register(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in from_module.parametrizations[name]:
            register_parametrization(to_module, name, parametrization)
        source, chain = from_module.parametrizations[name], to_module.parametrizations[name]
        for original in source._original_names():
            setattr(chain, original, getattr(source, original))
    return to_module
