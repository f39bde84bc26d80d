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
)
from .core.size import MemoryFormat
from .core.tensor import Tensor
from .distributed import simulate
from .ops.creation.data import as_tensor
from .ops.creation.factories import empty
from .ops.elementwise.complex import view_as_real

# (relative, absolute): what PyTorch allows by default; other types must be equal.
_TOLERANCES: dict[DType, tuple[float, float]] = {
    float16: (1e-3, 1e-5),
    bfloat16: (1.6e-2, 1e-5),
    float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7),
    complex64: (1.3e-6, 1e-5),
    complex128: (1e-7, 1e-7),
}


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

    Takes tensors, arrays, numbers, and sequences and mappings of them. rtol and atol: both or
    neither; by default they go by the dtypes. The message counts the mismatches and shows the
    greatest differences and where they are.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"rtol and atol must both be specified or both be unspecified, got rtol={rtol} and atol={atol}"
        )
    pair = _Pair(rtol, atol, equal_nan, check_device, check_dtype, check_stride)
    try:
        pair.compare(actual, expected, "")
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


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
        raise ValueError(f"make_tensor: requires_grad is for floating-point and complex dtypes, got {dtype}")
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
        raise ValueError(f"make_tensor: `low` must be less than `high`, got {low} and {high}")
    if high < least or low >= most:
        raise ValueError(f"make_tensor: {dtype} holds [{least}, {most}), got the range [{low}, {high})")
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
            assert_close(result, results[0], rtol=0, atol=0, equal_nan=True, msg=_after(about))
        if size == world_sizes[0]:
            first = results[0]
        about = f"{size} ranks do not give what {world_sizes[0]} give"
        assert_close(results[0], first, rtol=rtol, atol=atol, equal_nan=True, msg=_after(about))


def _after(about: str) -> Callable[[str], str]:
    return lambda message: f"{about}: {message}"


class _Pair:
    """One comparison: its tolerances, and what else must agree."""

    def __init__(
        self,
        rtol: float | None,
        atol: float | None,
        equal_nan: bool,
        check_device: bool,
        check_dtype: bool,
        check_stride: bool,
    ) -> None:
        self.tolerance = None if rtol is None or atol is None else (rtol, atol)
        self.equal_nan = equal_nan
        self.check_device = check_device
        self.check_dtype = check_dtype
        self.check_stride = check_stride

    def compare(self, actual: Any, expected: Any, where: str) -> None:
        """Raise AssertionError for the first difference; `where` says which part is compared."""
        if isinstance(actual, Mapping) and isinstance(expected, Mapping):
            if set(actual) != set(expected):
                only = [
                    sorted(map(str, set(a) - set(b))) for a, b in ((actual, expected), (expected, actual))
                ]
                raise AssertionError(f"The keys of the mappings do not match:{_at(where)}\n"
                                     f"only in actual: {only[0]}, only in expected: {only[1]}")  # fmt: skip
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
        else:
            self._leaves(actual, expected, where)

    def _leaves(self, actual: Any, expected: Any, where: str) -> None:
        given = isinstance(actual, Tensor) or isinstance(expected, Tensor)
        if given and not (isinstance(actual, Tensor) and isinstance(expected, Tensor)):
            raise TypeError(
                f"assert_close: expected two tensors, got {type(actual).__name__} and {type(expected).__name__}{_at(where)}"
            )
        arrays = isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray)
        a, b = as_tensor(actual).detach(), as_tensor(expected).detach()
        if a.shape != b.shape:
            raise AssertionError(
                f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.{_at(where)}"
            )
        checks = [("device", self.check_device and given), ("dtype", self.check_dtype and (given or arrays))]
        for name, wanted in checks:
            if wanted and getattr(a, name) != getattr(b, name):
                raise AssertionError(
                    f"The values for attribute '{name}' do not match: {getattr(a, name)} != {getattr(b, name)}.{_at(where)}"
                )
        if self.check_stride and a.stride() != b.stride():
            raise AssertionError(
                f"The values for attribute 'stride()' do not match: {a.stride()} != {b.stride()}.{_at(where)}"
            )
        if a.is_meta and b.is_meta:
            return
        a, b = (t.to_dense() if t.is_sparse else t for t in (a, b))
        rtol, atol = self.tolerance or tuple(
            max(pair) for pair in zip(*(_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b)), strict=True)
        )
        self._numbers(_wide(a), _wide(b), rtol, atol, where)

    def _numbers(self, a: np.ndarray, b: np.ndarray, rtol: float, atol: float, where: str) -> None:
        close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if close.all():
            return
        with np.errstate(all="ignore"):
            absolute = np.where(close, 0, np.abs(a - b))
            relative = np.where(close, 0, absolute / np.abs(b))
        if a.ndim == 0:
            kind = "Tensor-likes" if where else "Scalars"
            text = (
                f"{kind} are not close!\n\nExpected {b.item()} but got {a.item()}.\n"
                f"Absolute difference: {absolute.item()} (up to {atol} allowed)\n"
                f"Relative difference: {relative.item()} (up to {rtol} allowed)"
            )
        else:
            wrong = close.size - int(close.sum())
            text = (
                f"Tensor-likes are not {'equal' if rtol == atol == 0 else 'close'}!\n\n"
                f"Mismatched elements: {wrong} / {close.size} ({100 * wrong / close.size:.1f}%)\n"
                f"Greatest absolute difference: {_greatest(absolute)} (up to {atol} allowed)\n"
                f"Greatest relative difference: {_greatest(relative)} (up to {rtol} allowed)"
            )
        raise AssertionError(text + _at(where))


def _at(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _wide(t: Tensor) -> np.ndarray:
    """The elements in the widest type of their kind, so that differences are exact enough and do not wrap."""
    wide = {0: np.int64, 1: np.int64, 2: np.float64, 3: np.complex128}[t.dtype.category]
    return t.cpu().numpy().astype(wide)


def _greatest(differences: np.ndarray) -> str:
    place = np.unravel_index(np.argmax(np.nan_to_num(differences, nan=np.inf)), differences.shape)
    return f"{differences[place]} at index {tuple(int(i) for i in place)}"


__all__ = ["assert_close", "assert_equivalent", "make_tensor"]
