"""`backward` and `grad`, the entry points of the engine; hooks on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ..backend.dtype import BY_NUMPY
from ..backend.registry import backend_for
from ..core.dispatching import is_told, telling
from ..core.errors import GraphError, warn_program
from ..core.modes import at_once, mapping, mode, refuse_at_once
from ..core.overrides import overridable
from ..core.size import contiguous_format
from ..core.tensor import Size, Tensor, wrap
from ..core.upcalls import seed_of_examples, tensor_vocabulary
from . import engine
from .accumulate import accumulator, edge_of
from .nodes import RETAIN, Edge, GradientEdge, RemovableHandle
from .walk import like_leaf_behind

Target = Tensor | GradientEdge
Targets = Target | Sequence[Target]


def _sequence(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) else tuple(value)


def _edge(target: Target) -> Edge:
    return edge_of(target) if isinstance(target, Tensor) else (target.node, target.output_nr)


def _kind(target: Target) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype (NumPy's) that the gradient of `target` has."""
    if isinstance(target, Tensor):
        return target._array.shape, target._array.dtype
    node, nr = target
    return (node.shape[nr], node.dtype[nr]) if node.outputs > 1 else (node.shape, node.dtype)


def _roots(
    tensors: Sequence[Target], grads: Any, retain_graph: bool = False
) -> tuple[list[Edge], list[Tensor]]:
    given = _sequence(grads) if grads is not None else (None,) * len(tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    edges, seeds = [], []
    for i, (t, g) in enumerate(zip(tensors, given, strict=True)):
        if isinstance(t, Tensor) and not t._requires_grad:
            raise GraphError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        shape, dtype = _kind(t)
        if g is None:
            if dtype.kind == "c":
                raise GraphError(
                    f"grad can be implicitly created only for real scalar outputs but got {dtype}. Give a gradient, or "
                    "take .abs(), .real or another real function first."
                )
            if math.prod(shape) != 1:
                raise GraphError(
                    f"grad can be implicitly created only for scalar outputs; this one has shape {list(shape)}. "
                    "Pass gradient=, or reduce it with .sum() or .mean() first."
                )
            g = _one(t)
        elif not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        elif g._array.shape != shape:
            raise GraphError(
                f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                f"{Size(shape)}."
            )
        elif (g._array.dtype.kind == "c") != (dtype.kind == "c"):
            raise GraphError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {BY_NUMPY[dtype]}."
            )
        edges.append(_edge(t))
        seeds.append(seed_of_examples(t, g, retain_graph) if mapping and at_once() else g)
    return edges, seeds


def _one(target: Target) -> Tensor:
    """The gradient of a scalar in itself."""
    if isinstance(target, Tensor):
        if telling and is_told((target,), {}):
            return tensor_vocabulary().full_like(target, 1)
        return wrap(backend_for(target._array).full_like(target._array, 1))
    shape, dtype = _kind(target)
    return like_leaf_behind(target.node, shape, 1, dtype)


@overridable
def backward(
    tensors: Targets,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves, or only of `inputs`, leaves or not.

    grad_tensors: the gradients to start from; ones for scalars; grad_variables is their former name. create_graph:
    record the gradients' own history, for higher derivatives. Source: torch.autograd.backward.
    """
    if grad_variables is not None:
        warn_program("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only use "
                "`grad_tensors`."
            )
        grad_tensors = grad_variables
    if mapping:
        refuse_at_once()
    wanted = None
    if inputs is not None:
        targets = _sequence(inputs)
        if not targets:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        for t in targets:
            if isinstance(t, Tensor):
                _must_require_grad(t)
                retain_grad(t)
        wanted = [_edge(t) for t in targets]
    edges, seeds = _roots(_sequence(tensors), grad_tensors)
    if create_graph:
        warn_program(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
            "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If "
            "you have to use this function, make sure to reset the .grad fields of your parameters to None after use to "
            "break the cycle and avoid the leak."
        )
    if mode.stand_in:
        seeds = [wrap(backend_for(g._array).full_like(g._array, 0)) for g in seeds]
    retain = create_graph if retain_graph is None else retain_graph
    engine.run(edges, seeds, retain_graph=retain, create_graph=create_graph, inputs=wanted)


@overridable
def grad(
    outputs: Targets,
    inputs: Targets,
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
        warn_program(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for other "
            "parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
        )
    sources, wanted = _sequence(outputs), _sequence(inputs)
    if is_grads_batched:
        return _batched(
            sources,
            wanted,
            (None,) if grad_outputs is None else _sequence(grad_outputs),
            create_graph,
            allow_unused,
            materialize_grads,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    for t in wanted:
        if isinstance(t, Tensor):
            _must_require_grad(t)
    retain = create_graph if retain_graph is None else retain_graph
    edges, seeds = _roots(sources, grad_outputs, retain)
    found = engine.run(
        edges,
        seeds,
        # The examples of a vmap go through one graph, which is freed after the last.
        retain_graph=retain or any(level.more for level in mode.levels),
        create_graph=create_graph,
        inputs=[_edge(t) for t in wanted],
        accumulate=False,
    )
    for i, g in enumerate(found):
        if g is None:
            if materialize_grads:
                unused = wanted[i]
                if not isinstance(unused, Tensor):
                    raise RuntimeError(
                        "materialize_grads cannot be used when the given input is a GradientEdge"
                    )
                zeros = wrap(backend_for(unused._array).full_like(unused._array, 0))
                found[i] = zeros.requires_grad_(create_graph)
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
    sources: Sequence[Target],
    wanted: Sequence[Target],
    batches: Sequence[Tensor | None],
    create_graph: bool,
    allow_unused: bool | None,
    materialize: bool,
) -> tuple[Tensor | None, ...]:
    """Gradients for every row of the first dimension of `batches`, stacked. A loop."""
    given: list[Tensor] = []
    for i, (t, b) in enumerate(zip(sources, batches, strict=True)):
        shape = _kind(t)[0]
        if b is None:
            raise RuntimeError(
                f"If `is_grads_batched=True`, every grad_outputs must be given; number {i} is None."
            )
        if b.ndim == 0 or b._array.shape[1:] != shape:
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. "
                f"The sizes of the remaining dimensions are expected to match the shape of corresponding output, but a "
                f"mismatch was detected: grad_output[{i}] has a shape of {b.shape} and output[{i}] has a shape of "
                f"{Size(shape)}."
            )
        given.append(b)
    rows = [
        grad(
            sources,
            wanted,
            [b[i] for b in given],
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize,
        )
        for i in range(given[0].shape[0])
    ]
    if not rows:
        zeros = tensor_vocabulary().new_zeros
        return tuple(zeros(given[0], (0, *_kind(x)[0])) for x in wanted)
    stack = tensor_vocabulary().stack
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

    def keep(g: Tensor | None) -> None:
        tensor = owner()
        if tensor is not None and g is not None:
            # A copy: others have what is passed on here, and what is written to `.grad` later is not for them.
            tensor._grad = (
                g.clone(memory_format=contiguous_format) if tensor._grad is None else tensor._grad + g
            )

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
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def grad_fn(self: Tensor) -> Any:
    """The node that made this tensor; None for a leaf."""
    edge_of(self)
    return None if self._grad_fn is None else self._grad_fn.shown()


__all__ = ["accumulator", "backward", "grad"]


def volatile(tensor: Tensor) -> bool:
    """`tensor.volatile`, which old programs set where they now say `no_grad`: always False."""
    warn_program("volatile was removed (Variable.volatile is always False)")
    return False
