"""One evaluation of a function on inputs of our own, from which the transforms take derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import Tensor, enable_grad, eye, is_grad_enabled, zeros, zeros_like
from ..autograd.accumulate import AccumulateGrad, edge_of
from ..autograd.forward_ad import recorded
from ..autograd.functional import gradients, jacobian_of
from ..autograd.graph import get_gradient_edge
from ..autograd.nodes import GradientEdge
from ..autograd.own_tangents import transposing
from .levels import DERIVATIVE, Derivative, entered
from .trees import flatten
from .vmap import vmap

Func = Callable[..., Any]
Argnums = int | tuple[int, ...]

_ENDED = "_transform_ended"
"""The attribute of a leaf that a transform has made, when its function has been evaluated: nobody waits for its gradient."""


class Call:
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
        level: Derivative = DERIVATIVE,
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
            anchor = zeros((), requires_grad=True)
            self.inputs = [recorded(x, anchor) if duals else _own(x, self.recording) for x in leaves]
            # Leaves of our own are not what others wait for.
            ours = [t for t in (*self.inputs, anchor) if t.is_leaf]
            # The function may write to the inputs, which gives them another place.
            self.edges = [get_gradient_edge(t) for t in self.inputs]
            own = self.rebuild_arguments(self.inputs)
            changed = list(args)
            for i, value in zip(places, own, strict=True):
                changed[i] = value
            with entered(level):
                result = func(*changed, **kwargs)
        for leaf in ours:
            setattr(leaf, _ENDED, True)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                "output of function f should be a tuple: (output, aux) if has_aux is True: with has_aux=True the function "
                "must return a tuple (output, aux)"
            )
        self.has_aux = has_aux
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

    def require_numbers(self, name: str) -> None:
        """As `require_tensors`, and `RuntimeError` for outputs that have no gradient."""
        self.require_tensors(name)
        for out in self.outputs:
            if out.dtype.category < 2:
                raise RuntimeError(
                    f"{name}: All outputs of f must be floating-point or complex Tensors, got Tensor with dtype {out.dtype}"
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

    def jacobian(self, i: int, chunk_size: int | None = None) -> list[Tensor]:
        """The Jacobian of output `i` in every input, `chunk_size` rows at once."""
        out = self.outputs[i]
        if not isinstance(out, Tensor):
            raise RuntimeError(f"jacrev(f)(*args): Expected f(*args) to return Tensors, got {type(out)}")
        with enable_grad():
            if not out.numel() or not out.requires_grad:
                return list(jacobian_of(out, self.inputs, self.create_graph))
            rows = _for_each(
                lambda unit: gradients((out,), self.inputs, (unit,), self.create_graph),
                _units(out),
                chunk_size,
            )
        return [row.reshape((*out.shape, *x.shape)) for row, x in zip(rows, self.inputs, strict=True)]

    def matrices(self, rows: Sequence[Sequence[Tensor]]) -> Any:
        """What a Jacobian returns: of one block for each output and input, in the structures of both."""
        found = self.rebuild_output([self.like_arguments(row) for row in rows])
        return (found, self.settled(self.aux)) if self.has_aux else found

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


class Linear:
    """The derivative of an evaluation along any tangents: its reverse pass, differentiated once more by its seeds."""

    def __init__(self, call: Call, name: str, strict: bool = False) -> None:
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
        return self.call.rebuild_output(self._moved(self.back, flatten(tangents)[0]))

    def columns(self, k: int) -> list[Tensor]:
        """The Jacobian of every output in input `k`."""
        outputs, shape = self.call.outputs, self.call.inputs[k].shape
        if not self.back[k].numel():
            return [out.new_zeros((*out.shape, *shape)) for out in outputs]
        columns = _for_each(lambda unit: self._moved([self.back[k]], [unit]), _units(self.back[k]))
        return [
            column.movedim(0, -1).reshape((*out.shape, *shape))
            for column, out in zip(columns, outputs, strict=True)
        ]

    def _moved(self, back: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        """How each output moves as the inputs whose gradients are `back` move along what is given."""
        call = self.call
        create_graph = call.create_graph or any(t.requires_grad for t in given)
        found = iter(_grad(back, self.seeds, given, create_graph, self.independent))
        moved = [
            next(found) if moves else zeros_like(out)
            for out, moves in zip(call.outputs, self.moving, strict=True)
        ]
        return moved if call.recording and is_grad_enabled() else [t.detach() for t in moved]


def _units(like: Tensor) -> Tensor:
    """For each element of `like` zeros of its shape, but for a 1 there."""
    size = like.numel()
    return eye(size, dtype=like.dtype, device=like.device).reshape(size, *like.shape)


def _for_each(
    function: Callable[[Tensor], Sequence[Tensor]], seeds: Tensor, chunk_size: int | None = None
) -> list[Tensor]:
    """What `function` returns for each of `seeds`, stacked."""
    return list(vmap(lambda seed: tuple(function(seed)), chunk_size=chunk_size)(seeds))
