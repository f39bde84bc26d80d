"""View functions that copy: `permute_copy`, `squeeze_copy` …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ...core.overrides import overridable
from ...core.size import contiguous_format
from ...core.tensor import Tensor
from ..dispatch.out import write_out
from ..dispatch.signatures import TakesOut
from ..elementwise import unary
from ..indexing import index
from . import diagonal, rearranging, shape, splitting, strided

P = ParamSpec("P")
R = TypeVar("R")


def _copying(name: str, view: Callable[P, R]) -> TakesOut[P, R]:
    """The function that copies what `view` shows, or writes it into `out`: a tensor, or a list of as many as there are."""
    show: Any = view

    def copy(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        made = show(input, *args, **kwargs)
        if out is None:
            return tuple(map(_cloned, made)) if isinstance(made, tuple) else _cloned(made)
        if isinstance(made, tuple) and len(out) != len(made):
            raise RuntimeError(
                f"{name}_copy() expected an out= argument of size {len(made)}, got size {len(out)}"
            )
        return write_out(f"{name}_copy", out, made, (input, *args))

    copy.__name__ = copy.__qualname__ = f"{name}_copy"
    copy.__doc__ = f"What `{name}` shows, in new memory."
    return overridable(copy)


def _cloned(made: Tensor) -> Tensor:
    return unary.clone(made, contiguous_format)


def _same(input: Tensor) -> Tensor:
    return input


alias_copy = _copying("alias", _same)
as_strided_copy = _copying("as_strided", strided.as_strided)
detach_copy = _copying("detach", Tensor.detach)
diagonal_copy = _copying("diagonal", diagonal.diagonal)
expand_copy = _copying("expand", shape.expand)
permute_copy = _copying("permute", shape.permute)
select_copy = _copying("select", index.select)
split_copy = _copying("split", splitting.split)
split_with_sizes_copy = _copying("split_with_sizes", splitting.split_with_sizes)
squeeze_copy = _copying("squeeze", shape.squeeze)
t_copy = _copying("t", rearranging.t)
transpose_copy = _copying("transpose", shape.transpose)
unbind_copy = _copying("unbind", splitting.unbind)
unfold_copy = _copying("unfold", strided.unfold)
unsqueeze_copy = _copying("unsqueeze", shape.unsqueeze)
view_copy = _copying("view", strided.view)
