"""`backward` and `grad`: how users start a walk of the engine. Hooks on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from .._tensor import Tensor, wrap
from ..backend.registry import backend_for
from ..errors import GraphError
from . import engine
from .accumulate import accumulator, edge_of
from .graph import RETAIN, Edge, RemovableHandle

Tensors = Tensor | Sequence[Tensor]


def _sequence(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Tensor) or value is None else tuple(value)


def _roots(tensors: Sequence[Tensor], grads: Any) -> tuple[list[Edge], list[Tensor]]:
    given = _sequence(grads) if grads is not None else (None,) * len(tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    edges, seeds = [], []
    for i, (t, g) in enumerate(zip(tensors, given, strict=True)):
        if not t._requires_grad:
            raise GraphError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if t._array.size != 1:
                raise GraphError(
                    f"grad can be implicitly created only for scalar outputs; this one has shape {list(t.shape)}. "
                    "Pass gradient=, or reduce it with .sum() or .mean() first."
                )
            g = wrap(backend_for(t._array).full_like(t._array, 1))
        elif not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        elif g._array.shape != t._array.shape:
            raise GraphError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}."
            )
        edges.append(edge_of(t))
        seeds.append(g)
    return edges, seeds


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves, or only of `inputs`, leaves or not.

    grad_tensors: the gradients to start from; ones for scalars. create_graph: record the
    gradients' own history, for higher derivatives. Source: torch.autograd.backward.
    """
    wanted = None
    if inputs is not None:
        targets = _sequence(inputs)
        if not targets:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        for t in targets:
            _must_require_grad(t)
            retain_grad(t)
        wanted = [edge_of(t) for t in targets]
    edges, seeds = _roots(_sequence(tensors), grad_tensors)
    retain = create_graph if retain_graph is None else retain_graph
    engine.run(edges, seeds, retain_graph=retain, create_graph=create_graph, inputs=wanted)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, one for each; `.grad` is not touched.

    allow_unused: None instead of an error for an input that the outputs do not depend on.
    is_grads_batched: the first dimension of each `grad_outputs` counts independent gradients.
    Source: torch.autograd.grad.
    """
    if not only_inputs:
        raise ValueError(
            "only_inputs argument is deprecated and must be True; use backward() to fill all leaves"
        )
    sources, wanted = _sequence(outputs), _sequence(inputs)
    if is_grads_batched:
        return _batched(
            sources, wanted, _sequence(grad_outputs), create_graph, allow_unused, materialize_grads
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    for t in wanted:
        _must_require_grad(t)
    edges, seeds = _roots(sources, grad_outputs)
    found = engine.run(
        edges,
        seeds,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        inputs=[edge_of(t) for t in wanted],
        accumulate=False,
    )
    for i, g in enumerate(found):
        if g is None:
            if materialize_grads:
                found[i] = wrap(backend_for(wanted[i]._array).full_like(wanted[i]._array, 0))
            elif not allow_unused:
                raise GraphError(
                    f"One of the differentiated Tensors appears to not have been used in the graph (inputs[{i}], shape "
                    f"{list(wanted[i].shape)}). Set allow_unused=True if this is the desired behavior."
                )
    return tuple(found)


def _must_require_grad(tensor: Tensor) -> None:
    if not tensor._requires_grad:
        raise GraphError(
            f"One of the differentiated Tensors does not require grad (shape {list(tensor.shape)}). Call "
            "requires_grad_() on it before it is used."
        )


def _batched(
    sources: Sequence[Tensor],
    wanted: Sequence[Tensor],
    batches: Sequence[Tensor],
    create_graph: bool,
    allow_unused: bool | None,
    materialize: bool,
) -> tuple[Tensor | None, ...]:
    from ..ops.shape import stack

    rows = [
        grad(
            sources,
            wanted,
            [b[i] for b in batches],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize,
        )
        for i in range(batches[0].shape[0])
    ]
    return tuple(None if column[0] is None else stack(list(column), 0) for column in zip(*rows, strict=True))


# -- hooks on tensors ------------------------------------------------------------------------


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call `hook(grad)` whenever the gradient of this tensor is computed; a result replaces it."""
    if not self._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node, nr = edge_of(self)  # makes a view's history again where it is out of date
    if self._grad_fn is None:
        if self._hooks is None:
            self._hooks = {}
        hooks = self._hooks
    else:
        assert node is not None
        hooks = node.tensor_hooks(nr)
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Call `hook(param)` after a gradient was added to this leaf's `.grad`."""
    if not self._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self._grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self._post_accumulate_hooks is None:
        self._post_accumulate_hooks = {}
    handle = RemovableHandle(self._post_accumulate_hooks)
    self._post_accumulate_hooks[handle.id] = hook
    return handle


def retain_grad(self: Tensor) -> None:
    """Keep `.grad` of this non-leaf tensor as well."""
    if not self._requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self._grad_fn is None or self._retains_grad:
        return
    self._retains_grad = True
    owner = ref(self)

    def keep(g: Tensor) -> None:
        tensor = owner()
        if tensor is not None:
            tensor._grad = g if tensor._grad is None else tensor._grad + g

    node, nr = edge_of(self)
    assert node is not None
    node.tensor_hooks(nr)[RETAIN] = keep


def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradient of this tensor to the `.grad` of the leaves; see `autograd.backward`."""
    backward(self, gradient, retain_graph, create_graph, inputs)


def grad_fn(self: Tensor) -> Any:
    """The node that made this tensor; None for a leaf."""
    edge_of(self)
    return self._grad_fn


__all__ = ["accumulator", "backward", "grad"]
