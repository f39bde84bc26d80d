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
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.dtype import DType
from ..core.tensor import Tensor

_SCHEMA = re.compile(r"\s*([\w:]+)(?:\.\w+)?\s*\((.*)\)\s*->.*", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|[^,])+")
_MARK = re.compile(r"\(\w+!?\)")  # what may be changed, as in Tensor(a!)

_WORDS: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", DType: "ScalarType", Device: "Device",
}  # fmt: skip
_IN_ERRORS = {"SymInt": "int", "Scalar": "number"}


def parsed(schema: str) -> tuple[str, inspect.Signature, dict[str, str]]:
    """The name of an op, its arguments, and their types by name."""
    found = _SCHEMA.fullmatch(schema)
    if found is None:
        raise RuntimeError(
            f"torch.library: {schema!r} is no schema, such as 'add(Tensor x, float by=1.0) -> Tensor'"
        )
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters, kinds = [], {}
    for text in map(str.strip, _ARGUMENT.findall(found[2])):
        if text == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        declared, has_default, default = text.partition("=")
        value = _default(default) if has_default else inspect.Parameter.empty
        words = _MARK.sub("", declared).split()
        parameters.append(inspect.Parameter(words[-1], kind, default=value))
        kinds[words[-1]] = "".join(words[:-1])
    return found[1], inspect.Signature(parameters), kinds


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
        return isinstance(value, (list, tuple)) and all(_fits(inner, one) for one in value)
    return kind not in _FIT or _FIT[kind](value)
