"""The declaration of an op: its signature, gradient rules, samples and reference in one place.

    @primitive(
        grads={
            "input": lambda F, g, other: g * other,
            "other": lambda F, g, input: g * input,
        },
        samples=pairs, reference=np.multiply,
    )
    def mul(F, input: TensorLike, other: TensorLike) -> Tensor:
        '''Elementwise product, with broadcasting.'''
        ...

The decorated name becomes the public function on Tensors (without `F`). `@primitive` has no
body: each backend has a kernel of that name. `@op` has a body over the vocabulary `F`, which
runs on raw arrays and which a backend may replace by a faster kernel of that name.
`@composite` is a function over `F` that gradient rules call: on Tensors it runs as the ops
that it is made of (and so has a gradient), on arrays as one kernel where there is one.

A gradient rule takes `F`, the gradient `g` of the output, and then, by name, what it needs:
parameters, `out` (the output), `input_shape` (the shape of the parameter `input`, without the
array), or names listed in `extras` (further results of the forward that users do not see). What no rule names is not kept. It returns the gradient of one input,
broadcast or in another dtype as it may be: the engine undoes both. Where the gradients of
several inputs share work, `joint` is one rule that takes `needs` (a bool per tensor input)
as well and returns all of them. Rules are written once and run on arrays and on Tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from ..autograd.grad_mode import mode
from ..autograd.views import remember_plain_view
from ..backend.registry import KernelByArray, backend_for, register_body
from ..tensor import Tensor, View, wrap
from .explain import explain
from .node import OpNode, record, record_pointwise
from .promotion import promote

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[..., Any]
# (arguments, keyword arguments) of a sample call, with NumPy arrays for tensors.
Sample = tuple[tuple[Any, ...], dict[str, Any]]
TensorLike = Tensor | bool | int | float | complex

# PyTorch takes NumPy's names of these arguments too.
_NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}

OPS: dict[str, Op] = {}
"""Every op by name: the op table."""

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name, on Tensors."""


class Op:
    """One operation. `call` is the public function."""

    __slots__ = (
        "name", "signature", "params", "defaults", "varargs", "tensors", "sequence", "rules", "joint", "keep",
        "pick", "view", "promotion", "promoted", "adapt", "outputs", "extras", "differentiable", "grad_name",
        "kernels", "call", "samples", "reference", "method", "aliases", "doc", "keeps_out", "kept_inputs", "watched", "frees",
        "kept_tensors", "shapes", "tolerance", "keeps_input", "keeps_other",
    )  # fmt: skip

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.doc = function.__doc__ or ""
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1:]  # without F
        self.signature = signature.replace(parameters=parameters)
        self.params = tuple(p.name for p in parameters)
        self.defaults = tuple(p.default for p in parameters)
        self.varargs = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
        annotations = [str(p.annotation) for p in parameters]
        self.sequence = bool(annotations) and "Sequence[Tensor]" in annotations[0]
        self.tensors = tuple(i for i, a in enumerate(annotations) if "Tensor" in a)
        self.kernels = KernelByArray(name)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument in its place, defaults filled in; `TypeError` as for any function."""
        if self.varargs is not None:
            split = self.varargs
            rest, args = args[split:], args[:split]
            name = self.params[split]
            if name in kwargs:
                rest = (kwargs.pop(name),)
            bound = self._fill(args, kwargs, skip=split)
            bound[split] = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
            return tuple(bound)
        if len(args) > len(self.params):
            raise TypeError(f"{self.name}() takes at most {len(self.params)} arguments, got {len(args)}")
        return tuple(self._fill(args, kwargs))

    def _fill(self, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int | None = None) -> list[Any]:
        bound = list(args)
        for i in range(len(args), len(self.params)):
            name = self.params[i]
            if _NUMPY_NAMES.get(name) in kwargs:
                kwargs[name] = kwargs.pop(_NUMPY_NAMES[name])
            if i == skip:
                bound.append(())
            elif name in kwargs:
                bound.append(kwargs.pop(name))
            elif self.defaults[i] is not inspect.Parameter.empty:
                bound.append(self.defaults[i])
            else:
                raise TypeError(f"{self.name}() missing required argument '{name}'")
        if kwargs:
            known = ", ".join(self.params)
            raise TypeError(f"{self.name}() got an unexpected or repeated argument '{next(iter(kwargs))}'; it has ({known})")
        return bound

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"


def _declare(
    function: Callable[..., Any],
    body: Callable[..., Any] | None,
    *,
    grads: Mapping[str, Rule] | None = None,
    joint: Rule | None = None,
    samples: Callable[[Any], Iterable[Sample]] | None = None,
    reference: Callable[..., Any] | None = None,
    view: bool = False,
    promotion: str | None = None,
    promoted: Sequence[str] | None = None,
    adapt: Callable[..., tuple[Any, ...]] | None = None,
    outputs: int = 1,
    extras: Sequence[str] = (),
    differentiable: int = 1,
    grad_name: str | None = None,
    method: bool = True,
    aliases: Sequence[str] = (),
    tolerance: float = 1.0,
) -> Callable[..., Any]:
    op = Op(function.__name__, function)
    op.view, op.promotion, op.adapt = view, promotion, adapt
    op.promoted = op.tensors if promoted is None else tuple(op.params.index(n) for n in promoted)
    op.outputs, op.extras, op.differentiable = outputs, tuple(extras), differentiable
    op.grad_name = grad_name or "".join(part.capitalize() for part in op.name.split("_")) + "Backward0"
    op.samples, op.reference, op.method, op.aliases = samples, reference, method, tuple(aliases)
    op.tolerance = tolerance
    _set_rules(op, grads or {}, joint)
    if body is not None:
        register_body(op.name, body if op.varargs is None else _unpacking(body))
    if not outputs > 1 and not extras and adapt is None and op.varargs is None and not op.sequence and not view:
        if op.tensors == (0,) == tuple(range(len(op.params))):
            op.call = _unary(op)
        elif op.tensors == (0, 1) == tuple(range(len(op.params))):
            op.call = _binary(op)
        else:
            op.call = _general(op)
    else:
        op.call = _general(op)
    op.call.__name__ = op.call.__qualname__ = op.name
    op.call.__doc__ = op.doc
    op.call.__dict__["op"] = op
    for name in (op.name, *op.aliases):
        OPS[name] = op
    return op.call


def _unpacking(body: Callable[..., Any]) -> Callable[..., Any]:
    """Kernels take what users pass as `*sizes` in one tuple."""

    def unpacked(F: Any, input: Any, values: Sequence[Any]) -> Any:
        return body(F, input, *values)

    unpacked.__name__ = body.__name__
    return unpacked


def primitive(**options: Any) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]:
    """Declare an op whose kernel each backend has under the same name."""
    return lambda function: _declare(function, None, **options)


def op(**options: Any) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]:
    """Declare an op by a portable body over the vocabulary."""
    return lambda function: _declare(function, function, **options)


def composite(function: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
    """Declare a function over the vocabulary that rules may call; differentiable as its parts are."""
    from .vocabulary import VOCABULARY

    register_body(function.__name__, function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(VOCABULARY, *args, **kwargs)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    COMPOSITES[function.__name__] = call
    return call


# -- gradient rules ------------------------------------------------------------------------


def _set_rules(op: Op, grads: Mapping[str, Rule], joint: Rule | None) -> None:
    """Work out what the rules need by their parameter names, and bind them to what is kept."""
    names: list[str] = []
    skipped = 3 if joint is not None else 2  # F, g and, for a joint rule, needs
    for rule in [joint] if joint is not None else grads.values():
        for name in list(inspect.signature(rule).parameters)[skipped:]:  # type: ignore[arg-type]
            if name not in names:
                names.append(name)
    op.shapes = tuple(i for i in op.tensors if f"{op.params[i]}_shape" in names)
    known = (*op.params, "out", *op.extras, *(f"{op.params[i]}_shape" for i in op.shapes))
    for name in [*names, *grads]:
        if name not in known:
            raise TypeError(f"op {op.name}: a gradient rule names '{name}', which is none of {', '.join(known)}")
    op.keep = tuple(names)
    op.keeps_out = "out" in names
    # Positions in (arguments..., out, extras..., shapes...), the tuple that `record` picks from.
    op.pick = _picker([known.index(n) for n in names])
    op.kept_tensors = tuple((i, op.tensors.index(op.params.index(n))) for i, n in enumerate(names)
                            if n in op.params and op.params.index(n) in op.tensors)  # fmt: skip
    op.kept_inputs = tuple(i for i in op.tensors if op.params[i] in names)
    op.keeps_input, op.keeps_other = 0 in op.kept_inputs, 1 in op.kept_inputs
    # Other arguments that are kept and may hold tensors, such as indices.
    op.watched = tuple(
        i for i, p in enumerate(op.signature.parameters.values())
        if p.name in names and i not in op.tensors and str(p.annotation) == "Any"
    )  # fmt: skip
    op.frees = bool(op.kept_inputs or op.watched or op.keeps_out or any(n in op.extras for n in names))
    op.joint = None
    op.rules = ()
    if joint is not None:
        op.joint = joint
    elif grads:
        op.rules = tuple(
            _bind_rule(grads[op.params[i]], names) if op.params[i] in grads else None for i in op.tensors
        )


def _picker(positions: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if not positions:
        return lambda values: ()
    if len(positions) == 1:
        i = positions[0]
        return lambda values: (values[i],)
    return itemgetter(*positions)


def _bind_rule(rule: Rule, names: list[str]) -> Rule:
    """`rule` as a function of (F, g, kept values)."""
    positions = [names.index(n) for n in list(inspect.signature(rule).parameters)[2:]]
    if not positions:
        return lambda F, g, kept: rule(F, g)
    if len(positions) == 1:
        i = positions[0]
        return lambda F, g, kept: rule(F, g, kept[i])
    if len(positions) == 2:
        i, j = positions
        return lambda F, g, kept: rule(F, g, kept[i], kept[j])
    pick = itemgetter(*positions)
    return lambda F, g, kept: rule(F, g, *pick(kept))


# -- calls ---------------------------------------------------------------------------------


def _unary(op: Op) -> Callable[..., Any]:
    """The public function of an op of one tensor and nothing else."""
    kernels = op.kernels
    general = _general(op)
    needs_float = op.promotion == "float"
    differentiable = bool(op.rules) or op.joint is not None

    def call(input: Any) -> Any:
        try:
            a = input._array
        except AttributeError:
            return general(input)
        if needs_float and a.dtype.kind != "f":
            return general(input)
        try:
            result = kernels[a.__class__](a)
        except Exception as error:
            raise explain(op, (input,), error) from error
        if result.__class__ is not a.__class__:
            result = backend_for(a).asarray(result)
        out = wrap(result)
        if input._requires_grad and mode.enabled and differentiable:
            record_pointwise(op, input, None, a, None, out, False)
        return out

    return call


def _binary(op: Op) -> Callable[..., Any]:
    """The public function of an op of two tensors or numbers and nothing else."""
    kernels = op.kernels
    general = _general(op)
    needs_float = op.promotion == "float"
    differentiable = bool(op.rules) or op.joint is not None

    def call(input: Any, other: Any) -> Any:
        try:
            a = input._array
        except AttributeError:
            return general(input, other)
        dtype = a.dtype
        kind = other.__class__
        if kind is float or kind is int:
            # A number does not change the type of a floating-point array.
            if dtype.kind != "f":
                return general(input, other)
            b = other
            other = None
        else:
            try:
                b = other._array
            except AttributeError:
                return general(input, other)
            if b.dtype is not dtype or b.__class__ is not a.__class__ or (needs_float and dtype.kind != "f"):
                return general(input, other)
        try:
            result = kernels[a.__class__](a, b)
        except Exception as error:
            raise explain(op, (input, other), error) from error
        if result.__class__ is not a.__class__:
            result = backend_for(a).asarray(result)
        out = wrap(result)
        if (input._requires_grad or (other is not None and other._requires_grad)) and mode.enabled and differentiable:
            record_pointwise(op, input, other, a, b, out, True)
        return out

    return call


def _general(op: Op) -> Callable[..., Any]:
    """The public function of any op."""
    kernels = op.kernels
    complete = len(op.params) if op.varargs is None else -1
    tensors, adapt, sequence = op.tensors, op.adapt, op.sequence
    multiple = op.outputs > 1 or bool(op.extras)
    visible = op.outputs
    differentiable = bool(op.rules) or op.joint is not None
    watch = op.watched

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != complete:
            args = op.bind(args, kwargs)
        watched = versions_of([args[i] for i in watch]) if watch and mode.enabled else ()
        if adapt is not None:
            args = adapt(*args)
        given = tuple(args[0]) if sequence else tuple([args[i] for i in tensors])
        raw = list(args)
        if op.promotion is not None:
            promote(op, given, raw)
        elif sequence:
            raw[0] = [_array(op, t) for t in given]
        else:
            for i in tensors:
                value = raw[i]
                if isinstance(value, Tensor):
                    raw[i] = value._array
                elif value is not None and not isinstance(value, (bool, int, float, complex)):
                    raw[i] = _array(op, value)
        first = raw[0][0] if sequence else _first_array(op, raw)
        try:
            result = kernels[first.__class__](*raw)
        except Exception as error:
            raise explain(op, args, error) from error
        if multiple:
            result, *more = result
        else:
            more = []
        # A scalar of NumPy's becomes an array; what was moved to another device is one already.
        if result.__class__ is not first.__class__ and isinstance(result, np.generic):
            result = backend_for(first).asarray(result)
        out = wrap(result)
        if op.view:
            _mark_view(op, given[0], out, args)
        if mode.enabled and differentiable:
            for t in given:
                if isinstance(t, Tensor) and t._requires_grad:
                    if op.differentiable > 1:
                        outs = [out, *(wrap(backend_for(first).asarray(m)) for m in more)]
                        record(op, given, tuple(raw), out, (), outs, watched)
                        return tuple(outs)
                    record(op, given, tuple(raw), out, more, None, watched)
                    break
        if visible > 1:
            asarray = backend_for(first).asarray
            return (out, *(wrap(asarray(m)) for m in more[: visible - 1]))
        return out

    return call


def versions_of(arguments: Sequence[Any]) -> list[list[int]]:
    """The version counters of the tensors among `arguments`, or within tuples and lists there."""
    found: list[list[int]] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            found.append(argument._versions)
        elif isinstance(argument, (tuple, list)):
            found += [part._versions for part in argument if isinstance(part, Tensor)]
    return found


def _first_array(op: Op, raw: Sequence[Any]) -> Any:
    for i in op.tensors:
        if hasattr(raw[i], "dtype"):
            return raw[i]
    raise TypeError(f"{op.name}(): at least one argument must be a Tensor, got {', '.join(type(raw[i]).__name__ for i in op.tensors)}")


def _array(op: Op, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar counts as a number
        return value.item()
    raise TypeError(f"{op.name}(): expected a Tensor, got {type(value).__name__}")


def _owner(array: Any) -> Any:
    base = array.base
    return base if base.__class__ is array.__class__ else array


def _mark_view(op: Op, input: Tensor, out: Tensor, args: tuple[Any, ...]) -> None:
    """Let a result that shares memory with `input` share its version and know its base."""
    if out._array is input._array:
        out._array = input._array[...]
    if _owner(out._array) is not _owner(input._array):
        return  # a reshape that had to copy
    out._versions = input._versions
    step = (op.call, args[1:])
    view = input._view
    if view is None:
        base, steps = input, (step,)
    else:
        base = view.base
        steps = None if view.steps is None else (*view.steps, step)
    out._view = View(base, steps, base._grad_fn)
    if not base._requires_grad:
        remember_plain_view(base, out)


__all__ = ["COMPOSITES", "OPS", "Op", "OpNode", "Sample", "TensorLike", "composite", "op", "primitive"]
