"""`grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, `hessian`: derivatives as functions, which nest.

A transform gives the function inputs of its own. Their gradients are recorded in turn only
where something else that requires a gradient takes part: an input of an enclosing transform,
a parameter that the function closes over. Otherwise results are plain tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor, enable_grad, is_grad_enabled, zeros_like
from ..autograd.accumulate import AccumulateGrad, edge_of
from ..autograd.functional import gradients, jacobian_of
from ..autograd.own_tangents import transposing
from .levels import DERIVATIVE, entered
from .trees import flatten

Func = Callable[..., Any]
Argnums = int | tuple[int, ...]


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
        call = _Call(func, args, kwargs, argnums, has_aux)
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

    cotangents: gradients of the outputs, in their structure. With `has_aux`, `func` returns
    (output, aux), and the result is (output, vjp_fn, aux).
    """
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux)
    call.require_tensors("vjp(f, *primals)")

    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        return call.like_arguments(call.gradients(flatten(cotangents)[0]))

    output = call.settled(call.output)
    return (output, vjp_fn, call.settled(call.aux)) if has_aux else (output, vjp_fn)


def jvp(func: Func, primals: tuple[Any, ...], tangents: tuple[Any, ...], *, has_aux: bool = False) -> Any:
    """(func(*primals), the derivative of `func` at `primals` along `tangents`), by two reverse passes.

    With `has_aux`, `func` returns (output, aux), and the result is (output, derivative, aux).
    """
    for name, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, tuple):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {name} to be a tuple. E.g. it should be valid to call f(*primals)."
            )
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux)
    derivative = _Linear(call, "jvp(f, primals, tangents)")(tangents)
    output = call.settled(call.output)
    return (output, derivative, call.settled(call.aux)) if has_aux else (output, derivative)


def linearize(func: Func, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), jvp_fn): `jvp_fn(*tangents)` is the derivative of `func` at `primals` along `tangents`.

    For many tangents at one place: `func` is evaluated once.
    """
    call = _Call(func, primals, {}, tuple(range(len(primals))), False)
    linear = _Linear(call, "linearize(f, *primals)")

    def jvp_fn(*tangents: Any) -> Any:
        return linear(tangents)

    return call.settled(call.output), jvp_fn


class _Linear:
    """The derivative of an evaluation along any tangents: its reverse pass, differentiated once more by its seeds."""

    def __init__(self, call: _Call, name: str) -> None:
        self.call, self.name = call, name
        call.require_tensors(name)
        with enable_grad():
            self.seeds = [zeros_like(out).requires_grad_() for out in call.outputs]
            with transposing():
                self.back = call.gradients(self.seeds, create_graph=True)

    def __call__(self, tangents: tuple[Any, ...]) -> Any:
        call = self.call
        given, _ = flatten(tangents)
        if [t.shape for t in given] != [t.shape for t in call.inputs]:
            raise RuntimeError(
                f"{self.name}: Expected primals and tangents to have the same structure and shapes, got "
                f"{[tuple(t.shape) for t in call.inputs]} and {[tuple(t.shape) for t in given]}"
            )
        found = _grad(self.back, self.seeds, given, call.create_graph or any(t.requires_grad for t in given))
        return call.rebuild_output(found if call.recording else [t.detach() for t in found])


def jacrev(func: Func, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Func:
    """The function that computes the Jacobian of `func` in its arguments `argnums`, row by row.

    Output and argument of shapes S and T give S + T; trees of outputs, each a tree of arguments.
    chunk_size: accepted for PyTorch's sake; rows are computed one at a time.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, args, kwargs, argnums, has_aux)
        rows = [call.like_arguments(call.jacobian(i)) for i in range(len(call.outputs))]
        found = call.rebuild_output(rows)
        return (found, call.settled(call.aux)) if has_aux else found

    return wrapper


def jacfwd(func: Func, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Func:
    """The same as `jacrev`: there is no forward mode. randomness: accepted for PyTorch's sake."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Func, argnums: Argnums = 0) -> Func:
    """The function that computes the second derivatives of `func`: the Jacobian of its Jacobian."""
    return jacfwd(jacrev(func, argnums), argnums)


class _Call:
    """One evaluation of `func` on inputs of our own in place of the arguments `argnums`.

    recording: whether the caller records. create_graph: whether gradients are to be recorded.
    """

    def __init__(
        self, func: Func, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Argnums, has_aux: bool
    ) -> None:
        self.single = isinstance(argnums, int)
        places = (argnums,) if isinstance(argnums, int) else argnums
        for i in places:
            if not -len(args) <= i < len(args):
                raise RuntimeError(f"Got argnum={i}, but only {len(args)} positional inputs")
        self.recording = is_grad_enabled()
        leaves, self.rebuild_arguments = flatten(tuple(args[i] for i in places))
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise ValueError(
                    f"Thing passed to transform API must be Tensor, got {type(leaf)}; argnums says which arguments count"
                )
        with enable_grad():
            self.inputs = [_own(leaf, self.recording) for leaf in leaves]
            own = self.rebuild_arguments(self.inputs)
            changed = list(args)
            for i, value in zip(places, own, strict=True):
                changed[i] = value
            with entered(DERIVATIVE):
                result = func(*changed, **kwargs)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError("with has_aux=True the function must return a tuple (output, aux)")
        self.output, self.aux = result if has_aux else (result, None)
        self.outputs, self.rebuild_output = flatten(self.output)
        # Leaves of our own are not what others wait for.
        self.own = {id(t) for t in self.inputs if t.is_leaf}
        self.create_graph = self.recording and self._others_behind(self.outputs)

    def require_tensors(self, name: str) -> None:
        """`RuntimeError` where the function returned something else."""
        for out in self.outputs:
            if not isinstance(out, Tensor):
                raise RuntimeError(
                    f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(out)}"
                )

    def gradients(self, seeds: Sequence[Tensor] | None, create_graph: bool = False) -> list[Tensor]:
        """seeds . d outputs / d inputs."""
        wanted = create_graph or self.create_graph
        if self.recording and seeds is not None:
            wanted = wanted or any(t.requires_grad for t in seeds)
        return _grad(self.outputs, self.inputs, seeds, wanted)

    def jacobian(self, i: int) -> list[Tensor]:
        """The Jacobian of output `i` in every input."""
        out = self.outputs[i]
        if not isinstance(out, Tensor):
            raise RuntimeError(f"jacrev(f)(*args): Expected f(*args) to return Tensors, got {type(out)}")
        with enable_grad():
            return list(jacobian_of(out, self.inputs, self.create_graph))

    def like_arguments(self, values: Sequence[Any]) -> Any:
        """One value for each input, in the structure of the arguments `argnums`."""
        found = self.rebuild_arguments(values)
        return found[0] if self.single else found

    def settled(self, tree: Any) -> Any:
        """What `func` returned as the caller may have it: without history if that leads to our own inputs only."""
        leaves, rebuild = flatten(tree)
        return rebuild([
            t.detach() if isinstance(t, Tensor) and not (self.recording and self._others_behind([t])) else t
            for t in leaves
        ])  # fmt: skip

    def _others_behind(self, tensors: Sequence[Any]) -> bool:
        """Whether a leaf that is not our own takes part in `tensors`."""
        nodes = [edge_of(t)[0] for t in tensors if isinstance(t, Tensor) and t.requires_grad]
        seen = set(nodes)
        for node in nodes:  # grows while it is walked
            if isinstance(node, AccumulateGrad) and id(node.variable) not in self.own:
                return True
            for target, _ in () if node is None else node.edges:
                if target is not None and target not in seen:
                    seen.add(target)
                    nodes.append(target)
        return False


def _own(tensor: Tensor, recording: bool) -> Tensor:
    """A tensor for the function to see, in the graph of `tensor` if there is one."""
    if recording and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_()


def _grad(
    outputs: Sequence[Any], inputs: Sequence[Tensor], seeds: Sequence[Tensor] | None, create_graph: bool
) -> list[Tensor]:
    """Gradients; zeros where there is no way from an output to an input."""
    if seeds is not None and len(seeds) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} outputs and {len(seeds)} gradients of outputs (cotangents)")
    with enable_grad():
        return list(gradients(outputs, inputs, seeds, create_graph))
