"""Schemas of ops, such as "add(Tensor x, float by=1.0) -> Tensor": read, made of annotations, and checked against arguments."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..backend.device import Device
from ..backend.dtype import DType
from ..core.tensor import Tensor

_SCHEMA = re.compile(r"\s*([\w:]+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.*?)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|[^,])+")
_MARK = re.compile(r"\(\w+!?\)|!")  # what may be changed, as in Tensor(a!), or Tensor! for short

_WORDS: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", DType: "ScalarType", Device: "Device",
}  # fmt: skip
_IN_ERRORS = {"SymInt": "int", "Scalar": "number"}


_KNOWN = frozenset({
    "Any", "ConstQuantizerPtr", "Device", "DeviceIndex", "Dimname", "Generator", "Layout", "MemoryFormat", "QScheme",
    "Scalar", "ScalarType", "Storage", "Stream", "SymBool", "SymInt", "Tensor", "bool", "complex", "float", "int", "number", "str",
})  # fmt: skip


class Argument(NamedTuple):
    """An argument of an op, with the names that PyTorch's schemas have for what is said of it."""

    name: str
    type: str
    default_value: Any
    kwarg_only: bool
    is_mutable: bool

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self.default_value is not inspect.Parameter.empty

    @property
    def is_write(self) -> bool:
        """`is_mutable`, as arguments of PyTorch's own ops call it."""
        return self.is_mutable


@dataclass(frozen=True, repr=False)
class Schema:
    """What the text of a schema says of an op."""

    text: str
    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    results: tuple[str, ...] | str
    """The types of the results: of several, or of one."""

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The arguments as Python has them."""
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [inspect.Parameter(a.name, kinds[a.kwarg_only], default=a.default_value) for a in self.arguments]
        )

    @functools.cached_property
    def kinds(self) -> dict[str, str]:
        """The types of arguments by name."""
        return {argument.name: argument.type for argument in self.arguments}

    @functools.cached_property
    def positional(self) -> int:
        """How many arguments may be given by position."""
        return sum(not argument.kwarg_only for argument in self.arguments)

    @functools.cached_property
    def changed(self) -> frozenset[str]:
        """The names of the arguments that the op changes."""
        return frozenset(argument.name for argument in self.arguments if argument.is_mutable)

    @functools.cached_property
    def has_lists(self) -> bool:
        """Whether there are lists of tensors among arguments or results."""
        results = (self.results,) if isinstance(self.results, str) else self.results
        return any(kind.startswith("Tensor") and "[" in kind for kind in (*self.kinds.values(), *results))

    def with_defaults_of(self, function: Callable[..., Any]) -> Schema:
        """The schema with the default values that `function` has, which may be dtypes and devices."""
        own = list(inspect.signature(function).parameters.values())
        if len(own) != len(self.arguments) or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in own):
            return self
        pairs = zip(self.arguments, own, strict=True)
        return replace(self, arguments=tuple([a._replace(default_value=p.default) for a, p in pairs]))

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def parsed(schema: str) -> Schema:
    """What a schema says; RuntimeError for what is none."""
    found = _SCHEMA.fullmatch(schema)
    if found is None:
        raise RuntimeError(
            f"torch.library: {schema!r} is no schema, such as 'add(Tensor x, float by=1.0) -> Tensor'"
        )
    by_name, arguments = False, []
    for text in map(str.strip, _ARGUMENT.findall(found[3])):
        if text == "*":
            by_name = True
            continue
        declared, has_default, default = text.partition("=")
        value = _default(default) if has_default else inspect.Parameter.empty
        *words, name = _MARK.sub("", declared).split()
        kind = _known("".join(words), schema)
        arguments.append(Argument(name, kind, value, by_name, "!" in declared))
    several = found[4].startswith("(")
    words = [
        _MARK.sub("", text).split() for text in _ARGUMENT.findall(found[4][1:-1] if several else found[4])
    ]
    if words == [["None"]]:  # PyTorch's other word for no results
        several, words = True, []
    results = tuple([_known(word[0], schema) for word in words if word])
    return Schema(
        schema.strip(), found[1], found[2] or "", tuple(arguments), results if several else results[0]
    )


def _known(kind: str, schema: str) -> str:
    word = kind.rstrip("?").partition("[")[0].rstrip("?")
    if word not in _KNOWN and not word.startswith(("__torch__", "Dict(", "(")):
        raise RuntimeError(
            f"torch.library: unknown type specifier {word!r} in the schema {schema!r}. Common types are Tensor, SymInt, int, "
            "float, bool, Scalar, and lists of them such as Tensor[]"
        )
    return kind


def _default(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return float(text) if text in ("inf", "-inf", "nan") else text  # or a dtype


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:
    """The schema that the annotations of a function say; ValueError where one is missing, or no type of an op's.

    mutates_args: the names of the arguments that it changes, or "unknown".
    """
    try:
        signature = inspect.signature(prototype_function, eval_str=True)
    except NameError as error:
        raise ValueError(
            f"infer_schema(func): a type of {prototype_function} is not known: {error}"
        ) from None

    def wrong(why: str) -> ValueError:
        return ValueError(f"infer_schema(func): {why} Got func with signature {signature})")

    changed = mutates_args if isinstance(mutates_args, str) else set(mutates_args)
    parts, starred = [], False
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise wrong("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        if parameter.annotation is parameter.empty:
            raise wrong(f"Parameter {name} must have a type annotation.")
        word = _word(parameter.annotation)
        if word is None:
            raise wrong(f"Parameter {name} has unsupported type {parameter.annotation}.")
        if (changed == "unknown" and word.startswith("Tensor")) or (changed != "unknown" and name in changed):
            if not word.startswith("Tensor"):
                raise wrong(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated"
                )
            word = f"Tensor(a{place}!){word.removeprefix('Tensor')}"
        parts.append(f"{word} {name}{_written_default(name, parameter, wrong)}")
    if changed != "unknown" and not set(changed) <= signature.parameters.keys():
        missing = set(changed) - signature.parameters.keys()
        raise wrong(f"{missing} in mutates_args were not found in the custom op's signature.")
    return f"{op_name or ''}({', '.join(parts)}) -> {_returned(signature.return_annotation, wrong)}"


def _written_default(name: str, parameter: inspect.Parameter, wrong: Callable[[str], ValueError]) -> str:
    value = parameter.default
    if value is parameter.empty:
        return ""
    if value is None or isinstance(value, (int, float)):
        return f"={value}"
    if isinstance(value, str):
        return f'="{value}"'
    if isinstance(value, (DType, Device)):
        return f"={str(value).removeprefix('torch.')}"
    raise wrong(f"Parameter {name} has an unsupported default value type {type(value)}.")


def _word(annotation: Any) -> str | None:
    """The type of an argument in a schema."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        if set(inside) == {int, float, bool}:
            return "Scalar"
        others = [one for one in inside if one is not type(None)]
        word = _word(others[0] if len(others) == 1 else functools.reduce(operator.or_, others))
        return f"{word}?" if word is not None and len(others) < len(inside) else None
    if origin in (list, Sequence) and len(inside) == 1:
        word = _word(inside[0])
        return f"{word}[]" if word is not None else None
    return None


def _returned(annotation: Any, wrong: Callable[[str], ValueError]) -> str:
    if annotation is inspect.Signature.empty:
        raise wrong("No return type annotation was provided. Please add one.")
    if annotation is None:
        return "()"
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join(_returned(one, wrong) for one in typing.get_args(annotation))})"
    word = _word(annotation)
    if word not in ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar"):
        raise wrong(f"Return has unsupported type {annotation}.")
    return word


_FIT: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda value: isinstance(value, Tensor) or value is None,
    "SymInt": lambda value: isinstance(value, (int, np.integer, Tensor)),
    "int": lambda value: isinstance(value, (int, np.integer, Tensor)),
    "float": lambda value: isinstance(value, (int, float, np.number, Tensor)),
    "Scalar": lambda value: isinstance(value, (int, float, complex, np.number, Tensor)),
    "str": lambda value: isinstance(value, str),
}


def check_arguments(name: str, kinds: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """RuntimeError for an argument that is not of the type that the schema says."""
    for place, (argument, value) in enumerate(arguments.items()):
        kind = kinds.get(argument, "")
        if not _fits(kind, value):
            raise RuntimeError(
                f"{name}() Expected a value of type '{_IN_ERRORS.get(kind, kind)}' for argument '{argument}' but instead "
                f"found type '{type(value).__name__}'.\nPosition: {place}\nValue: {value}"
            )


def _fits(kind: str, value: Any) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        inner, _, size = kind[:-1].rpartition("[")
        if size and _fits(inner, value):  # one number for all
            return True
        return isinstance(value, (list, tuple)) and all(
            _fits(inner, one) and (one is not None or inner.endswith("?")) for one in value
        )
    return kind not in _FIT or _FIT[kind](value)


def check_results(name: str, schema: Schema, result: Any) -> None:
    """TypeError or RuntimeError for what a kernel returned, where it is not of the types that the schema says."""
    kinds = schema.results
    if isinstance(kinds, str):
        values, kinds = (result,), (kinds,)
    elif not kinds:
        return
    elif not isinstance(result, (list, tuple)) or len(result) != len(kinds):
        raise TypeError(
            f"{name}() returned {type(result).__name__}, expected a tuple of {len(kinds)} results"
        )
    else:
        values = result
    for kind, value in zip(kinds, values, strict=True):
        if not _fits(kind, value):
            raise RuntimeError(f"{name}(): Unable to cast {value} to {kind}, the result that its schema says")
