"""`vmap`: a function of single examples applied to a batch, to all at once where that can be, else as a loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .. import Tensor, cat, stack
from ..core.errors import NotMapped
from . import at_once
from .closure import tensors_from_outside
from .levels import Mapping, Randomness, entered
from .trees import flatten, is_batch, spread


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function that maps `func` over a dimension of its arguments and stacks the results.

    in_dims: the dimension for each argument (or tree of arguments), None for what every example
    gets whole, and may not write to. out_dims: where the batch goes in each output, None for what is the same for all. randomness: 'different' numbers for
    each example, the 'same', or an 'error' when `func` draws any. chunk_size: how many examples at most are computed at
    once, which take so many times the memory of one.

    `func` is called once, with tensors that show one example and hold all. Where it needs examples one by one (their elements as
    numbers, writes to arguments, different random numbers), it is called for each: a loop.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    name = getattr(func, "__name__", "func")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        draws = Randomness(randomness)
        if not isinstance(in_dims, (int, tuple)):
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) "
                f"tuple matching the structure of inputs, got: {type(in_dims)}."
            )
        leaves, rebuild = flatten(args)
        dims = spread(in_dims, args, "in_dims")
        count = _batch_size(name, leaves, dims)
        with suppress(NotMapped):
            return _at_once(func, leaves, dims, count, rebuild, kwargs, draws, out_dims, chunk_size or count)
        return _loop(name, func, leaves, dims, count, rebuild, kwargs, draws, out_dims)

    return wrapper


def _at_once(
    func: Callable[..., Any], leaves: list[Any], dims: list[Any], count: int, rebuild: Any, kwargs: Any,
    draws: Randomness, out_dims: Any, chunk: int,
) -> Any:  # fmt: skip
    """The results of one call for all examples, or of one for each `chunk` of them."""
    if min(chunk, count) < 2 or any(map(is_batch, leaves)):
        raise NotMapped
    found: list[list[Any]] = []
    result, to = None, partial(_places, out_dims)
    for start in range(0, count, chunk):
        draws.again()
        size = min(chunk, count - start)
        given = [x if d is None else x.narrow(d, start, size) for x, d in zip(leaves, dims, strict=True)]
        result, parts = at_once.call(func, given, dims, size, rebuild, kwargs, draws, to)
        found.append(parts)
    parts = found[0] if len(found) == 1 else [
        column[0] if d is None else cat(list(column), d) for column, d in zip(zip(*found, strict=True), to(result), strict=True)
    ]  # fmt: skip
    return flatten(result)[1](parts)


def _loop(
    name: str, func: Callable[..., Any], leaves: list[Any], dims: list[Any], count: int, rebuild: Any, kwargs: Any,
    draws: Randomness, out_dims: Any,
) -> Any:  # fmt: skip
    """The results of calls for each example, one after another."""
    whole = [x for x, d in zip(leaves, dims, strict=True) if d is None]
    own = {
        id(x._versions) for x, d in zip(leaves, dims, strict=True) if d is not None and isinstance(x, Tensor)
    }
    shared = [
        x
        for x in (*whole, *tensors_from_outside(func))
        if isinstance(x, Tensor) and not x.is_inference() and id(x._versions) not in own
    ]
    versions = [x._versions[0] for x in shared]
    results = []
    for i in range(count or 1):
        draws.again()
        # Without examples, one of zeros tells the shapes of the results.
        example = [
            x if d is None else _example(x, d, i) if count else _zeros(x, d)
            for x, d in zip(leaves, dims, strict=True)
        ]
        with entered(Mapping(draws, whole, more=i + 1 < count)):
            results.append(func(*rebuild(example), **kwargs))
        if [x._versions[0] for x in shared] != versions:
            raise RuntimeError(
                f"vmap: inplace arithmetic on what has no batch dimension is not possible: `{name}` wrote to a tensor "
                "that all examples share. Give it as an argument with a batch dimension, or write to a copy."
            )
    columns = zip(*(flatten(result)[0] for result in results), strict=True)
    to = _places(out_dims, results[0])
    return flatten(results[0])[1](
        [_stacked(name, column, dim, count) for column, dim in zip(columns, to, strict=True)]
    )


def _places(out_dims: Any, result: Any) -> list[Any]:
    """Where the batch goes in each leaf of `result`."""
    one = isinstance(out_dims, tuple) and len(out_dims) == 1 and isinstance(result, Tensor)
    return spread(out_dims[0] if one else out_dims, result, "out_dims")


def _batch_size(name: str, leaves: list[Any], dims: list[Any]) -> int:
    sizes = []
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"vmap({name}): Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(x, Tensor) and not is_batch(x):
            raise ValueError(
                f"vmap({name}): Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(
                f"vmap({name}): Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.ndim}"
            )
        sizes.append(x.shape[dim])
    if not sizes:
        raise ValueError(
            f"vmap({name}): got no inputs: Expected at least one Tensor to vmap over, and in_dims says None for all of them"
        )
    if len(set(sizes)) > 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _example(x: Any, dim: int, i: int) -> Any:
    return x.select(dim, i) if isinstance(x, Tensor) else x[(slice(None),) * (dim % x.ndim) + (i,)]


def _zeros(x: Tensor, dim: int) -> Tensor:
    """Zeros in the shape of one example of `x`, of which there are none."""
    dim %= x.ndim
    return x.new_zeros((*x.shape[:dim], *x.shape[dim + 1 :]))


def _stacked(name: str, values: tuple[Any, ...], dim: Any, count: int) -> Any:
    """The results of all examples as one tensor, along `dim`; None: they must be the same."""
    if dim is None and not any(isinstance(value, Tensor) for value in values):
        return values[0]
    for value in values:
        if not isinstance(value, Tensor) and not is_batch(value):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. Did you mean to set "
                "out_dims?"
            )
    if dim is None:
        if any(value is not values[0] and not value.equal(values[0]) for value in values):
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor, what differs between examples, when out_dim is None"
            )
        return values[0]
    if not isinstance(dim, int):
        raise ValueError(
            f"vmap({name}, ..., out_dims={dim}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )
    stacked = stack(list(values), dim)
    return stacked if count else stacked.narrow(dim, 0, 0)
