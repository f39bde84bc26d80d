"""The members of a module, and global hooks on their registration, which may replace them."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from ...autograd.graph import RemovableHandle
from ...core.rank_local import RankLocal

if TYPE_CHECKING:
    from .tree import Tree


class _Flag:
    """Whether any rank has ever registered such a hook: the one thing that each registration asks."""

    raised: bool = False


of_all = _Flag()

changes: list[int] = [0]
"""How often any module has got or converted a member: who keeps parameters of a model asks whether to look again."""


# Under these names a module keeps its members, in order of registration.
PARAMETERS, BUFFERS, MODULES = KINDS = ("_parameters", "_buffers", "_modules")


class Members(dict[str, Any]):
    """The members of one kind, by name. They are also attributes of their module; who changes one here changes both.

    The module is not kept alive, so that no module is part of a cycle.
    """

    __slots__ = ("_module",)

    def __init__(self, module: Tree, members: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(members)
        self._module = ref(module)

    def __setitem__(self, name: str, member: Any) -> None:
        super().__setitem__(name, member)
        if (module := self._module()) is not None:
            module.__dict__[name] = member
        changes[0] += 1

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if (module := self._module()) is not None:
            module.__dict__.pop(name, None)
        changes[0] += 1

    # A dict's own would go past these two.
    setdefault, clear, update = MutableMapping.setdefault, MutableMapping.clear, MutableMapping.update

    def pop(self, name: str, *otherwise: Any) -> Any:
        """Take out the member `name` and return it, as a dict does."""
        if otherwise and name not in self:
            return otherwise[0]
        member = self[name]
        del self[name]
        return member

    def popitem(self) -> tuple[str, Any]:
        """Take out the last pair and return it, as a dict does."""
        if not self:
            raise KeyError("popitem(): there are no members")
        name = next(reversed(self))
        return name, self.pop(name)

    def __ior__(self, members: Any) -> Members:
        self.update(members)
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def put(module: Tree, name: str, value: Any) -> None:
    """Give a member of `module` another value, past the checks that ask for a Parameter."""
    own = module.__dict__
    own[name] = value
    for kind in KINDS:
        if name in own[kind]:
            dict.__setitem__(own[kind], name, value)


class _Hooks:
    """The hooks of one rank, by what is registered, in order of call."""

    def __init__(self) -> None:
        self.parameter: OrderedDict[int, Any] = OrderedDict()
        self.buffer: OrderedDict[int, Any] = OrderedDict()
        self.module: OrderedDict[int, Any] = OrderedDict()


_hooks: RankLocal[_Hooks] = RankLocal(_Hooks)


class _OfRank(Mapping[int, Any]):
    """The hooks of one kind, of the rank that looks."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getitem__(self, number: int) -> Any:
        return getattr(_hooks.get(), self._what)[number]

    def __iter__(self) -> Iterator[int]:
        return iter(getattr(_hooks.get(), self._what))

    def __len__(self) -> int:
        return len(getattr(_hooks.get(), self._what))


parameter_hooks = _OfRank("parameter")


def replaced(what: str, module: Tree, name: str, member: Any) -> Any:
    """`member` as the hooks of its kind ("parameter", "buffer", "module") hand it on."""
    if not of_all.raised:
        return member
    for hook in list(getattr(_hooks.get(), what).values()):
        changed = hook(module, name, member)
        if changed is not None:
            member = changed
    return member


def register_buffer(module: Any, name: str, tensor: Any, persistent: bool) -> None:
    """`module.register_buffer`, which a class may define with fewer arguments."""
    if "persistent" in inspect.signature(module.register_buffer).parameters:
        module.register_buffer(name, tensor, persistent)
    elif persistent:
        module.register_buffer(name, tensor)
    else:
        raise RuntimeError(
            f"{type(module).__name__}.register_buffer() has no argument persistent: buffer '{name}' has to be persistent"
        )


def _add(what: str, hook: Callable[..., Any]) -> RemovableHandle:
    of_all.raised = True
    hooks = getattr(_hooks.get(), what)
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, parameter)` whenever a module gets a parameter; a result is registered in its place."""
    return _add("parameter", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` whenever a module gets a buffer; a result is registered in its place."""
    return _add("buffer", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, child)` whenever a module gets a child; a result is registered in its place."""
    return _add("module", hook)
