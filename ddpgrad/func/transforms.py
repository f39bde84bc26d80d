"""`grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, `hessian`: derivatives as functions, which nest.

A transform gives the function inputs of its own. Their gradients are recorded in turn only
where something else that requires a gradient takes part: an input of an enclosing transform,
a parameter that the function closes over. Otherwise results are plain tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import Tensor
from .evaluation import Argnums, Call, Func, Linear
from .levels import Columns
from .trees import alike, flatten, outline


def grad(func: Func, argnums: Argnums = 0, has_aux: bool = False) -> Func:
    """The function that computes the gradient of a scalar `func` in its arguments `argnums`.

    Arguments may be trees of tensors; the gradient has the same structure. With `has_aux`, `func`
    returns (scalar, aux), and the result is (gradient, aux).
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapper


def grad_and_value(func: Func, argnums: Argnums = 0, has_aux: bool = False) -> Func:
    """As `grad`, with the value: (gradient, value), or (gradient, (value, aux)) with `has_aux`."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = Call(func, args, kwargs, argnums, has_aux)
        out = call.output
        if not isinstance(out, Tensor):
            raise RuntimeError(
                f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(out)}"
            )
        if out.ndim != 0:
            raise RuntimeError(
                "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                f"{out.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
            )
        found = call.like_arguments(call.gradients(None))
        return found, (call.settled(out), call.settled(call.aux)) if has_aux else call.settled(out)

    return wrapper


def vjp(func: Func, *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), vjp_fn): `vjp_fn(cotangents)` gives the gradients of the primals, as a tuple.

    cotangents: gradients of the outputs, in their structure. `vjp_fn` also takes `retain_graph=True`; False frees what
    it needs, so that it can not be called again. With `has_aux`, `func` returns (output, aux), and the result is
    (output, vjp_fn, aux).
    """
    call = Call(func, primals, {}, tuple(range(len(primals))), has_aux)
    call.require_numbers("vjp(f, *primals)")

    def vjp_fn(
        cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> tuple[Any, ...]:
        if not alike(cotangents, call.output):
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                f"cotangents: {outline(cotangents)}, primal output: {outline(call.output)}"
            )
        return call.like_arguments(call.gradients(flatten(cotangents)[0], bool(create_graph), retain_graph))

    output = call.settled(call.output)
    return (output, vjp_fn, call.settled(call.aux)) if has_aux else (output, vjp_fn)


def jvp(
    func: Func,
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """(func(*primals), the derivative of `func` at `primals` along `tangents`), by two reverse passes.

    strict: `RuntimeError` where an output does not depend on the primals. With `has_aux`, `func` returns (output, aux),
    and the result is (output, derivative, aux).
    """
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    _check_directions(name, primals, tangents)
    call = Call(func, primals, {}, tuple(range(len(primals))), has_aux, duals=True)
    derivative = Linear(call, name, strict)(tangents)
    output = call.settled(call.output)
    return (output, derivative, call.settled(call.aux)) if has_aux else (output, derivative)


def linearize(func: Func, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), jvp_fn): `jvp_fn(*tangents)` is the derivative of `func` at `primals` along `tangents`.

    For many tangents at one place: `func` is evaluated once.
    """
    name = "linearize(f, *primals)"
    call = Call(func, primals, {}, tuple(range(len(primals))), False, duals=True)
    linear = Linear(call, name)

    def jvp_fn(*tangents: Any) -> Any:
        _check_directions(name, primals, tangents)
        for primal, tangent in zip(flatten(primals)[0], flatten(tangents)[0], strict=True):
            if tangent.dtype != primal.dtype:
                raise RuntimeError(f"{name}: got a tangent of {tangent.dtype} for a primal of {primal.dtype}")
        return linear(tangents)

    return call.settled(call.output), jvp_fn


def _check_directions(name: str, primals: tuple[Any, ...], tangents: Any) -> None:
    """Refuse tangents that are no directions in which `primals` can move."""
    if not alike(primals, tangents):
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got {outline(primals)} and {outline(tangents)}"
        )
    for what, tree in (("primal", primals), ("tangent", tangents)):
        leaves = flatten(tree)[0]
        if not leaves:
            raise RuntimeError(f"{name}: Expected {what}s to contain at least one Tensor.")
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise RuntimeError(
                    f"{name}: Expected {what}s to only contain Tensors, got unsupported type {type(leaf)}"
                )
            if not (leaf.is_floating_point() or leaf.is_complex()):
                raise ValueError(f"Expected {what} to be floating point or complex, but got: {leaf.dtype}")
    shapes = [[tuple(leaf.shape) for leaf in flatten(tree)[0]] for tree in (primals, tangents)]
    if shapes[0] != shapes[1]:
        raise RuntimeError(
            f"{name}: Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
            f"not supported: primals have the shapes {shapes[0]}, tangents {shapes[1]}"
        )


def jacrev(func: Func, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Func:
    """The function that computes the Jacobian of `func` in its arguments `argnums`, row by row.

    Output and argument of shapes S and T give S + T; trees of outputs, each a tree of arguments.
    chunk_size: how many rows at most are computed at once, which take so many times the memory of one.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _refuse_complex("jacrev", "inputs", args)
        call = Call(func, args, kwargs, argnums, has_aux)
        call.require_numbers("vjp(f, *primals)")
        _refuse_complex("jacrev", "outputs", call.output)
        return call.matrices([call.jacobian(i, chunk_size) for i in range(len(call.outputs))])

    return wrapper


def jacfwd(func: Func, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Func:
    """As `jacrev`, column by column: for fewer numbers in the arguments than in the outputs.

    randomness: 'error' refuses random operations in `func`, as the vmap in PyTorch's does; 'same' and 'different'
        let them be, for all columns alike.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _refuse_complex("jacfwd", "inputs", args)
        call = Call(func, args, kwargs, argnums, has_aux, duals=True, level=Columns(randomness))
        linear = Linear(call, "jvp(f, primals, tangents)")
        _refuse_complex("jacfwd", "outputs", call.output)
        blocks = [linear.columns(k) for k in range(len(call.inputs))]
        return call.matrices(list(zip(*blocks, strict=True)))

    return wrapper


def _refuse_complex(name: str, what: str, tree: Any) -> None:
    for i, leaf in enumerate(flatten(tree)[0]):
        if isinstance(leaf, Tensor) and leaf.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}"
            )


def hessian(func: Func, argnums: Argnums = 0) -> Func:
    """The function that computes the second derivatives of `func`: the Jacobian of its Jacobian."""
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Func, *, remove: str = "mutations") -> Func:
    """`func` itself: nothing records it as a graph here, for which PyTorch takes its writes apart.

    remove: "mutations" or "mutations_and_views"; RuntimeError for another word.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are: "
            "remove='mutations' and remove='mutations_and_views'"
        )
    return functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs))
