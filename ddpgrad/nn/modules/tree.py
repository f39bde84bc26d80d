"""The tree of modules: named members, their registration, and the walk over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from ...core.tensor import Tensor
from ..parameter import Buffer, Parameter
from . import registration
from .registration import BUFFERS, KINDS, MODULES, PARAMETERS, Members

if TYPE_CHECKING:
    from .module import Module

T = TypeVar("T", bound="Tree")


def _members(kind: str) -> Any:
    """The property of a module that is its members of that kind, by name."""

    def get(self: Tree) -> dict[str, Any]:
        if kind not in self.__dict__:
            raise AttributeError(kind)  # before Module.__init__(); `__getattr__` says it in full
        return self.__dict__[kind]

    def put(self: Tree, members: Mapping[str, Any]) -> None:
        self._replace(kind, members)

    return property(get, put)


class Tree:
    """Owns parameters, buffers and further trees, by name. The base of `Module`.

    Members are ordinary attributes, so that reading one costs no more than that. The tree also keeps them by kind.
    """

    _non_persistent_buffers_set: set[str]
    _repr_attributes: ClassVar[tuple[str, ...]] = ()  # for `extra_repr`

    def __init__(self) -> None:
        for kind in KINDS:  # none from an earlier `__init__` either
            self._replace(kind, {})
        self.__dict__["_non_persistent_buffers_set"] = set()

    _parameters, _buffers, _modules = (_members(kind) for kind in KINDS)

    def _replace(self, kind: str, members: Mapping[str, Any]) -> None:
        """Have `members`, and no others of that kind. They are kept in a new dict: a copy may share the old one."""
        own, new = self.__dict__, Members(self, members)
        for name in own.get(kind, ()):
            own.pop(name, None)
        own.update(new)
        own[kind] = new
        registration.changes[0] += 1

    # -- attributes ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Python calls it for what is missing alone; programs call it by hand for members, too."""
        for kind in KINDS:
            if name in (members := self.__dict__.get(kind, ())):
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._make_room(name, PARAMETERS, "parameters")
            self.register_parameter(name, value)
        elif name in own.get(PARAMETERS, ()):
            if value is not None:
                raise TypeError(
                    _wrong_kind(value, "as parameter", name, "torch.nn.Parameter or None expected")
                )
            self.register_parameter(name, None)
        elif isinstance(value, Tree):
            self._make_room(name, MODULES, "module")
            self._modules[name] = registration.replaced("module", self, name, value)
        elif name in own.get(MODULES, ()):
            if value is not None:
                raise TypeError(
                    _wrong_kind(value, "as child module", name, "torch.nn.Module or None expected")
                )
            self._modules[name] = registration.replaced("module", self, name, None)
        elif (marked := isinstance(value, Buffer)) or name in own.get(BUFFERS, ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(_wrong_kind(value, "as buffer", name, "torch.Tensor or None expected"))
            if marked or type(self).register_buffer is not Tree.register_buffer:
                hidden = own.get("_non_persistent_buffers_set", ())
                persistent = value.persistent if marked else name not in hidden
                registration.register_buffer(self, name, value, persistent)
            else:
                registration.put(self, name, registration.replaced("buffer", self, name, value))
        else:
            object.__setattr__(self, name, value)

    def __copy__(self: T) -> T:
        """A module with the same members, which can be replaced in one without the other."""
        copied = type(self).__new__(type(self))
        own = copied.__dict__
        own.update(self.__dict__)
        for kind in KINDS:
            own[kind] = Members(copied, own[kind])
        own["_non_persistent_buffers_set"] = set(own["_non_persistent_buffers_set"])
        return copied

    def _make_room(self, name: str, kind: str, what: str) -> None:
        """Forget what `name` was before, unless it was a member of `kind`."""
        own = self.__dict__
        if kind not in own:
            raise AttributeError(
                f"cannot assign {what} before Module.__init__() call: call super().__init__() first in "
                f"{type(self).__name__}.__init__"
            )
        if name not in own[kind]:
            own.pop(name, None)
            self._unregister(name)

    def _unregister(self, name: str) -> None:
        for kind in KINDS:
            dict.pop(self.__dict__.get(kind, {}), name, None)
        self._non_persistent_buffers_set.discard(name)

    def __dir__(self) -> list[str]:
        # Children of lists are called "0", "1", …, which nobody can write after a dot.
        return sorted(name for name in super().__dir__() if not name[0].isdigit())

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._unregister(name)
        registration.changes[0] += 1

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter that `self.<name>` gives; None reserves the name."""
        self._check_name(name, "parameter", PARAMETERS)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                _wrong_kind(param, "object to parameter", name, "torch.nn.Parameter or None required")
            )
        if param is not None and param._grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}': it was computed by "
                f"{param._grad_fn.name()}. Express '{name}' as a function of another Tensor in forward()."
            )
        if param is not None:
            param = registration.replaced("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is no parameter; it is in the state_dict if `persistent`."""
        self._check_name(name, "buffer", BUFFERS)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(_wrong_kind(tensor, "object to buffer", name, "torch.Tensor or None required"))
        tensor = registration.replaced("buffer", self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child that `self.<name>` gives; None reserves the name."""
        if module is not None and not isinstance(module, Tree):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_name(name, "module", MODULES)
        module = registration.replaced("module", self, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """`add_module`, by its other name."""
        self.add_module(name, module)

    def _check_name(self, name: str, what: str, kind: str) -> None:
        if kind not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in self.__dict__[kind] and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # -- walking the tree ----------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(name, module) of this module and all below; a shared one once, under its first name."""
        memo = set() if memo is None else memo
        module = cast("Module", self)
        if module in memo:
            return
        if remove_duplicate:
            memo.add(module)
        yield prefix, module
        for name, child in self.__dict__[MODULES].items():
            if child is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(memo, below, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below, each once."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below, each once."""
        seen: set[Module] = set()
        for name, child in self.__dict__[MODULES].items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules directly below, each once."""
        return (child for _, child in self.named_children())

    def _named_members(
        self, of: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """(name, member) of a kind, or of what `of(module)` gives, which some subclasses pass as in PyTorch."""
        seen: set[Any] = set()
        owners = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, cast("Module", self))]
        )
        for path, module in owners:
            pairs: Any = list(module.__dict__[of].items()) if isinstance(of, str) else of(module)
            for name, member in pairs:
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter); a shared one once, under its first name."""
        return self._named_members(PARAMETERS, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer); a shared one once, under its first name."""
        return self._named_members(BUFFERS, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at the dotted path `target`; `AttributeError` names the part that is missing."""
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(
                    f"{type(module).__name__} has no attribute `{part}` (looking for '{target}')"
                )
            module = getattr(module, part)
            if not isinstance(module, Tree):
                raise AttributeError(f"`{part}` is not an nn.Module (looking for '{target}')")
        return cast("Module", module)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted path `target`; with `strict`, only in place of a module that is there."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent, name = self._owner_of(target, strict)
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _owner_of(self, target: str, strict: bool = True) -> tuple[Tree, str]:
        """The module that has what lies at a dotted path, and its name there. strict: AttributeError if it has not."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict and not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, name

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`."""
        owner, name = self._owner_of(target)
        parameter = owner._parameters.get(name)
        if parameter is None:
            raise AttributeError(f"`{target}` is not an nn.Parameter of {type(self).__name__}")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at the dotted path `target`."""
        owner, name = self._owner_of(target)
        buffer = owner._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"`{target}` is not a buffer of {type(self).__name__}")
        return buffer

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call `fn` on every module, children first."""
        for child in self.children():
            child.apply(fn)
        fn(cast("Module", self))
        return self

    # -- printing --------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What a subclass wants to say about itself between the parentheses; by default `_repr_attributes`."""
        told = ((name, getattr(self, name)) for name in self._repr_attributes)
        return ", ".join(f"{name}={value!r}" for name, value in told if (name, value) != ("inplace", False))

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if len(lines) <= 1 and not children:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


def _wrong_kind(value: Any, what: str, name: str, expected: str) -> str:
    from ...ops.reduction.queries import typename  # here, as few programs need it

    return f"cannot assign '{typename(value)}' {what} '{name}' ({expected})"
