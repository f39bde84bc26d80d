"""The public names of a package, from its `__init__.pyi`; each is loaded when it is first used.

The stub is what type checkers and editors read, so the two cannot differ. A line of it is

    from .modules.linear import Linear as Linear, Identity as Identity

in parentheses where it is long, or another name of what was imported, or of an attribute of it:

    absolute = abs
    relu_ = Tensor.relu_

A type checker takes `from x import abs as absolute` for private, so a name that is not its own home's is such a line.
Where the first name of it begins with an underscore, that name is the stub's own. `dir()` and `__all__` come from the
stub. Modules below the package that the stub does not name are found as attributes too, as they are in PyTorch, which
imports all of its modules at once.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_LIBRARY = {__name__.partition(".")[0], "torch"}  # whose place it may take

_IMPORT = re.compile(r"^from (\.*)([\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_OTHER_NAME = re.compile(r"^(\w+) = (\w+)(\.\w+)?$", re.MULTILINE)
_TENSOR, _OPS = (f"{__name__.partition('.')[0]}.{name}" for name in ("core.tensor", "ops"))


attributes: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
"""Of a module, a dict of what it has at the moment."""


class Face(ModuleType):
    """A package whose names are loaded on first use, and from then on are ordinary attributes of the module."""

    _homes: dict[str, tuple[str, str]]
    """Public name -> the module that has it, and its name there, or the name of an attribute of what has that name; ''
    where it is that module itself."""
    _adapt: Callable[[str, Any], Any] | None
    _unlisted: Callable[[str], Any] | None

    @property
    def __dict__(self) -> dict[str, Any]:
        """All names with their values, which are loaded: for programs that look up or go through `vars(module)`."""
        own = attributes(self)
        for name in own.get("_homes", ()):
            if name not in own:
                getattr(self, name)
        return own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in self._homes:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        if name not in self._homes:
            value = self._unlisted(name) if self._unlisted is not None else None
            return below(self, name) if value is None else value
        value = _load(*self._homes[name])
        if self._adapt is not None:
            value = self._adapt(name, value)
        if isinstance(value, FunctionType):
            _let_pickle_find(value, self.__name__, name)
        attributes(self)[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds a module to its package when it has loaded it; a public function of that name comes first.
        if isinstance(value, ModuleType):
            explain_missing(value)
            if self._homes.get(name, ("", ""))[1]:
                return
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*attributes(self), *self._homes})


def _let_pickle_find(function: FunctionType, package: str, name: str) -> None:
    """Say that a function which is not where it says that it is, such as a wrapper, is the package's: pickles name its place."""
    home = sys.modules.get(function.__module__)
    if home is None or attributes(home).get(function.__qualname__) is not function:
        function.__module__, function.__qualname__ = package, name


def _load(home: str, name: str) -> Any:
    value = module = import_module(home)
    first, _, attribute = name.partition(".")
    if first:
        # What the module has not is a module below it that nothing has loaded yet.
        value = getattr(module, first) if hasattr(module, first) else import_module(f"{home}.{first}")
    if _TENSOR in sys.modules and _OPS not in sys.modules:
        import_module(_OPS)  # which gives the class Tensor its methods
    return getattr(value, attribute) if attribute else value


def exists(name: str) -> bool:
    """Whether there is a module of that name; those above it are loaded."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        # What should lie above it is no package, or a finder has said that there is none.
        return False


def below(module: ModuleType, name: str) -> Any:
    """The module `name` below `module`, which is loaded; an error with the names that are nearest if there is none."""
    if name.startswith("__"):  # which Python itself asks for, also while it imports
        raise AttributeError(f"module '{module.__name__}' has no attribute '{name}'")
    full = f"{module.__name__}.{name}"
    if name.isidentifier() and exists(full):
        return import_module(full)
    from .missing import missing  # here, as few programs misspell a name

    raise missing(module.__name__, dir(module), name)


def explain_missing(module: ModuleType) -> None:
    """Let the error about a name that `module` does not have list the nearest names."""
    if type(module) is ModuleType and "__getattr__" not in vars(module):
        vars(module)["__getattr__"] = partial(below, module)


def also_in(package: str, *modules: str) -> Callable[[str], Any]:
    """A `__getattr__` for a module that PyTorch has as one file, and `package` as several: the names of the others."""

    def look_up(name: str) -> Any:
        if not name.startswith("__"):
            for module in modules:
                try:
                    return getattr(import_module(f"{package}.{module}"), name)
                except AttributeError:
                    continue
        from .missing import missing

        raise missing(package, dir(sys.modules[package]), name)

    return look_up


def homes(package: str, stub: str) -> dict[str, tuple[str, str]]:
    """Each name that the text of a stub imports, with the module that has it and its name there."""
    found = {}
    parts = package.split(".")
    for dots, below, long, short in _IMPORT.findall(stub):
        above = ".".join(parts[: len(parts) - len(dots) + 1]) if dots else ""
        home = f"{above}.{below}".strip(".")
        if short == "*":
            found.update(import_module(home)._homes)
            continue
        for item in (long or short).split(","):
            name, _, public = item.strip().partition(" as ")
            if name:
                own = home == package  # a module of this package
                found[public or name] = (f"{home}.{name}", "") if own else (home, name)
    rows = _OTHER_NAME.findall(stub)
    found.update({other: (found[name][0], found[name][1] + attribute) for other, name, attribute in rows})
    for _, name, _ in rows:
        if name.startswith("_"):
            found.pop(name, None)
    return found


def serve(
    package: str, adapt: Callable[[str, Any], Any] | None = None, unlisted: Callable[[str], Any] | None = None
) -> None:
    """Make the module `package`, which is being loaded, a face with the names of the stub that lies beside it.

    adapt: what is given each name and its value before the name is first used, and returns the value. unlisted: what
    is asked for names that the stub does not have, each time; it returns None for what it does not know either.
    """
    module = sys.modules[package]
    names = homes(package, Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8"))
    module.__class__ = Face
    attributes(module).update(_face(names), _adapt=adapt, _unlisted=unlisted)


def new_face(name: str, doc: str, names: dict[str, tuple[str, str]]) -> ModuleType:
    """A module that has no file of its own: only names of what lies elsewhere."""
    module = Face(name, doc)
    attributes(module).update(_face(names), __path__=[])
    return module


def _face(names: dict[str, tuple[str, str]]) -> dict[str, Any]:
    public = [name for name in names if not name.startswith("_")]
    return {"_homes": names, "_adapt": None, "_unlisted": None, "__all__": public}


def _shown(base: type, public: set[str]) -> list[type]:
    """The subclasses of `base`, with those of a class that only the library itself knows in the place of that class."""
    found: list[type] = []
    for cls in type.__subclasses__(base):
        inner = cls.__module__.partition(".")[0] in _LIBRARY and cls.__name__ not in public
        found += (_shown(cls, public) if inner else None) or [cls]
    return found


def all_in(*modules: str) -> Any:
    """A `__subclasses__`, for programs that look through those of a class, that loads all names of `modules` first, which PyTorch has loaded when its class can be asked."""

    def __subclasses__(cls: type) -> list[type]:
        # vars() of a package loads what is loaded name by name.
        return _shown(cls, {name for module in modules for name in vars(import_module(module))})

    return classmethod(__subclasses__)
