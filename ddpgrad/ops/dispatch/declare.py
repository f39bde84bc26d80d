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

The decorated name becomes the public function on Tensors (without `F`). `@primitive` has no body: each backend has a
kernel of that name. `@op` has a body over the vocabulary `F`, which runs on raw arrays and which a backend may replace
by a faster kernel of that name. `@composite` is a function over `F` that gradient rules call: on Tensors it runs as
the ops that it is made of (and so has a gradient), on arrays as one kernel where there is one.

A gradient rule takes `F`, the gradient `g` of the output, and then, by name, what it needs: parameters, `out` (the
output), `input_shape` (the shape of the parameter `input`, without the array), or names listed in `extras` (further
results of the forward that users do not see). What no rule names is not kept. It returns the gradient of one input,
broadcast or in another dtype as it may be: the engine undoes both. Where the gradients of several inputs share work,
`joint` is one rule that takes `needs` (a bool per tensor input) as well and returns all of them; or `targets`, the nodes
that the gradients go to or None, which may have memory for them. `kept_for` says which inputs' gradients need a name, where
not all do: a joint rule is given None for what is not kept. Rules are written once and run on arrays and on Tensors.

An op of several outputs names all but the first in `extras`; users see the first `outputs` of them, and the first
`differentiable` have a gradient. Its rules get a tuple of gradients, with None for the outputs that no gradient
reached.

The gradient of a complex number is what PyTorch makes it, the derivative by the real part plus i times that by the
imaginary part. A rule that is written for real numbers gives it for a holomorphic function too, if it runs on the
conjugate and its result is conjugated, and so the node does where the output is complex. `holomorphic=False` says that
the rules treat complex numbers themselves.

`view` is True for an op whose result shares memory with its input, "several" for one that returns a list of views.

`public` is the function that users call where they may pass other arguments than the op takes: the factor of a sum,
the rounding of a quotient. It has the op's name, and calls the op by the vocabulary on Tensors. The vocabulary,
gradient rules and Python's operators have the op itself.

`name` is the op's where the function has another. `grad_name` is what PyTorch calls the node, or
a function that says it from what is kept and the output's `shape`, by name; `reflected_name` is that for a number as
the first operand. `adapt` brings the arguments into the form that the kernel takes; `check` raises what is wrong with
them, and is asked when they are unusual or the kernel has failed. `method` makes the op a method of Tensor; `inplace`
adds its in-place form, with a trailing underscore. Every op takes the keyword `out`. A parameter `inplace: bool =
False` is for the function in `nn.functional` only (`inplace.py`): no kernel and no rule gets it. Functions made of ops
are declared by `tensor_function.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from ...backend.registry import KernelByArray, register_body
from ...core.overrides import overridable
from ...core.tensor import Tensor
from .autocast import is_listed, under_autocast
from .half import rounded_once
from .lean_calls import make_call
from .node import node_name
from .rules import Rule, set_rules
from .signatures import TakesOut, with_out
from .vocabulary import COMPOSITES, OPS, VOCABULARY

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])
Body = Callable[Concatenate[Any, P], R]
# (arguments, keyword arguments) of a sample call, with NumPy arrays for tensors.
Sample = tuple[tuple[Any, ...], dict[str, Any]]
TensorLike = Tensor | bool | int | float | complex

NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}
"""Arguments that PyTorch takes by NumPy's names too."""


class Op:
    """One operation. `call` is the function on Tensors; `public` is the one that users call, mostly the same."""

    __slots__ = (
        "adapt", "aliases", "backward", "call", "check", "defaults", "differentiable", "doc", "extras",
        "grad_name", "has_body", "holomorphic", "inplace", "joint", "keep", "keeps_values", "kept_tensors",
        "kernels", "method", "name", "named_by", "named_by_kept", "numbers", "one_plan", "outputs", "params",
        "plans", "promoted", "promotion", "public", "reference", "reflected_name", "rules", "samples",
        "sequence", "shapes", "signature", "tails", "takes_inplace", "tensors", "tolerance", "varargs",
        "view", "watched",
    )  # fmt: skip

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.doc = function.__doc__ or ""
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1:]  # without F
        self.takes_inplace = "inplace" in signature.parameters
        parameters = [p for p in parameters if p.name != "inplace"]
        self.signature = signature.replace(parameters=parameters)
        self.params = tuple(p.name for p in parameters)
        self.defaults = tuple(p.default for p in parameters)
        self.varargs = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
        annotations = [str(p.annotation) for p in parameters]
        self.sequence = bool(annotations) and "Sequence[Tensor]" in annotations[0]
        self.tensors = tuple(i for i, a in enumerate(annotations) if "Tensor" in a)
        # The places of tensors that may be numbers as well.
        self.numbers = tuple(
            i for i in self.tensors if "TensorLike" in annotations[i] or "None" in annotations[i]
        )
        # By the number of arguments given: the defaults of the rest, where all have one.
        self.tails = {
            n: self.defaults[n:]
            for n in range(len(self.defaults))
            if self.varargs is None and inspect.Parameter.empty not in self.defaults[n:]
        }
        self.kernels = KernelByArray(name)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument in its place, defaults filled in; `TypeError` as for any function."""
        if self.varargs is not None:
            split, name = self.varargs, self.params[self.varargs]
            rest, args = args[split:], args[:split]
            if not rest and name not in kwargs:
                raise TypeError(f'{self.name}() missing 1 required positional arguments: "{name}"')
            if not kwargs and len(args) == split == len(self.params) - 1:
                return (*args, rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest)
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
            other = NUMPY_NAMES.get(name) or ("input" if not i else None)
            if other in kwargs:
                kwargs[name] = kwargs.pop(other)
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
            raise TypeError(
                f"{self.name}() got an unexpected or repeated argument '{next(iter(kwargs))}'; it has ({known})"
            )
        return bound

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"


def _declare(
    function: Callable[..., Any],
    body: Callable[..., Any] | None,
    *,
    name: str | None = None,
    grads: Mapping[str, Rule] | None = None,
    joint: Rule | None = None,
    kept_for: Mapping[str, Sequence[str]] | None = None,
    samples: Callable[[Any], Iterable[Sample]] | None = None,
    reference: Callable[..., Any] | None = None,
    view: bool | Literal["several"] = False,
    promotion: str | None = None,
    promoted: Sequence[str] | None = None,
    adapt: Callable[..., tuple[Any, ...]] | None = None,
    check: Callable[..., None] | None = None,
    outputs: int = 1,
    extras: Sequence[str] = (),
    differentiable: int = 1,
    holomorphic: bool = True,
    grad_name: str | Callable[..., str] | None = None,
    reflected_name: str | None = None,
    method: bool = True,
    inplace: bool = False,
    aliases: Sequence[str] = (),
    tolerance: float = 1.0,
    public: Callable[..., Any] | None = None,
) -> Any:
    op = Op(name or function.__name__, function)
    op.has_body = body is not None
    op.view, op.promotion, op.adapt, op.check = view, promotion, adapt, check
    op.promoted = op.tensors if promoted is None else tuple(op.params.index(n) for n in promoted)
    op.outputs, op.extras, op.differentiable = outputs, tuple(extras), differentiable
    op.holomorphic = holomorphic
    op.grad_name = grad_name or node_name(op.name)
    op.reflected_name = reflected_name
    op.named_by = tuple(inspect.signature(op.grad_name).parameters) if callable(op.grad_name) else ()
    op.named_by_kept = any(name != "shape" for name in op.named_by)  # the shape stays when the rest is freed
    op.samples, op.reference, op.aliases = samples, reference, tuple(aliases)
    op.method, op.inplace, op.tolerance = method, inplace, tolerance
    set_rules(op, grads or {}, joint, kept_for or {})
    if body is not None:
        if op.varargs is not None:
            body = _unpacking(body)
        if not view:
            place = op.params.index("dtype") if "dtype" in op.params else None
            body = rounded_once(op.name, body, op.tensors, differentiable, place)
        register_body(op.name, body)
    op.call = make_call(op)
    op.call.__name__ = op.call.__qualname__ = op.name
    op.call.__doc__ = op.doc
    op.call.__module__ = function.__module__
    shown = op.signature if view == "several" else with_out(op.signature)
    op.call.__dict__.update(op=op, __signature__=shown)
    op.public = op.call
    if public is not None:
        # Arguments are asked with the function that they were given to.
        op.public = overridable(_named(public, op))
    for name in (op.name, *op.aliases):
        OPS[name] = op
    return op.public


def _named(public: Any, op: Op) -> Callable[..., Any]:
    """The function `public` as that of `op`: it has the op's name, and autocast's casts where the op has them."""
    inner = public
    while inner is not None:  # what wraps a function says its name in errors
        inner.__name__ = inner.__qualname__ = op.name
        inner = inner.__dict__.get("__wrapped__")
    public = under_autocast(public) if is_listed(op.name) else public
    public.__dict__["op"] = op
    return public


def _unpacking(body: Callable[..., Any]) -> Callable[..., Any]:
    """Kernels take what users pass as `*sizes` in one tuple."""

    def unpacked(F: Any, input: Any, values: Sequence[Any]) -> Any:
        return body(F, input, *values)

    unpacked.__name__ = body.__name__
    return unpacked


@overload
def primitive(*, public: C, **options: Any) -> Callable[[Callable[..., Any]], C]: ...
@overload
def primitive(
    *, view: Literal["several"], public: None = None, **options: Any
) -> Callable[[Body[P, R]], Callable[P, R]]: ...
@overload
def primitive(
    *, view: bool = False, public: None = None, **options: Any
) -> Callable[[Body[P, R]], TakesOut[P, R]]: ...
def primitive(**options: Any) -> Any:
    """Declare an op whose kernel each backend has under the same name."""
    return lambda function: _declare(function, None, **options)


@overload
def op(*, public: C, **options: Any) -> Callable[[Callable[..., Any]], C]: ...
@overload
def op(*, public: None = None, **options: Any) -> Callable[[Body[P, R]], TakesOut[P, R]]: ...
def op(**options: Any) -> Any:
    """Declare an op by a portable body over the vocabulary."""
    return lambda function: _declare(function, function, **options)


def composite(function: Body[P, R]) -> Callable[P, R]:
    """Declare a function over the vocabulary that rules may call; differentiable as its parts are.

    The gradients that it returns for arrays of 16 bits are float32; the engine rounds them.
    """
    name = function.__name__
    register_body(name, rounded_once(name, function, None, 0) if name.endswith("_backward") else function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(VOCABULARY, *args, **kwargs)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    COMPOSITES[function.__name__] = call
    return call
