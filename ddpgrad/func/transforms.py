"""`grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, `hessian`: derivatives as functions, which nest.

A transform gives the function inputs of its own. Their gradients are recorded in turn only
where something else that requires a gradient takes part: an input of an enclosing transform,
a parameter that the function closes over. Otherwise results are plain tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor, enable_grad, is_grad_enabled, zeros, zeros_like
from ..autograd.accumulate import AccumulateGrad, edge_of
from ..autograd.forward_ad import recorded
from ..autograd.functional import gradients, jacobian_of
from ..autograd.graph import get_gradient_edge
from ..autograd.nodes import GradientEdge
from ..autograd.own_tangents import transposing
from .levels import DERIVATIVE, entered
from .trees import alike, flatten, outline

Func = Callable[..., Any]
_ENDED = "_transform_ended"
"""The attribute of a leaf that a transform has made, when its function has been evaluated: nobody waits for its gradient."""
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

    cotangents: gradients of the outputs, in their structure. `vjp_fn` also takes `retain_graph=True`; False frees what
    it needs, so that it can not be called again. With `has_aux`, `func` returns (output, aux), and the result is
    (output, vjp_fn, aux).
    """
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux)
    call.require_tensors("vjp(f, *primals)")

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
    call = _Call(func, primals, {}, tuple(range(len(primals))), has_aux, duals=True)
    derivative = _Linear(call, name, strict)(tangents)
    output = call.settled(call.output)
    return (output, derivative, call.settled(call.aux)) if has_aux else (output, derivative)


def linearize(func: Func, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), jvp_fn): `jvp_fn(*tangents)` is the derivative of `func` at `primals` along `tangents`.

    For many tangents at one place: `func` is evaluated once.
    """
    name = "linearize(f, *primals)"
    call = _Call(func, primals, {}, tuple(range(len(primals))), False, duals=True)
    linear = _Linear(call, name)

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
            f"{name}: Expected primals and tangents of the same shapes, got {shapes[0]} and {shapes[1]}"
        )


class _Linear:
    """The derivative of an evaluation along any tangents: its reverse pass, differentiated once more by its seeds."""

    def __init__(self, call: _Call, name: str, strict: bool = False) -> None:
        self.call = call
        call.require_tensors(name)
        constant = (
            f"{name}: The output of f is independent of the inputs. This is not allowed with strict=True."
        )
        self.independent = (lambda i: constant) if strict else None
        self.moving = [out.requires_grad for out in call.outputs]
        if strict and not all(self.moving):
            raise RuntimeError(constant)
        with enable_grad():
            self.seeds = [zeros_like(out).requires_grad_() for out in call.outputs if out.requires_grad]
            with transposing():
                self.back = call.gradients(self.seeds, create_graph=True)

    def __call__(self, tangents: tuple[Any, ...]) -> Any:
        call = self.call
        given, _ = flatten(tangents)
        create_graph = call.create_graph or any(t.requires_grad for t in given)
        found = iter(_grad(self.back, self.seeds, given, create_graph, self.independent))
        columns = [
            next(found) if moves else zeros_like(out)
            for out, moves in zip(call.outputs, self.moving, strict=True)
        ]
        recording = call.recording and is_grad_enabled()
        return call.rebuild_output(columns if recording else [t.detach() for t in columns])


def jacrev(func: Func, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Func:
    """The function that computes the Jacobian of `func` in its arguments `argnums`, row by row.

    Output and argument of shapes S and T give S + T; trees of outputs, each a tree of arguments.
    chunk_size: accepted for PyTorch's sake; rows are computed one at a time.
    """
    return _jacobian("jacrev", "vjp(f, *primals)", func, argnums, has_aux, chunk_size)


def jacfwd(func: Func, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Func:
    """The same as `jacrev`: there is no forward mode. randomness: accepted for PyTorch's sake."""
    return _jacobian("jacfwd", "jvp(f, primals, tangents)", func, argnums, has_aux)


def _jacobian(
    name: str, inner: str, func: Func, argnums: Argnums, has_aux: bool, chunk_size: int | None = None
) -> Func:
    """`jacrev` by its `name`. inner: the transform that PyTorch's consists of, which errors name."""
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"{name}: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _refuse_complex(name, "inputs", args)
        call = _Call(func, args, kwargs, argnums, has_aux)
        call.require_tensors(inner)
        _refuse_complex(name, "outputs", call.output)
        rows = [call.like_arguments(call.jacobian(i)) for i in range(len(call.outputs))]
        found = call.rebuild_output(rows)
        return (found, call.settled(call.aux)) if has_aux else found

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


class _Call:
    """One evaluation of `func` on inputs of our own in place of the arguments `argnums`.

    duals: our own inputs may be written to. recording: whether the caller records.
    create_graph: whether gradients are to be recorded.
    """

    def __init__(
        self,
        func: Func,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: Argnums,
        has_aux: bool,
        *,
        duals: bool = False,
    ) -> None:
        self.single = isinstance(argnums, int)
        places = _places(argnums, len(args))
        self.recording = is_grad_enabled()
        leaves, self.rebuild_arguments = flatten(tuple(args[i] for i in places))
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                raise ValueError(
                    f"Thing passed to transform API must be Tensor, got {type(leaf)}; argnums says which arguments count"
                )
        with enable_grad():
            anchor = zeros(()).requires_grad_()
            self.inputs = [recorded(x, anchor) if duals else _own(x, self.recording) for x in leaves]
            # Leaves of our own are not what others wait for.
            ours = [t for t in (*self.inputs, anchor) if t.is_leaf]
            # The function may write to the inputs, which gives them another place.
            self.edges = [get_gradient_edge(t) for t in self.inputs]
            own = self.rebuild_arguments(self.inputs)
            changed = list(args)
            for i, value in zip(places, own, strict=True):
                changed[i] = value
            with entered(DERIVATIVE):
                result = func(*changed, **kwargs)
        for leaf in ours:
            setattr(leaf, _ENDED, True)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                "output of function f should be a tuple: (output, aux) if has_aux is True: with has_aux=True the function "
                "must return a tuple (output, aux)"
            )
        self.output, self.aux = result if has_aux else (result, None)
        for leaf in flatten(self.aux)[0] if has_aux else ():
            if not isinstance(leaf, Tensor):
                raise RuntimeError(f"aux of function f: Expected tensors, got unsupported type {type(leaf)}")
        self.outputs, self.rebuild_output = flatten(self.output)
        self.create_graph = self.recording and self._others_behind(self.outputs)

    def require_tensors(self, name: str) -> None:
        """`RuntimeError` where the function returned nothing, or something else."""
        if not self.outputs:
            raise RuntimeError(
                f"{name}: Expected f to be a function that has non-empty output (got output = {self.output})"
            )
        for out in self.outputs:
            if not isinstance(out, Tensor):
                raise RuntimeError(
                    f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(out)}"
                )

    def gradients(
        self, seeds: Sequence[Tensor] | None, create_graph: bool = False, retain_graph: bool = True
    ) -> list[Tensor]:
        """seeds . d outputs / d inputs, for outputs that require a gradient."""
        wanted = create_graph
        if self.recording and is_grad_enabled():
            wanted = wanted or self.create_graph or any(t.requires_grad for t in seeds or ())
        outputs = self.outputs
        if seeds is not None and len(seeds) < len(outputs):
            outputs = [out for out in outputs if out.requires_grad]
        return _grad(outputs, self.inputs, seeds, wanted, None, self.edges, retain_graph)

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
            if isinstance(node, AccumulateGrad) and not hasattr(node.variable, _ENDED):
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


def _places(argnums: Argnums, count: int) -> tuple[int, ...]:
    """Which of `count` arguments `argnums` says, counted from 0. `RuntimeError` where it says that of none, or twice."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(i, int):
            raise RuntimeError(f"argnum must be int, got: {type(i)}")
        if not -count <= i < count:
            raise RuntimeError(f"Got argnum={i}, but only {count} positional inputs")
    found = tuple(i % count for i in ((argnums,) if isinstance(argnums, int) else argnums))
    if not found:
        raise RuntimeError("argnums must be non-empty")
    if len(set(found)) < len(found):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return found


def _grad(
    outputs: Sequence[Any],
    inputs: Sequence[Tensor],
    seeds: Sequence[Tensor] | None,
    create_graph: bool,
    independent: Callable[[int], str] | None = None,
    edges: Sequence[GradientEdge] | None = None,
    retain_graph: bool = True,
) -> list[Tensor]:
    """Gradients; zeros, or the error `independent(i)`, where there is no way from an output to an input."""
    if seeds is not None and len(seeds) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} outputs and {len(seeds)} gradients of outputs (cotangents)")
    with enable_grad():
        return list(gradients(outputs, inputs, seeds, create_graph, independent, edges, retain_graph))
