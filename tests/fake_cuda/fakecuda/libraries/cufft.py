"""cuFFT by NumPy. A plan says how the elements lie; a transform back is not divided by its length, as there."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .abi import Status, finish, function, view, write

INVALID_PLAN, INVALID_VALUE = 1, 4
# By cufftType: the types before and after.
_TYPES = {
    0x29: ("complex64", "complex64"), 0x2A: ("float32", "complex64"), 0x2C: ("complex64", "float32"),
    0x69: ("complex128", "complex128"), 0x6A: ("float64", "complex128"), 0x6C: ("complex128", "float64"),
}  # fmt: skip
_FORWARD = -1


@dataclass
class Plan:
    """lengths of one transform; for the input and the output its shape in memory, step and distance in elements."""

    lengths: list[int]
    kind: int
    count: int
    layouts: list[tuple[list[int], int, int] | None]


_plans: dict[int, Plan | None] = {}
_streams: dict[int, int] = {}  # by plan
_numbers = itertools.count(1)


@function("cufftCreate", "p")
def create(out):
    number = next(_numbers)
    _plans[number] = None
    write(out, number)


function("cufftDestroy", "i")(lambda plan: _plans.pop(plan) and None)
function("cufftSetStream", "ip")(lambda plan, stream: _streams.update({plan: stream}))
function("cufftSetAutoAllocation", "ii")(lambda plan, automatic: None)
function("cufftSetWorkArea", "ip")(lambda plan, area: None)
function("cufftGetVersion", "p")(lambda out: write(out, 11401))


@function("cufftMakePlan1d", "iiiip")
def make_1d(plan, length, kind, count, size):
    _make(plan, Plan([length], kind, count, [None, None]), size)


@function("cufftMakePlanMany", "iippiipiiiip")
def make_many(plan, rank, lengths, inembed, istride, idist, onembed, ostride, odist, kind, count, size):
    def numbers(address: int) -> list[int]:
        import ctypes

        return list((ctypes.c_int * rank).from_address(address))

    inside = (numbers(inembed), istride, idist) if inembed else None
    outside = (numbers(onembed), ostride, odist) if onembed else None
    _make(plan, Plan(numbers(lengths), kind, count, [inside, outside]), size)


def _make(number: int, plan: Plan, size: int) -> None:
    if number not in _plans:
        raise Status(INVALID_PLAN, f"there is no plan {number}")
    if plan.kind not in _TYPES or min(plan.lengths) < 1 or plan.count < 1:
        raise Status(INVALID_VALUE, f"a plan of {plan}")
    _plans[number] = plan
    write(size, 16, np.uintp)


def _place(plan: Plan, side: int, address: int) -> Any:
    """The elements of all transforms (count, *lengths) on one side, in their place."""
    dtype = np.dtype(_TYPES[plan.kind][side])
    lengths = list(plan.lengths)
    if dtype.kind == "c" and "float" in " ".join(_TYPES[plan.kind]):
        lengths[-1] = lengths[-1] // 2 + 1
    layout = plan.layouts[side]
    embed, step, distance = layout if layout is not None else (lengths, 1, int(np.prod(lengths)))
    steps = [step] * len(lengths)
    for i in range(len(lengths) - 2, -1, -1):
        steps[i] = steps[i + 1] * embed[i + 1]
    return view(address, dtype, (plan.count, *lengths), (distance, *steps), "cuFFT")


def _run(number: int, source: int, target: int, direction: int, *kinds: int) -> None:
    plan = _plans.get(number)
    if plan is None or plan.kind not in kinds:
        raise Status(INVALID_PLAN, f"plan {number} is of another kind, or of none")
    finish(_streams.get(number, 0))
    given, out = _place(plan, 0, source).copy(), _place(plan, 1, target)
    axes = list(range(1, len(plan.lengths) + 1))
    if given.dtype.kind == "f":
        out[...] = np.fft.rfftn(given, axes=axes)
    elif out.dtype.kind == "f":
        out[...] = np.fft.irfftn(given, plan.lengths, axes=axes, norm="forward")
    elif direction == _FORWARD:
        out[...] = np.fft.fftn(given, axes=axes)
    else:
        out[...] = np.fft.ifftn(given, axes=axes, norm="forward")


for _name, _kind in {"C2C": 0x29, "Z2Z": 0x69}.items():
    function(f"cufftExec{_name}", "ippi")(
        lambda plan, source, target, direction, kind=_kind: _run(plan, source, target, direction, kind)
    )
for _name, _kind in {"R2C": 0x2A, "C2R": 0x2C, "D2Z": 0x6A, "Z2D": 0x6C}.items():
    function(f"cufftExec{_name}", "ipp")(
        lambda plan, source, target, kind=_kind: _run(plan, source, target, 0, kind)
    )
