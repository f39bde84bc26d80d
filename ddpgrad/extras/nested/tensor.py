"""The nested tensor: several tensors as one, each function of which is the function of every part.

Numbers of dimensions count one less in a part, and a dense tensor with as many dimensions as the whole has one slice for
each part. So what takes a tensor takes a nested one, attention among it, without padding, and the history is that of
the parts. What reduces all elements reduces them in one row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ... import autograd, cat, empty, matmul, stack
from ... import tensor as of_numbers
from ...core.size import jagged, strided
from ...core.tensor import Tensor
from ...nn.functional import pad

_DIMS = frozenset(("dim", "dim0", "dim1", "start_dim", "end_dim", "dims", "axis", "axis0", "axis1"))
_OF_ALL = frozenset(("sum", "mean", "prod", "max", "min", "amax", "amin", "any", "all", "norm", "std", "var"))
"""Functions that reduce all elements where no dimension is given."""
_PAIRED = frozenset(("matmul", "__matmul__", "bmm", "cat", "einsum", "cdist", "scaled_dot_product_attention"))
"""Functions whose operands may have parts of different lengths."""
_OF_WEIGHTS = frozenset(("linear", "embedding"))  # whose dense operands are the same for all parts
_WITHOUT = frozenset(
    ("numpy", "tolist", "item", "__bool__", "__array__", "stride", "data_ptr", "untyped_storage", "stack")
)


class Ragged:
    """The size of a dimension that differs from part to part; in `view` and its like it stands for each part's own."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = tuple(lengths)

    def __repr__(self) -> str:
        return "j1"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ragged) and self.lengths == other.lengths

    def __hash__(self) -> int:
        return hash(self.lengths)


class NestedTensor(Tensor):
    """Several tensors as one. Made by `nested_tensor`, `as_nested_tensor` and functions of nested tensors.

    Attributes and methods that are not here are asked of every part, as functions are.
    """

    _parts: tuple[Tensor, ...]
    _is_jagged: bool

    @staticmethod
    def __new__(cls: Any, parts: Sequence[Tensor], is_jagged: bool) -> NestedTensor:
        self: Any = empty(0).as_subclass(cls)
        self._parts, self._is_jagged = tuple(parts), is_jagged
        return self

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _each(func, args, kwargs or {})

    is_nested: Any = property(lambda self: True)
    layout: Any = property(lambda self: jagged if self._is_jagged else strided)
    ndim: Any = property(lambda self: self._parts[0].ndim + 1)
    shape: Any = property(lambda self: self.size())
    grad_fn: Any = property(lambda self: self._parts[0].grad_fn)

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._parts)

    def __getitem__(self, index: Any) -> Any:
        first, *rest = index if isinstance(index, tuple) else (index,)
        if isinstance(first, int):
            part = self._parts[first]
            return part[tuple(rest)] if rest else part
        if first is not Ellipsis and first != slice(None):
            raise RuntimeError(
                "a nested tensor is indexed along its first dimension by one number, or by `:`"
            )
        rest = [first, *rest] if first is Ellipsis else rest
        return NestedTensor([part[tuple(rest)] for part in self._parts], self._is_jagged)

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The parts."""
        if dim not in (0, -self.ndim):
            raise RuntimeError(f"unbind(): a nested tensor is taken apart along dimension 0 alone, not {dim}")
        return self._parts

    def select(self, dim: int, index: int) -> Any:  # type: ignore[override]
        """Part `index`, or element `index` of a dimension of every part."""
        return self[index] if dim in (0, -self.ndim) else _each(Tensor.select, (self, dim, index), {})

    def dim(self) -> int:
        """The number of dimensions, with that of the parts."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements of all parts."""
        return sum(part.numel() for part in self._parts)

    def size(self, dim: int | None = None) -> Any:
        """The sizes; that of a ragged dimension, in the layout `torch.jagged`, is a `Ragged`."""
        if dim is None:
            return tuple([self.size(d) for d in range(self.ndim)])
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-self.ndim}, {self.ndim - 1}], but got {dim})"
            )
        if not dim % self.ndim:
            return len(self._parts)
        lengths = self._lengths(dim % self.ndim)
        if self._is_jagged and dim % self.ndim == self._ragged():
            return Ragged(lengths)
        if len(set(lengths)) > 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return lengths[0]

    def _lengths(self, dim: int) -> list[int]:
        return [part.shape[dim - 1] for part in self._parts]

    def _ragged(self) -> int:
        """The first dimension along which lengths differ; the first of the parts' own where none do."""
        return next((d for d in range(1, self.ndim) if len(set(self._lengths(d))) > 1), 1)

    def offsets(self) -> Tensor:
        """Where each part begins in `values`, and the end of the last."""
        ends = [0]
        for length in self._lengths(self._ragged()):
            ends.append(ends[-1] + length)
        return of_numbers(ends, device=self._parts[0].device)

    def lengths(self) -> None:
        """None: there are no gaps between parts."""

    def values(self) -> Tensor:
        """The parts one after another along the ragged dimension; in the layout `torch.strided`, all elements in a row."""
        return cat(self._parts, self._ragged() - 1) if self._is_jagged else _row(self)

    def to_padded_tensor(self, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
        """A dense tensor, as large as the largest part, or of `output_size`, with `padding` behind smaller parts."""
        largest = [max(self._lengths(d)) for d in range(1, self.ndim)]
        wanted = largest if output_size is None else list(output_size[1:])
        if len(wanted) != len(largest) or any(w < n for w, n in zip(wanted, largest, strict=True)):
            raise RuntimeError(
                f"to_padded_tensor(): output_size {output_size} does not hold parts of {largest}"
            )
        padded = []
        for part in self._parts:
            widths = [n for w, own in zip(wanted, part.shape, strict=True) for n in (w - own, 0)]
            padded.append(pad(part, widths[::-1], value=padding))
        return stack(padded)

    def __repr__(self, **_: Any) -> str:
        if self._is_jagged:
            shown = ", ".join(map(repr, self.size()))
            return (
                f"NestedTensor(size=({shown}), offsets={self.offsets()!r}, contiguous={self.is_contiguous()})"
            )
        parts = ",\n".join(f"  {part!r}".replace("\n", "\n  ") for part in self._parts)
        return f"nested_tensor([\n{parts}\n])"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return NestedTensor, (self._parts, self._is_jagged)

    def __deepcopy__(self, memo: Any) -> NestedTensor:
        copies = [part.detach().clone().requires_grad_(part.requires_grad) for part in self._parts]
        return NestedTensor(copies, self._is_jagged)

    def requires_grad_(self, requires_grad: bool = True) -> NestedTensor:
        """Ask for gradients of all parts, or of none."""
        for part in self._parts:
            part.requires_grad_(requires_grad)
        return self

    def _gradient(self) -> NestedTensor | None:
        found = [part.grad for part in self._parts if part.grad is not None]
        return NestedTensor(found, self._is_jagged) if len(found) == len(self) else None

    def _set_gradient(self, value: Any) -> None:
        for i, part in enumerate(self._parts):
            part.grad = None if value is None else value[i]

    grad: Any = property(
        _gradient, _set_gradient, None, "The gradients of the parts; None where there is none."
    )

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Gradients of the parts, weighted by those of the nested tensor `gradient`."""
        if gradient is None:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        autograd.backward(self._parts, gradient.unbind(), retain_graph, create_graph, inputs=inputs)


def _row(nested: NestedTensor) -> Tensor:
    return cat([part.reshape(-1) for part in nested.unbind()])


# -- functions of the parts -----------------------------------------------------------------------------


def _found(values: Any) -> Iterator[NestedTensor]:
    """The nested tensors among arguments, and in lists and tuples there."""
    for value in values:
        if isinstance(value, NestedTensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _found(value)


def _each(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `func` makes of every part, as nested tensors."""
    name = func.__name__
    first, *others = _found((*args, *kwargs.values()))
    _check(name, first, others, kwargs)
    own, over = {}, ()
    if name == "bmm":  # whose matrices are those of the parts
        func = matmul
    if name in ("view", "reshape", "expand"):
        sizes = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
        return _joined([func(part, _own_sizes(sizes, i)) for i, part in enumerate(first)], first)
    if name == "permute":
        dims = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        if dims[0] != 0:
            raise RuntimeError("permute(): dimension 0 of a nested tensor stays the first")
        args = (first, _within(name, tuple(dims[1:]), first.ndim))
    elif name != "__get__":  # of attributes
        bound = inspect.signature(func).bind(*args, **kwargs)
        own = {key: value for key, value in bound.arguments.items() if key in _DIMS and value is not None}
        if name in _OF_ALL and not own and not others:
            return func(_row(first), *args[1:], **kwargs)
        given = own.get("dim", ())
        over = [d % first.ndim for d in ((given,) if isinstance(given, int) else given)]
        for key, value in own.items():
            bound.arguments[key] = _within(name, value, first.ndim + (name == "unsqueeze"))
        args, kwargs = bound.args, bound.kwargs
    results = [
        func(
            *[_part(name, a, i, first.ndim) for a in args],
            **{key: _part(name, a, i, first.ndim) for key, a in kwargs.items()},
        )
        for i in range(len(first))
    ]
    if name.endswith("_") and not name.endswith("__"):
        return first
    # Without the ragged dimension all parts are alike.
    if name in _OF_ALL and first._is_jagged and first._ragged() in over and isinstance(results[0], Tensor):
        return stack(results)
    return _joined(results, first)


def _check(name: str, first: NestedTensor, others: Sequence[NestedTensor], kwargs: dict[str, Any]) -> None:
    if name in _WITHOUT or "out" in kwargs:
        raise RuntimeError(
            f"{name}(): not for a nested tensor; take its parts by unbind(), or join them by to_padded_tensor()"
        )
    ragged = first._ragged()
    for other in others:
        alike = name in _PAIRED or (
            other.ndim == first.ndim and other._lengths(ragged) == first._lengths(ragged)
        )
        if len(other) != len(first) or not alike:
            raise RuntimeError(f"{name}(): the parts of the nested tensors have different sizes")


def _within(name: str, dims: Any, ndim: int) -> Any:
    """Dimensions of a nested tensor as those of its parts."""
    if not isinstance(dims, int):
        return type(dims)(_within(name, d, ndim) for d in dims)
    if dims in (0, -ndim):
        raise RuntimeError(f"{name}(): not for dimension 0 of a nested tensor, that of its parts")
    return dims if dims < 0 else dims - 1


def _own_sizes(sizes: Sequence[Any], i: int) -> list[int]:
    """Sizes without the first, for part `i`."""
    return [n.lengths[i] if isinstance(n, Ragged) else n for n in sizes[1:]]


def _part(name: str, value: Any, i: int, ndim: int) -> Any:
    """What an argument is for part `i`."""
    if isinstance(value, NestedTensor):
        return value._parts[i]
    if isinstance(value, (tuple, list)) and any(isinstance(v, Tensor) for v in value):
        return type(value)(_part(name, v, i, ndim) for v in value)
    if isinstance(value, Tensor) and value.ndim == ndim and name not in _OF_WEIGHTS:
        return value[i if len(value) > 1 else 0]  # one for each part, or for all
    return value


def _joined(results: list[Any], like: NestedTensor) -> Any:
    """Tensors as a nested tensor, tuples of tensors as a tuple of them; of other things what all parts agree on."""
    one = results[0]
    if isinstance(one, Tensor):
        return NestedTensor(results, like._is_jagged)
    if isinstance(one, (tuple, list)) and any(isinstance(v, Tensor) for v in one):
        items = [_joined(list(each), like) for each in zip(*results, strict=True)]
        return type(one)(*items) if hasattr(one, "_fields") else tuple(items)
    if isinstance(one, bool):
        return all(results)
    if any(other != one for other in results):
        raise RuntimeError(f"the parts of the nested tensor do not agree: {results}")
    return one
