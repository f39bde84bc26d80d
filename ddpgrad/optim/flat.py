"""Flat memory: parameters whose gradients lie side by side are updated by one kernel call.

Under data parallelism the gradients of a group are views of a few buckets. Gradients that
follow one another with no more than padding between them form a run, with their parameters
and optimizer state. When a run is planned, its parameters and each kind of its state are laid
out in one flat array as the gradients are: values are copied once, every Tensor stays the
same object and becomes a view of that array. Views of a parameter's former memory that were
taken before (`p.data`, `p.detach()`, a `state_dict()`) no longer follow it then; take them
anew. What the kernel makes of the padding is not read by anyone.

A gradient on its own (a fresh one in each backward, as without data parallelism) makes a run
of one, for which nothing is moved. Plans are checked at each step by the identity of all
that they rest on, so gradients, parameters and state may be replaced at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.registry import backend_for
from ..ops import update as _update  # noqa: F401  registers the kernels' portable bodies
from ..tensor import Tensor, wrap

Array = Any
State = dict[str, Any]
NewState = Callable[[Tensor, str], Tensor]

STEP = "step"
"""The state that counts updates: float32, in host memory, one element per parameter."""

_PADDING = 64
"""Bytes: gradients of a bucket start at multiples of this, so there is less than this between two."""


class Run:
    """What one kernel call updates. All arrays are flat, real and of one length, but for the steps.

    first: the state has not been used yet. backend: the kernels for `param`.
    """

    __slots__ = ("_copied", "_fresh", "_params", "backend", "grad", "param", "state")

    def __init__(
        self, params: Sequence[Tensor], param: Array, grad: Array, state: dict[str, Array], fresh: set[Tensor]
    ) -> None:
        self._params = params
        self._fresh = fresh
        self._copied = False
        self.backend = backend_for(param)
        self.param, self.grad, self.state = _real(param), _real(grad), state

    @property
    def first(self) -> bool:
        return self._params[0] in self._fresh

    def next_step(self) -> int:
        """Count this update; its number, from 1."""
        steps = self.state[STEP]
        steps += 1
        return int(steps[0])

    def finish(self) -> None:
        """The kernel has run: what depends on the old values must find out."""
        if self._copied:
            (parameter,) = self._params
            parameter._array[...] = _typed(self.param, parameter._array.dtype).reshape(parameter._array.shape)
        for parameter in self._params:
            parameter._versions[0] += 1
        if self._fresh:
            self._fresh.difference_update(self._params)


class _Member:
    """One parameter in a plan, with the arrays whose identity the plan rests on.

    grad: None for a parameter without a gradient; `single` members keep no array, so that
    gradients of former steps are not kept alive.
    """

    __slots__ = ("base", "grad", "live", "param", "single", "state", "values", "variable")

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.live = variable._grad is not None
        self.single = True
        self.base: Array = None
        self.grad: Array = None
        self.param: Array = None
        self.state: State | None = None
        self.values: tuple[Array, ...] = ()


class _Owners:
    """The state of each parameter, made where there is none yet.

    names: the kinds of state that the kernel takes. fresh: whose state no step has used yet.
    """

    __slots__ = ("_new", "fresh", "names", "states")

    def __init__(
        self, states: dict[Tensor, State], names: tuple[str, ...], new: NewState, fresh: set[Tensor]
    ) -> None:
        self.states, self.names, self.fresh = states, names, fresh
        self._new = new

    def __getitem__(self, parameter: Tensor) -> State:
        if not self.names:
            return {}  # and none is recorded
        state = self.states[parameter]
        for name in self.names:
            if state.get(name) is None:
                state[name] = self._new(parameter, name)
                self.fresh.add(parameter)
        return state

    def age(self, parameter: Tensor) -> tuple[bool, int]:
        """What the state of all parameters of a run must have in common."""
        state = self[parameter]
        return parameter in self.fresh, int(state[STEP]) if STEP in self.names else 0


class FlatMemory:
    """The plans of one optimizer, by parameter group."""

    def __init__(self) -> None:
        self._plans: dict[int, _Plan] = {}
        self._fresh: set[Tensor] = set()

    def runs(
        self, group: dict[str, Any], states: dict[Tensor, State], names: tuple[str, ...], new: NewState
    ) -> list[Run]:
        """The runs that update all parameters of `group` that have a gradient.

        states: of all parameters of the optimizer. names: the kinds of state that the kernel
        takes. new: makes state of one kind for a parameter that has none.
        """
        owners = _Owners(states, names, new, self._fresh)
        plan = self._plans.get(id(group))
        if plan is None or not plan.holds(group["params"], owners):
            plan = self._plans[id(group)] = _Plan(group["params"], owners)
        return plan.runs(owners)

    def forget(self) -> None:
        """Plan anew at the next step."""
        self._plans.clear()
        self._fresh.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatMemory:
        return FlatMemory()


class _Plan:
    """Which parameters of a group are updated together."""

    def __init__(self, params: Sequence[Tensor], owners: _Owners) -> None:
        self.names = owners.names
        self.members = [_Member(p) for p in params]
        self.joint = [_join(chain, owners) for chain in self._chains(owners)]
        self.singles = [m.variable for m in self.members if m.live and m.single]

    def runs(self, owners: _Owners) -> list[Run]:
        """The joint runs, and one for each gradient on its own."""
        return [*self.joint, *[_alone(p, owners) for p in self.singles]]

    def holds(self, params: Sequence[Tensor], owners: _Owners) -> bool:
        """True when everything is still where it was planned."""
        names, states = owners.names, owners.states
        if len(params) != len(self.members) or names != self.names:
            return False
        bases: set[int] = set()
        for p, member in zip(params, self.members, strict=True):
            grad = p._grad
            if p is not member.variable or (grad is not None) is not member.live:
                return False
            if grad is None:
                continue
            array = grad._array
            if member.single:
                base = array.base
                if base is not None and base is not member.base:
                    if id(base) in bases:  # gradients share memory now: perhaps they can be joined
                        return False
                    bases.add(id(base))
                continue
            if array is not member.grad or p._array is not member.param:
                return False
            if not names:
                continue
            state = states.get(p)
            if state is None or state is not member.state:
                return False
            for name, value in zip(names, member.values, strict=True):
                found = state.get(name)
                if found is None or found._array is not value:
                    return False
        return True

    def _chains(self, owners: _Owners) -> list[list[_Member]]:
        """Members whose gradients follow one another in one block, and whose states are equally old."""
        live = [m for m in self.members if m.live]
        tied = _tied([m.variable for m in live])
        blocks: dict[tuple[int, Any], list[tuple[int, _Member]]] = {}
        for member in live:
            if member.variable in tied:
                continue
            array = _gradient(member.variable)
            if (
                array.base is not None
                and array.size
                and array.flags.c_contiguous
                and array.base.flags.c_contiguous
            ):
                member.base = array.base
                blocks.setdefault((id(array.base), array.dtype), []).append((_address(array), member))
        chains: list[list[_Member]] = []
        for block in blocks.values():
            if len(block) == 1:
                block[0][1].base = None  # nobody to be joined with; do not keep its memory alive
                continue
            end, age = -_PADDING, None
            for address, member in sorted(block, key=lambda item: item[0]):
                grad, its_age = _gradient(member.variable), owners.age(member.variable)
                gap = address - end
                if not 0 <= gap < _PADDING or gap % grad.itemsize or its_age != age:
                    chains.append([])
                chains[-1].append(member)
                end, age = address + grad.nbytes, its_age
        return [chain for chain in chains if len(chain) > 1]


def _join(chain: list[_Member], owners: _Owners) -> Run:
    """One run of the whole chain, over flat memory; its members remember what it rests on."""
    variables = [m.variable for m in chain]
    grads = [_gradient(p) for p in variables]
    states = [owners[p] for p in variables]
    origin = _address(grads[0])
    places = [(_address(g) - origin) // g.itemsize for g in grads]
    grad = _joined(grads, places)
    assert grad is not None
    param = _lay_flat(variables, places)
    flat_state = {
        name: _lay_flat([state[name] for state in states], range(len(chain)) if name == STEP else places)
        for name in owners.names
    }
    for member, gradient, state in zip(chain, grads, states, strict=True):
        member.single = False
        member.grad, member.param, member.state = gradient, member.variable._array, state
        member.values = tuple(state[name]._array for name in owners.names)
    return Run(variables, param, grad, {k: _real(v) for k, v in flat_state.items()}, owners.fresh)


def _gradient(parameter: Tensor) -> Array:
    assert parameter._grad is not None
    return parameter._grad._array


def _alone(parameter: Tensor, owners: _Owners) -> Run:
    """The run of one parameter, over its own memory."""
    state = owners[parameter]
    flat_state = {}
    for name in owners.names:
        value = state[name]
        if not value._array.flags.c_contiguous:
            value._array = backend_for(value._array).contiguous(value._array)
        flat_state[name] = _real(value._array.reshape(-1))
    array = parameter._array
    run = Run((parameter,), array.reshape(-1), _gradient(parameter).reshape(-1), flat_state, owners.fresh)
    # Flattening copies what is not contiguous: the kernel then works on a copy of the parameter.
    run._copied = not array.flags.c_contiguous
    return run


def _address(array: Array) -> int:
    """Of the first byte, in host or device memory."""
    interface = getattr(array, "__array_interface__", None) or array.__cuda_array_interface__
    return interface["data"][0]


def _joined(arrays: Sequence[Array], places: Sequence[int]) -> Array | None:
    """One flat view in which each array starts at its place, counted in elements; None if they do not lie so."""
    first = arrays[0]
    base, dtype = first.base, first.dtype
    if base is None or not base.flags.c_contiguous:
        return None
    start = _address(first)
    for array, place in zip(arrays, places, strict=True):
        if array.base is not base or array.dtype != dtype or not array.flags.c_contiguous:
            return None
        if _address(array) != start + place * dtype.itemsize:
            return None
    offset = start - _address(base)
    size = (places[-1] + arrays[-1].size) * dtype.itemsize
    return base.reshape(-1).view(np.uint8)[offset : offset + size].view(dtype)


def _lay_flat(tensors: Sequence[Tensor], places: Sequence[int]) -> Array:
    """Make the tensors views of one flat array, each at its place; of the one that they are in, if it is so already."""
    arrays = [t._array for t in tensors]
    flat = _joined(arrays, places)
    if flat is None:
        flat = backend_for(arrays[0]).new_zeros(arrays[0], (places[-1] + arrays[-1].size,))
        for tensor, array, place in zip(tensors, arrays, places, strict=True):
            tensor._array = flat[place : place + array.size].reshape(array.shape)
            tensor._array[...] = array
    return flat


def _tied(tensors: Sequence[Tensor]) -> set[Tensor]:
    """Those that share memory with another: laying them out anew would part what the user has tied."""
    spans = sorted(((_address(t._array), t._array.nbytes, t) for t in tensors), key=lambda span: span[:2])
    tied: set[Tensor] = set()
    end, last = -1, None
    for start, size, tensor in spans:
        if last is not None and start < end and last is not tensor:
            tied |= {last, tensor}
        if start + size > end:
            end, last = start + size, tensor
    return tied


def _real(array: Array) -> Array:
    """Complex numbers as pairs of real ones, which optimizers treat independently."""
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def _typed(array: Array, dtype: Any) -> Array:
    return array if array.dtype == dtype else array.view(dtype)


def zeros_like(parameter: Tensor) -> Tensor:
    """State for a parameter: zeros of its shape, dtype and device, contiguous."""
    array = parameter._array
    return wrap(backend_for(array).new_zeros(array, array.shape))


def new_step() -> Tensor:
    """The count of updates of a parameter that has had none."""
    return wrap(np.zeros((), np.float32))
