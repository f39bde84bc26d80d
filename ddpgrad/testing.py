"""`torch.testing`: is one result close to another, and if not, where and by how much; do all ranks give the same.

`make_tensor` draws the tensors that are tested with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .backend.device import Device
from .backend.dtype import (
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int64,
    promote_types,
)
from .backend.registry import SparseArray
from .core.size import MemoryFormat
from .core.size import strided as torch_strided
from .core.tensor import Tensor, wrap
from .distributed import simulate
from .ops.creation.data import as_tensor
from .ops.creation.factories import empty
from .ops.elementwise.complex import view_as_real
from .ops.reduction.queries import isclose

# (relative, absolute): what PyTorch allows by default; other types must be equal.
_TOLERANCES: dict[DType, tuple[float, float]] = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
    complex64: (1.3e-6, 1e-5),
    complex128: (1e-7, 1e-7),
}

_BOOLS = (bool, np.bool_)
_NUMBERS = (int, float, complex, np.number)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Takes tensors, arrays, numbers, and sequences and mappings of them; numbers have the tolerances of
    float64, and must be of one type as tensors must be of one dtype. rtol and atol: both or neither; by
    default they go by the dtypes. The message counts the mismatches and shows the greatest differences
    and where they are.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            "Both 'rtol' and 'atol' must be either specified or omitted, "
            f"but got no {'rtol' if rtol is None else 'atol'}."
        )
    pair = _Pair(
        rtol, atol, equal_nan, allow_subclasses, check_device, check_dtype, check_layout, check_stride
    )
    _compare(pair, actual, expected, msg)


def _compare(pair: _Pair, actual: Any, expected: Any, msg: str | Callable[[str], str] | None) -> None:
    try:
        pair.compare(actual, expected, "")
    except AssertionError as error:
        if callable(msg):
            raise AssertionError(msg(str(error))) from None
        if isinstance(msg, str):
            raise AssertionError(msg) from None
        raise


_FORMER_TOLERANCES = {float16: (1e-3, 1e-3), float32: (1e-4, 1e-5), float64: (1e-5, 1e-8)}


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` as it was before: of any dtypes, with wider tolerances, and NaN is equal to NaN."""
    actual = as_tensor(actual)
    expected = as_tensor(expected, dtype=None if isinstance(expected, Tensor) else actual.dtype)
    if rtol is None and atol is None:
        mine, its = (_FORMER_TOLERANCES.get(x.dtype, (0.0, 0.0)) for x in (actual, expected))
        rtol, atol = max(mine[0], its[0]), max(mine[1], its[1])
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None
    )


def make_tensor(
    *shape: int | Sequence[int],
    dtype: DType,
    device: Device | str,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A tensor of numbers drawn evenly from [low, high), or from what of it the dtype can hold.

    By default [-9, 9) for floats and complex numbers (both parts), [-9, 10) for integers, [0, 10) for unsigned ones
    and [0, 2) for bools. exclude_zero: with 1, or the smallest normal number, in place of zeros. noncontiguous: with
    gaps between the elements, where there are two or more. Raises ValueError for an empty range, or one that the
    dtype cannot hold, and for `requires_grad` of integers.
    """
    sizes: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    sizes = tuple(sizes)
    floating = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: noncontiguous and memory_format exclude each other, got both")
    if requires_grad and not floating:
        raise ValueError(
            f"make_tensor: `requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}"
        )
    low, high = _drawn_range(dtype, low, high)
    gaps = noncontiguous and math.prod(sizes) > 1
    result = (
        empty(*sizes[:-1], 2 * sizes[-1], dtype=dtype, device=device)
        if gaps
        else empty(sizes, dtype=dtype, device=device)
    )
    if floating:
        # Halves, so that the width of the range is a number of the dtype.
        (view_as_real(result) if dtype.is_complex else result).uniform_(low / 2, high / 2).mul_(2)
    else:
        result.random_(math.ceil(low), math.ceil(high))
    if gaps:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = finfo(dtype).tiny if floating else 1
    return result.requires_grad_(requires_grad)


def _drawn_range(dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
    """What `make_tensor` draws from: the range asked for, cut to that of the dtype."""
    floating = dtype.is_floating_point or dtype.is_complex
    if dtype is bool_:
        least, most, usual = 0, 2, (0, 2)
    elif floating:
        least, most, usual = finfo(dtype).min, finfo(dtype).max, (-9, 9)
    else:
        least, most = iinfo(dtype).min, min(iinfo(dtype).max + 1, 2**63 - 1)
        usual = (max(least, -9), 10)
    low, high = usual[0] if low is None else low, usual[1] if high is None else high
    if not low < high and not (low == high and floating):
        said = (
            "cannot be NaN"
            if low != low or high != high
            else "must be in order, the first less than the second"
        )
        raise ValueError(f"make_tensor: `low` and `high` {said}, but got {low=} and {high=}")
    if high < least or low >= most:
        raise ValueError(
            f"make_tensor: The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
            f"[{least}, {most})"
        )
    return min(max(low, least), most), min(max(high, least), most)


def assert_equivalent(
    fn: Callable[[], Any],
    world_sizes: Sequence[int] = (1, 2, 4),
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise AssertionError unless `fn` gives the same on every rank, whatever the number of ranks.

    `fn` is a program as ddprun would run it, from `init_process_group` on; here its ranks are
    threads of this process (`distributed.simulate`). What it returns (numbers, tensors, and
    sequences and mappings of them) must be equal on all ranks of a world to the bit, and be
    close, as by `assert_close`, between worlds: a sum over ranks rounds differently with their
    number.
    """
    if not world_sizes:
        raise ValueError("assert_equivalent: world_sizes must not be empty")
    first: Any = None
    for size in world_sizes:
        results = simulate(fn, size)
        for rank, result in enumerate(results[1:], start=1):
            about = f"with {size} ranks, rank {rank} does not have what rank 0 has"
            _compare(_Pair(0, 0, True), result, results[0], _after(about))
        if size == world_sizes[0]:
            first = results[0]
        about = f"{size} ranks do not give what {world_sizes[0]} give"
        # Numbers are mostly losses, sums of float32.
        pair = _Pair(rtol, atol, True, numbers=_TOLERANCES[float32])
        _compare(pair, results[0], first, _after(about))


def _after(about: str) -> Callable[[str], str]:
    return lambda message: f"{about}: {message}"


class _Pair:
    """One comparison: its tolerances, and what else must agree."""

    def __init__(
        self,
        rtol: float | None,
        atol: float | None,
        equal_nan: bool,
        allow_subclasses: bool = True,
        check_device: bool = True,
        check_dtype: bool = True,
        check_layout: bool = True,
        check_stride: bool = False,
        numbers: tuple[float, float] = _TOLERANCES[float64],
    ) -> None:
        self.tolerance = None if rtol is None or atol is None else (rtol, atol)
        self.equal_nan = equal_nan
        self.allow_subclasses = allow_subclasses
        self.check_device = check_device
        self.check_dtype = check_dtype
        self.check_layout = check_layout
        self.check_stride = check_stride
        self.numbers = numbers

    def compare(self, actual: Any, expected: Any, where: str) -> None:
        """Raise AssertionError for the first difference; `where` says which part is compared."""
        if isinstance(actual, Mapping) and isinstance(expected, Mapping):
            missing, added = (
                sorted(set(a) - set(b), key=str) for a, b in ((expected, actual), (actual, expected))
            )
            if missing or added:
                raise AssertionError(
                    f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
                    f"Additional keys in the actual mapping: {added}{_at(where)}"
                )
            for key in expected:
                self.compare(actual[key], expected[key], f"{where}[{key!r}]")
        elif _is_sequence(actual) and _is_sequence(expected):
            if len(actual) != len(expected):
                raise AssertionError(
                    f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{_at(where)}"
                )
            for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
                self.compare(a, b, f"{where}[{i}]")
        elif actual is None or expected is None:
            if actual is not expected:
                raise AssertionError(f"None mismatch: {actual} is not {expected}{_at(where)}")
        elif isinstance(actual, _BOOLS) and isinstance(expected, _BOOLS):
            if bool(actual) is not bool(expected):
                raise AssertionError(f"Booleans mismatch: {actual} is not {expected}{_at(where)}")
        elif isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
            a, b = (n.item() if isinstance(n, np.generic) else n for n in (actual, expected))
            self._numbers(a, b, where)
        else:
            self._tensors(*self._as_tensors(actual, expected, where), where)

    def _numbers(self, a: complex, b: complex, where: str) -> None:
        if self.check_dtype and type(a) is not type(b):
            raise AssertionError(f"The (d)types do not match: {type(a)} != {type(b)}.{_at(where)}")
        exact = isinstance(a, int) and isinstance(b, int)
        rtol, atol = self.tolerance or ((0.0, 0.0) if exact else self.numbers)
        if a == b or (self.equal_nan and a != a and b != b):
            return
        difference = abs(a - b)
        if not (math.isfinite(difference) and difference <= atol + rtol * abs(b)):
            raise AssertionError(_scalars_differ(a, b, rtol, atol, "Scalars") + _at(where))

    def _as_tensors(self, actual: Any, expected: Any, where: str) -> tuple[Tensor, Tensor]:
        """Both as tensors; TypeError where they are none, or of types that have nothing to do with one another."""
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        cause: Exception | None = None
        if related and (self.allow_subclasses or type(actual) is type(expected)):
            try:
                return tuple(t if isinstance(t, Tensor) else as_tensor(t) for t in (actual, expected))  # type: ignore[return-value]
            except (TypeError, ValueError, RuntimeError) as error:  # of no numbers, such as strings
                cause = error
        raise TypeError(
            "No comparison pair was able to handle inputs of type "
            f"{type(actual)} and {type(expected)}.{_at(where)}"
        ) from cause

    def _tensors(self, a: Tensor, b: Tensor, where: str) -> None:
        a, b = a.detach(), b.detach()
        strided = a.layout == b.layout == torch_strided
        for name, wanted, values in (
            ("shape", True, (a.shape, b.shape)),
            ("layout", self.check_layout, (a.layout, b.layout)),
            ("stride()", self.check_stride and strided, (a.stride(), b.stride())),
            ("device", self.check_device, (a.device, b.device)),
            ("dtype", self.check_dtype, (a.dtype, b.dtype)),
        ):
            if wanted and values[0] != values[1]:
                raise AssertionError(
                    f"The values for attribute '{name}' do not match: {values[0]} != {values[1]}.{_at(where)}"
                )
        if a.is_meta or b.is_meta:
            return
        rtol, atol = self.tolerance or tuple(
            max(pair) for pair in zip(*(_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b)), strict=True)
        )
        if a.device != b.device:
            a, b = a.cpu(), b.cpu()
        if a.dtype != b.dtype:
            a, b = (t.to(promote_types(a.dtype, b.dtype)) for t in (a, b))
        if a.layout != b.layout:
            a, b = a.to_dense(), b.to_dense()
        if isinstance(a._array, SparseArray):
            kind = a._array.layout[-3:].upper()
            for what, count in (("sparse dimensions", Tensor.sparse_dim), ("specified values", Tensor._nnz)):
                if count(a) != count(b):
                    raise AssertionError(
                        f"The number of {what} in sparse {kind} tensors does not match: {count(a)} != {count(b)}{_at(where)}"
                    )
            parts = zip(a._array.parts().items(), b._array.parts().values(), strict=True)
            for (name, mine), other in parts:
                tolerance = (rtol, atol) if name == "values" else (0.0, 0.0)
                self._values(wrap(mine), wrap(other), *tolerance, f"Sparse {kind} {name}", where)
        else:
            self._values(a, b, rtol, atol, None, where)

    def _values(self, a: Tensor, b: Tensor, rtol: float, atol: float, what: str | None, where: str) -> None:
        close = isclose(a, b, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if close.all():
            return
        if a.ndim == 0:
            raise AssertionError(
                _scalars_differ(a.item(), b.item(), rtol, atol, what or "Scalars") + _at(where)
            )
        wrong = close.numel() - int(close.sum())
        if a.dtype.category < float32.category:
            a, b = a.to(int64), b.to(int64)
        absolute = (a - b).abs().masked_fill(close, 0)
        relative = (absolute / b.abs()).masked_fill(close, 0)
        raise AssertionError(
            f"{what or 'Tensor-likes'} are not {'equal' if rtol == atol == 0 else 'close'}!\n\n"
            f"Mismatched elements: {wrong} / {close.numel()} ({wrong / close.numel():.1%})\n"
            f"Greatest absolute difference: {_greatest(absolute)}{_allowed(atol, rtol, atol)}\n"
            f"Greatest relative difference: {_greatest(relative)}{_allowed(rtol, rtol, atol)}{_at(where)}"
        )


def _scalars_differ(a: complex, b: complex, rtol: float, atol: float, what: str) -> str:
    difference = abs(a - b)
    return (
        f"{what} are not {'equal' if rtol == atol == 0 else 'close'}!\n\nExpected {b} but got {a}.\n"
        f"Absolute difference: {difference}{_allowed(atol, rtol, atol)}\n"
        f"Relative difference: {math.inf if b == 0 else difference / abs(b)}{_allowed(rtol, rtol, atol)}"
    )


def _allowed(tolerance: float, rtol: float, atol: float) -> str:
    return "" if rtol == atol == 0 else f" (up to {tolerance} allowed)"


def _at(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _greatest(differences: Tensor) -> str:
    place = np.unravel_index(int(differences.argmax()), differences.shape)
    return f"{differences[place].item()} at index {tuple(int(i) for i in place)}"


__all__ = ["assert_close", "assert_equivalent", "make_tensor"]
