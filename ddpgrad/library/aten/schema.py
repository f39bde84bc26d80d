"""`OpOverload._schema`: names, defaults and aliases of the arguments of an op, from the signature of what computes it."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from ...ops.dispatch.declare import OPS
from ..tags import Tag
from . import implementations


class Alias(NamedTuple):
    """Which memory an argument or result shares, and whether it is written to."""

    before_set: frozenset[str]
    is_write: bool

    @property
    def after_set(self) -> frozenset[str]:
        return self.before_set

    def __str__(self) -> str:
        return f"({next(iter(self.before_set))}{'!' if self.is_write else ''})"


class Argument(NamedTuple):
    """One argument or result of a schema."""

    name: str
    type: str
    default_value: Any
    has_default: bool
    kwarg_only: bool
    alias_info: Alias | None

    def has_default_value(self) -> bool:
        return self.has_default

    @property
    def is_out(self) -> bool:
        return self.name == "out" and self.kwarg_only

    @property
    def is_write(self) -> bool:
        return self.alias_info is not None and self.alias_info.is_write

    def __str__(self) -> str:
        kind = self.type.replace("Tensor", f"Tensor{self.alias_info}") if self.alias_info else self.type
        return " ".join(filter(None, (kind, self.name))) + (
            f"={self.default_value}" if self.has_default else ""
        )


class Schema(NamedTuple):
    """What an op takes and returns."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]

    @property
    def is_mutable(self) -> bool:
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        parts: list[str] = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(str(argument))
        overload = f".{self.overload_name}" if self.overload_name else ""
        returned = ", ".join(map(str, self.returns))
        returned = returned if len(self.returns) == 1 else f"({returned})"
        return f"{self.name}{overload}({', '.join(parts)}) -> {returned}"


VIEWS = frozenset((
    "alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice", "split", "split_with_sizes", "squeeze",
    "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex", "view_as_real", "_conj",
))  # fmt: skip
_RESHAPING = frozenset(
    ["resize_", "squeeze_", "t_", "transpose_", "unsqueeze_", "as_strided_", "swapdims_", "detach_"]
)
_RANDOM = frozenset((
    "rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randint_like",
))  # fmt: skip
_SEVERAL = frozenset(("split", "split_with_sizes", "unbind"))

OF_THEMSELVES = frozenset(
    ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "resize_", "bernoulli_", "exponential_")
)
_RESULTS = {"native_layer_norm": 3, "native_group_norm": 3, "native_batch_norm": 3, "sort": 2, "topk": 2, "kthvalue": 2,
            "mode": 2, "cummax": 2, "cummin": 2, "var_mean": 2, "std_mean": 2, "nll_loss_forward": 2, "aminmax": 2,
            "_unique2": 3, "_scaled_dot_product_flash_attention_for_cpu": 2}  # fmt: skip
_RESULTS |= {f"max_pool{n}d_with_indices": 2 for n in (1, 2, 3)} | {
    f"{n}.dim": 2 for n in ("max", "min", "median", "nanmedian")
}


_OPERANDS = frozenset(
    ("self", "input", "other", "mat1", "mat2", "src", "index", "indices", "weight", "bias", "mask")
)


def _kind(parameter: inspect.Parameter) -> str:
    annotation = str(parameter.annotation)
    for word, kind in (
        ("Sequence[Tensor]", "Tensor[]"), ("Tensor | None", "Tensor?"), ("Tensor", "Tensor"), ("bool", "bool"),
        ("int", "int"), ("float", "float"), ("str", "str"),
    ):  # fmt: skip
        if word in annotation:
            return kind
    if parameter.name in _OPERANDS:
        return "Tensor"
    return "Scalar" if isinstance(parameter.default, (int, float)) else "Any"


def schema_of(name: str, overload: str) -> Schema:
    """The schema of `aten.<name>.<overload>`."""
    writes = name.endswith("_") and not name.endswith("__")
    function = implementations.of(
        name.rstrip("_") if writes and name not in OF_THEMSELVES else name, overload
    )
    arguments: list[Argument] = []
    view = name in VIEWS
    signature = inspect.signature(function)
    for place, parameter in enumerate(signature.parameters.values()):
        if (
            parameter.name == "former"
            or parameter.kind is parameter.VAR_KEYWORD
            or (parameter.name == "out" and "out" not in overload)
        ):
            continue
        called = "self" if not place and parameter.name in ("input", "x") else parameter.name
        kind = _kind(parameter)
        alias = Alias(frozenset("a"), writes) if not place and (writes or view) else None
        if parameter.name == "out":
            alias = Alias(frozenset("a"), True)
        if alias is not None and "Tensor" not in kind:
            kind = "Tensor"
        has_default = parameter.default is not parameter.empty
        only = parameter.kind is parameter.KEYWORD_ONLY
        default = parameter.default if has_default else None
        arguments.append(Argument(called, kind, default, has_default and alias is None, only, alias))
    writes = writes or any(argument.is_write for argument in arguments)
    alias = Alias(frozenset("a"), writes) if writes or view else None
    kind = "Tensor[]" if name in _SEVERAL else "Tensor"
    op = OPS.get(name)
    count = op.outputs if op is not None and name not in _SEVERAL else 1
    count = _RESULTS.get(f"{name}.{overload}", _RESULTS.get(name, count))
    returns = tuple(Argument("", kind, None, False, False, alias) for _ in range(count))
    return Schema(f"aten::{name}", "" if overload == "default" else overload, tuple(arguments), returns)


def tags_of(name: str) -> list[Tag]:
    """The tags of the overloads of `aten.<name>`."""
    found = []
    if name.endswith("_") and not name.endswith("__"):
        found.append(Tag.inplace)
    if name in _RESHAPING:
        found.append(Tag.inplace_view)
    if name in _RANDOM:
        found.append(Tag.nondeterministic_seeded)
    op = OPS.get(name)
    if op is not None and op.promotion is not None:
        found.append(Tag.pointwise)
    return found
