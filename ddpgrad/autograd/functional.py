"""`torch.autograd.functional`: `vjp`, `jvp`, `jacobian`, `hessian`, `vhp`, `hvp`.

All are made of reverse passes. Products with a Jacobian from the right differentiate the
reverse pass once more with respect to its seed, in which it is linear
(https://j-towns.github.io/2017/06/12/A-new-trick.html).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Size, Tensor
from ..core.upcalls import tensor_vocabulary
from .entry import grad
from .grad_mode import enable_grad
from .nodes import GradientEdge

Func = Callable[..., Any]
Values = Tensor | tuple[Tensor, ...]

_SCALAR = "The Tensor returned by the function given to {} should contain a single element"
_NOT_IN_STRICT = "This is not allowed in strict mode"


def vjp(func: Func, inputs: Values, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, v . J): `func` at `inputs`, and its Jacobian multiplied from the left by `v`.

    v: like the outputs; may be None for a single scalar output. create_graph: the results can be
    differentiated. strict: `RuntimeError` instead of zeros where outputs do not depend on inputs.
    """
    call = _Call(func, inputs, "vjp", create_graph)
    seeds = _seeds(v, call.outputs, "vjp", "the user-provided function returns")
    _check_outputs(call.outputs, strict)
    with enable_grad():
        products = gradients(
            call.outputs, call.inputs, seeds, create_graph, call.independent if strict else None
        )
    if strict and create_graph:
        _check_depends(products, "jacobian")
    return call.result(call.outputs), call.like_inputs(products)


def jvp(func: Func, inputs: Values, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, J . v): `func` at `inputs`, and its Jacobian multiplied from the right by `v`.

    v: like the inputs; may be None for a single scalar input. The other arguments as in `vjp`.
    """
    call = _Call(func, inputs, "jvp", create_graph)
    directions = _seeds(v, call.inputs, "jvp", "the input to the user-provided function")
    _check_outputs(call.outputs, strict)
    with enable_grad():
        dummies = _dummies(call.outputs)
        back = gradients(call.outputs, call.inputs, dummies, True, call.independent if strict else None)
        products = gradients(back, dummies, directions, create_graph)
    if strict and create_graph:
        _check_depends(products, "jacobian")
    return call.result(call.outputs), call.result(products)


def jacobian(
    func: Func,
    inputs: Values,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func` at `inputs`: for output and input of shapes S and T, a Tensor of shape S + T.

    A tuple over the inputs if these are one, within a tuple over the outputs if these are one.
    vectorize, strategy: accepted; rows are computed one after the other, in reverse.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"strategy is 'reverse-mode' or 'forward-mode', got {strategy!r}")
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError("jacobian: create_graph=True needs strategy='reverse-mode'")
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError("jacobian: strategy='forward-mode' needs vectorize=True")
    if strict and vectorize:
        raise RuntimeError(
            "jacobian: `strict=True` and `vectorize=True` are not supported together. Please either set `strict=False` "
            "or `vectorize=False`."
        )
    call = _Call(func, inputs, "jacobian", create_graph)
    with enable_grad():
        rows = tuple(call.jacobian_of(i, out, strict, not vectorize) for i, out in enumerate(call.outputs))
    found = tuple(call.like_inputs(row) for row in rows)
    return found if call.several_outputs else found[0]


def hessian(
    func: Func,
    inputs: Values,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar `func`: for inputs of shapes S and T, a Tensor of shape S + T.

    A tuple of tuples over the inputs if these are a tuple. The arguments are those of `jacobian`.
    """
    several, _ = _tuple(inputs, "The inputs given to hessian")

    def gradient(*values: Tensor) -> Any:
        outputs = _tuple(func(*values), "The outputs of the user-provided function given to hessian")
        _single_scalar("hessian", *outputs)
        _check_outputs(outputs[1], strict)
        slopes = gradients(outputs[1], values, None, True)
        if strict:
            _check_slopes(slopes)
        return slopes if several else slopes[0]

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func: Func, inputs: Values, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, v . H): a scalar `func` at `inputs`, and its Hessian multiplied from the left by `v`.

    v: like the inputs; may be None for a single scalar input. The other arguments as in `vjp`.
    """
    call = _Call(func, inputs, "vhp", create_graph)
    seeds = _seeds(v, call.inputs, "vhp", "the input to the user-provided function")
    with enable_grad():
        slopes = call.gradient_of_scalar(strict)
        products = gradients(
            slopes, call.inputs, seeds, create_graph, call.jacobian_constant if strict else None
        )
    if strict and create_graph:
        _check_depends(products, "hessian")
    return call.result(call.outputs), call.like_inputs(products)


def hvp(func: Func, inputs: Values, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, H . v): as `vhp`, multiplied from the right. The same numbers where the Hessian is symmetric."""
    call = _Call(func, inputs, "hvp", create_graph)
    directions = _seeds(v, call.inputs, "hvp", "the input to the user-provided function")
    with enable_grad():
        slopes = call.gradient_of_scalar(strict)
        dummies = _dummies(slopes)
        back = gradients(slopes, call.inputs, dummies, True, call.jacobian_constant if strict else None)
        products = gradients(back, dummies, directions, create_graph)
    if strict and create_graph:
        _check_depends(products, "hessian")
    return call.result(call.outputs), call.like_inputs(products)


class _Call:
    """One evaluation of `func` on inputs of our own, so that nothing else sees their gradients."""

    def __init__(self, func: Func, inputs: Any, name: str, create_graph: bool) -> None:
        self.name, self.create_graph = name, create_graph
        self.several_inputs, given = _tuple(inputs, f"The inputs given to {name}")
        with enable_grad():
            self.inputs = tuple(
                x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
                for x in given
            )
            self.several_outputs, self.outputs = _tuple(
                func(*self.inputs), f"The outputs of the user-provided function given to {name}"
            )

    def result(self, outputs: Sequence[Tensor]) -> Any:
        """As the user gets them: in the graph with `create_graph`, one alone if the function returned one."""
        found = tuple(outputs if self.create_graph else [t.detach() for t in outputs])
        return found if self.several_outputs else found[0]

    def like_inputs(self, values: Sequence[Tensor]) -> Any:
        found = tuple(values if self.create_graph else [t.detach() for t in values])
        return found if self.several_inputs else found[0]

    def gradient_of_scalar(self, strict: bool) -> tuple[Tensor, ...]:
        _single_scalar(self.name, self.several_outputs, self.outputs)
        _check_outputs(self.outputs, strict)
        slopes = gradients(self.outputs, self.inputs, None, True, self.independent if strict else None)
        if strict:
            _check_slopes(slopes)
        return slopes

    def jacobian_of(self, i: int, out: Tensor, strict: bool, complex_refused: bool) -> tuple[Tensor, ...]:
        """The Jacobians of output `i`, for each input."""
        if complex_refused and out.is_complex():
            raise RuntimeError(
                f"jacobian: rows can be computed only for real outputs, but output {i} is {out.dtype}"
            )
        _check_outputs(self.outputs, strict)
        independent = (
            f"Output {i} of the user-provided function is independent of input {{}}. {_NOT_IN_STRICT}."
        )
        return jacobian_of(
            out,
            self.inputs,
            self.create_graph,
            independent.format if strict else None,
            strict and self.create_graph,
        )

    @staticmethod
    def independent(i: int) -> str:
        return f"The output of the user-provided function is independent of input {i}. {_NOT_IN_STRICT}."

    @staticmethod
    def jacobian_constant(i: int) -> str:
        return f"The jacobian of the user-provided function is independent of input {i}. {_NOT_IN_STRICT}."


def gradients(
    outputs: Sequence[Any],
    inputs: Sequence[Tensor],
    seeds: Sequence[Tensor] | None,
    create_graph: bool,
    independent: Callable[[int], str] | None = None,
    edges: Sequence[GradientEdge] | None = None,
    retain_graph: bool = True,
) -> tuple[Tensor, ...]:
    """seeds . d outputs / d inputs; zeros, or the error `independent(i)`, for an input that they do not depend on.

    edges: where the inputs are in the graph, if they may have been written to since.
    """
    depending = [i for i, out in enumerate(outputs) if isinstance(out, Tensor) and out.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if depending:
        found = grad(
            [outputs[i] for i in depending],
            inputs if edges is None else edges,
            None if seeds is None else [seeds[i] for i in depending],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
    F = tensor_vocabulary()
    for i, g in enumerate(found):
        if g is None and independent is not None:
            raise RuntimeError(independent(i))
    return tuple(F.full_like(x, 0) if g is None else g for x, g in zip(inputs, found, strict=True))


def jacobian_of(
    out: Tensor,
    inputs: Sequence[Tensor],
    create_graph: bool,
    independent: Callable[[int], str] | None = None,
    depends: bool = False,
) -> tuple[Tensor, ...]:
    """The Jacobians of `out`, for each input, row by row. depends: an error where a row does not depend on inputs."""
    F = tensor_vocabulary()
    flat = F.full_like(out.detach(), 0).reshape(-1)
    rows = []
    for k in range(out.numel()):
        flat.zero_()
        flat[k] = 1
        row = gradients((out,), inputs, (flat.reshape(out.shape).clone(),), create_graph, independent)
        if depends:
            _check_depends(row, "jacobian")
        rows.append(row)
    return tuple(
        F.stack([row[j] for row in rows]).reshape((*out.shape, *x.shape))
        if rows
        else F.new_zeros(x.detach(), (*out.shape, *x.shape))
        for j, x in enumerate(inputs)
    )


def _check_outputs(outputs: Sequence[Tensor], strict: bool) -> None:
    for i, out in enumerate(outputs):
        if strict and not out.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in "
                "a differentiable manner from the input when running in strict mode."
            )


def _check_depends(values: Sequence[Tensor], what: str) -> None:
    """With `create_graph` and `strict`, what was found must depend on the inputs."""
    for i, value in enumerate(values):
        if not value.requires_grad:
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. {_NOT_IN_STRICT} when "
                "create_graph=True."
            )


def _check_slopes(slopes: Sequence[Tensor]) -> None:
    """In strict mode a gradient that is differentiated again must depend on the inputs."""
    for i, slope in enumerate(slopes):
        if not slope.requires_grad:
            raise RuntimeError(
                f"The jacobian of the user-provided function with respect to input {i} is independent of the inputs. "
                f"{_NOT_IN_STRICT}."
            )


def _dummies(like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Seeds to differentiate with respect to; what is linear in them does not depend on their values."""
    F = tensor_vocabulary()
    return tuple(F.full_like(t.detach(), 0).requires_grad_() for t in like)


def _tuple(values: Any, what: str) -> tuple[bool, tuple[Tensor, ...]]:
    """(whether it was a tuple, the values as one). `TypeError` for what is no Tensor."""
    several = isinstance(values, tuple)
    found = values if several else (values,)
    for i, value in enumerate(found):
        if not isinstance(value, Tensor):
            where = (
                f"the value at index {i} has type {type(value)}" if several else f"the given {type(value)}"
            )
            raise TypeError(f"{what} must be either a Tensor or a tuple of Tensors but {where}.")
    return several, found


def _seeds(v: Any, like: Sequence[Tensor], name: str, whose: str) -> tuple[Tensor, ...]:
    """`v` as a tuple that fits `like`; a one where it may be left out."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {whose} is a single Tensor with a single element."
                if whose.startswith("the input")
                else f"The vector v can only be None if {whose} a single Tensor with a single element."
            )
        return (tensor_vocabulary().full_like(like[0].detach(), 1),)
    _, found = _tuple(v, f"The v given to {name}")
    if len(found) != len(like):
        if len(like) == 1:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(found)}.")
    for i, (t, x) in enumerate(zip(found, like, strict=True)):
        if t._array.shape != x._array.shape:
            which = f"Entry {i} in v" if len(like) > 1 else "v"
            raise RuntimeError(
                f"{which} has invalid size: should be {Size(x.shape)} but got {Size(t.shape)}."
            )
    return found


def _single_scalar(name: str, several: bool, outputs: Sequence[Tensor]) -> None:
    if several or len(outputs) != 1:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(_SCALAR.format(name))


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
