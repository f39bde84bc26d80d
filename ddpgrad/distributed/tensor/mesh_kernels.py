"""The kernels of ops on arrays of which each rank has a part.

Found by name, in this order:

1. A rule (`RULES`, and those of `mesh_rules.py`): which parts the ranks need, and the kernel of the device for these.
2. For functions of every element by itself (`BY_ELEMENT`), that kernel on parts that lie alike.
3. For those in `BY_BODY`, the portable body that the op was declared with, on whole arrays of ranks.
4. The kernel of the device on the whole, which every rank gathers and computes with: right for every op, at the cost of memory
   and of a gather. `explicit_replication` says which.

Where all ranks have all of every operand, the kernel of the device computes it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...backend.device import Device
from ...backend.registry import Backend, _bodies, add_backend, backend_for, backend_of
from ...core.tables import decorator_for
from ...core.upcalls import declare_all_ops
from ...ops.dispatch.vocabulary import OPS
from .layout import Layout
from .mesh_array import MeshArray, first_of, on_wholes, replaced, shared
from .mesh_functions import linear_in
from .spreading import elementwise

Kernel = Callable[..., Any]

RULES: dict[str, Callable[..., Any]] = {}
"""By the name of a kernel: rule(F, kernel, *args), where `kernel` is that of the device."""

BY_ELEMENT = frozenset([
    "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "deg2rad", "rad2deg", "sinc", "clamp",
    "mul", "pow", "maximum", "minimum", "remainder", "fmod", "floor_divide", "atan2", "logaddexp", "logaddexp2", "eq",
    "ne", "lt", "le", "gt", "ge", "where", "lerp", "add", "sub", "div_floor", "div_trunc", "div", "hypot", "fmax",
    "fmin", "copysign", "nextafter", "ldexp", "gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor",
    "bitwise_left_shift", "bitwise_right_shift", "bitwise_not", "scaled_sum", "addcmul", "addcdiv", "angle", "erf",
    "erfc", "erfinv", "erfcx", "ndtr", "ndtri", "log_ndtr", "entr", "lgamma", "digamma", "i0", "i0e", "i1", "i1e",
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "zeta", "igamma", "igammac", "xlogy", "xlog1py", "logit",
    "neg", "abs", "square", "sign", "floor", "ceil", "trunc", "rint", "frac", "isnan", "isinf", "isfinite", "isposinf",
    "isneginf", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor", "nan_to_num", "frexp", "clone",
    "heaviside", "conj", "real", "imag", "sgn", "complex", "round", "hardtanh",
    "masked_fill", "relu", "leaky_relu", "prelu_kernel", "elu", "selu", "softplus", "hardshrink", "softshrink", "threshold",
    "hardsigmoid", "hardswish", "celu", "mish", "gelu", "silu", "huber", "alias", "bernoulli_loss", "dropout_backward",
    "sigmoid_backward", "square_backward", "clamp_backward", "hardtanh_backward", "relu_backward",
    "leaky_relu_backward", "scaled_elu", "scaled_elu_backward", "softplus_backward", "shrink_backward",
    "threshold_backward", "hardsigmoid_backward", "hardswish_backward", "mish_backward", "gelu_backward",
    "silu_backward", "huber_backward",
])  # fmt: skip
"""Functions of every element by itself: arrays among the arguments are broadcast, all else is passed on."""

_LINEAR = {
    "add": "each", "sub": "each", "neg": "each", "scaled_sum": "", "mul": "one", "div": "first", "conj": "each", "real": "each",
    "imag": "each", "clone": "each", "alias": "each",
}  # fmt: skip

BY_BODY = frozenset([
    "sum_to", "layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward", "attention", "attention_backward",
    "cross_entropy_rows", "cross_entropy_backward", "nll_loss_rows", "nll_loss_backward", "getitem", "logsumexp",
])  # fmt: skip
"""What consists of other kernels, which divide it better than as one."""


MADE: list[Callable[[type], Any]] = []
"""Who is told of a new class of arrays."""


@cache
def class_for(kind: str) -> Any:
    """The class of arrays of ranks whose parts lie on that kind of device, with a backend of its own."""
    cls = type("MeshArray", (MeshArray,), {"__slots__": (), "__module__": __name__, "kind": kind})
    add_backend(MeshBackend(kind, cls))
    for tell in MADE:
        tell(cls)
    return cls


def mesh_array(part: Any, layout: Layout) -> MeshArray:
    """The array that lies as `layout` says, of the class for the device of this rank's part."""
    return class_for(backend_for(part).kind)(part, layout)


def device_of(array: MeshArray) -> Device:
    return backend_for(array.part).device_of(array.part)


rule = decorator_for(RULES)
"""Makes the decorated function the rule of these kernels."""


class MeshBackend(Backend):
    """Kernels for the arrays of ranks whose parts lie on devices of one kind. divides: rules that hold for this one only."""

    places = False  # the kernels of the device see to it
    joins_rows = False  # one that is divided, and not the first, would have to be gathered

    def __init__(
        self, kind: str, array_type: type, divides: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        self.local = backend_of(kind)
        self._own = divides or {}
        super().__init__(kind, array_type, {}, {}, device_of, library=self.local.library)

    def find(self, name: str) -> Kernel:
        if name not in OPS and name not in _bodies and name not in self.local._elementary:
            declare_all_ops()
        kernel = self._of_device(name)
        own = self._own.get(name) or RULES.get(name)
        if own is not None:
            computed = _bound(own, self, kernel)
        elif name in BY_ELEMENT:
            computed = _by_element(kernel, _LINEAR.get(name, ""))
        elif name in BY_BODY:
            computed = _bound(_as_body, self, _bodies[name])
        elif name.endswith("_"):
            computed = _refusing(name)
        else:
            computed = _of_wholes(kernel)

        def at_once(*args: Any, **options: Any) -> Any:
            given = (*args, *options.values()) if options else args
            like = first_of(given)
            if like is None:
                return kernel(*args, **options)
            if own is None and _everywhere(given) and not name.endswith("_"):
                part = MeshArray.part.__get__
                found = kernel(
                    *[replaced(v, part) for v in args], **{k: replaced(v, part) for k, v in options.items()}
                )
                return shared(like, found)
            return computed(*args, **options)

        at_once.__name__ = name
        return at_once

    def _of_device(self, name: str) -> Kernel:
        op = OPS.get(name)
        return getattr(self.local, name) if op is None else op.kernels[self.local.array_type]


def _bound(rule: Callable[..., Any], F: MeshBackend, kernel: Kernel) -> Kernel:
    return lambda *args, **options: rule(F, kernel, *args, **options)


def _as_body(F: MeshBackend, body: Kernel, *args: Any, **options: Any) -> Any:
    return body(F, *args, **options)


def _by_element(kernel: Kernel, linear: str) -> Kernel:
    def compute(*args: Any, **options: Any) -> Any:
        places = [i for i, x in enumerate(args) if hasattr(x, "shape") or i == 0]
        if options:
            return on_wholes(kernel, args, options)
        how = linear_in(linear, args) if linear else ""
        if linear == "one" and not all(hasattr(x, "shape") or isinstance(x, (int, float)) for x in args):
            how = ""

        def run(*parts: Any) -> Any:
            given = list(args)
            for place, part in zip(places, parts, strict=True):
                given[place] = part
            return kernel(*given)

        return elementwise(run, [args[i] for i in places], how)

    return compute


def _of_wholes(kernel: Kernel) -> Kernel:
    return lambda *args, **options: on_wholes(kernel, args, options)


def _refusing(name: str) -> Kernel:
    def refuse(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"{name}: not defined in place for a DTensor: use the form that returns a new one, or to_local() for this rank's part"
        )

    return refuse


def _everywhere(values: Any) -> bool:
    """Whether every rank has all of each array of ranks among these."""
    for value in values:
        if isinstance(value, MeshArray):
            if not value.layout.is_replicated:
                return False
        elif isinstance(value, (list, tuple)) and not _everywhere(value):
            return False
    return True
