"""Complex numbers: real and imaginary parts, conjugates, and tensors made of parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backend.dtype import bool_
from ...backend.registry import backend_for
from ...core.overrides import overridable
from ...core.tensor import Tensor, wrap
from ..dispatch.declare import op, primitive
from ..dispatch.samples import one
from ..dispatch.tensor_function import takes_out, tensor_function
from ..dispatch.vocabulary import VOCABULARY as F
from . import binary


def _require_complex(name: str, input: Tensor) -> None:
    if not input.dtype.is_complex:
        of_views = name.startswith("view")
        said = (
            "only supported for complex tensors"
            if of_views
            else "not implemented for tensors with non-complex dtypes"
        )
        raise RuntimeError(f"{name} is {said}, got {input.dtype.name}")


def _require_parts(name: str, a: Tensor, b: Tensor) -> None:
    if any(t.dtype.name not in ("float16", "float32", "float64") for t in (a, b)):
        raise RuntimeError(
            f"{name}(): Expected both inputs to be Half, Float or Double tensors but got {a.dtype.scalar_type} and "
            f"{b.dtype.scalar_type}"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}(): Expected object of scalar type {a.dtype.scalar_type} but got scalar type "
            f"{b.dtype.scalar_type} for second argument"
        )


@takes_out
def _conj(input: Tensor) -> Tensor:
    """The complex conjugate, computed at once; a real tensor itself."""
    return F.conj(input) if input.dtype.is_complex else input


@primitive(
    public=_conj,
    grads={"input": lambda F, g: F.conj(g)},
    aliases=("conj_physical",),
    inplace=True,
    holomorphic=False,
)
def conj(F: Any, input: Tensor) -> Tensor:
    """The complex conjugate."""
    ...


@overridable
def _real(input: Tensor) -> Tensor:
    """The real parts, as a view; a real tensor itself."""
    return F.real(input) if input.dtype.is_complex else input


@primitive(
    public=_real, grads={"input": lambda F, g: g}, samples=one(), reference=np.real, view=True, method=False
)
def real(F: Any, input: Tensor) -> Tensor:
    """The real parts."""
    ...


@primitive(
    grads={"input": lambda F, g: g * 1j},
    check=lambda input: _require_complex("imag", input),
    view=True,
    method=False,
)
def imag(F: Any, input: Tensor) -> Tensor:
    """The imaginary parts, as a view."""
    ...


def _angle_rule(F: Any, g: Any, input: Any) -> Any:
    if not _is_complex(input):
        return F.full_like(g, 0)
    size = F.abs(input)
    nowhere = size == 0
    square = F.where(nowhere, F.full_like(size, 1), size * size)
    return F.where(nowhere, F.full_like(input, 0), g * input * 1j / square)


def _is_complex(x: Any) -> bool:
    return getattr(x, "_array", x).dtype.kind == "c"


@op(grads={"input": _angle_rule}, promotion="float", samples=one(), reference=np.angle)
def angle(F: Any, input: Tensor) -> Tensor:
    """The argument of a complex number; of a real one 0, or pi where it is negative."""
    if _is_complex(input):
        return F.atan2(F.imag(input), F.real(input))
    return F.where(
        input < 0, F.full_like(input, math.pi), F.where(F.isnan(input), input, F.full_like(input, 0))
    )


def _sgn_rule(F: Any, g: Any, out: Any, input: Any) -> Any:
    """What of the gradient is across the direction of the input, by its length; real numbers have nothing there."""
    if not _is_complex(out):
        return F.full_like(g, 0)
    size = F.abs(input)
    nowhere = size == 0
    across = g - F.real(g * F.conj(out)) * out
    return F.where(nowhere, F.full_like(g, 0), across / F.where(nowhere, F.full_like(size, 1), size))


@primitive(grads={"input": _sgn_rule}, samples=one(), reference=np.sign, holomorphic=False, inplace=True)
def sgn(F: Any, input: Tensor) -> Tensor:
    """input / |input|, and 0 at 0; the sign of a real number."""
    ...


@primitive(
    grads={"real": lambda F, g: g, "imag": lambda F, g: g * 1j},
    check=lambda real, imag: _require_parts("complex", real, imag),
    adapt=lambda real, imag: (real, imag),  # so that `check` is asked first
    method=False,
)
def complex(F: Any, real: Tensor, imag: Tensor) -> Tensor:
    """real + i * imag."""
    ...


@tensor_function(method=False, out=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * (cos(angle) + i * sin(angle))."""
    _require_parts("polar", abs, angle)
    return complex(abs * angle.cos(), abs * angle.sin())


@primitive(
    grads={"input": lambda F, g: g[..., 0] + g[..., 1] * 1j},
    check=lambda input: _require_complex("view_as_real", input),
    view=True,
    method=False,
    holomorphic=False,
)
def view_as_real(F: Any, input: Tensor) -> Tensor:
    """Real and imaginary parts along a new last dimension, as a view."""
    ...


def _check_view_as_complex(input: Tensor) -> None:
    if input.dtype.name not in ("float16", "float32", "float64"):
        raise RuntimeError(
            f"view_as_complex(): only supported for half, float and double tensors, got {input.dtype.name}"
        )
    if not input.ndim or input.shape[-1] != 2:
        raise RuntimeError(
            f"view_as_complex(): Tensor must have a last dimension of size 2, got {list(input.shape)}"
        )
    *steps, last = input.stride()
    if last != 1:
        raise RuntimeError(f"view_as_complex(): Tensor must have a last dimension with stride 1, got {last}")
    if any(step % 2 for step, n in zip(steps, input.shape, strict=False) if n > 1):
        raise RuntimeError(
            f"view_as_complex(): Tensor must have a stride divisible by 2 for all but last dimension, got {steps}"
        )
    if input.storage_offset() % 2:
        raise RuntimeError(
            f"view_as_complex(): Tensor must have a storage_offset divisible by 2, got {input.storage_offset()}"
        )


@primitive(
    grads={"input": lambda F, g: F.view_as_real(g)},
    check=_check_view_as_complex,
    view=True,
    method=False,
    holomorphic=False,
)
def view_as_complex(F: Any, input: Tensor) -> Tensor:
    """A real tensor (..., 2) as the complex tensor of these parts, as a view."""
    ...


@tensor_function(aliases=("resolve_neg",))
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed at once here, not when they are used."""
    return input


@tensor_function()
def is_conj(input: Tensor) -> bool:
    """False: conjugates are computed at once here."""
    return False


@tensor_function()
def is_neg(input: Tensor) -> bool:
    """False: negations are computed at once here."""
    return False


@tensor_function()
def isreal(input: Tensor) -> Tensor:
    """True where the imaginary part is 0."""
    backend = backend_for(input._array)
    return (
        binary.eq(imag(input), 0)
        if input.dtype.is_complex
        else wrap(backend.full(input.shape, True, bool_, input._array))
    )
