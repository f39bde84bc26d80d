"""Flat memory: parameters whose gradients are neighbours are updated by one kernel call.

Under data parallelism the gradients of a group are views of a few buckets. Gradients that follow one another with no more
than padding between them form a piece, with their parameters and optimizer state. When a piece is planned, its parameters
and each kind of its state are laid out in one flat array as the gradients are: values are copied once, every Tensor stays
the same object and becomes a view of that array. A parameter whose memory somebody else has too (`p.data`, `p.detach()`, a
`state_dict()`, an array of NumPy's, a buffer that it is a view of) stays where it is for as long. What the kernel makes of the padding is not read by anyone.

A gradient on its own (a fresh one in each backward, as without data parallelism) makes a piece
of one, for which nothing is moved. Pieces whose states are equally old form a run, for which the
kernel is called once. At each step the identity of all that a plan rests on is checked, so
gradients, parameters and state may be replaced at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.elementary.shape import address_of
from ..backend.registry import SparseArray, Unsupported, backend_for
from ..core.tensor import Tensor
from ..ops.dispatch.update import Rule
from .layout import Piece, Single, joined, lay_flat, lent, lies_flat, references, tied

Array = Any
State = dict[str, Any]
States = dict[Tensor, State]
NewState = Callable[[Tensor, str], Tensor]

STEP = "step"
"""The state that counts updates."""

SCALARS = frozenset({STEP, "mu_product", "eta", "mu"})
"""State that is one number per parameter: 0-dimensional, in host memory unless a kernel is to read it on a device."""

_PADDING = 64
"""Bytes: gradients of a bucket start at multiples of this, so there is less than this between two."""


class Run:
    """What is updated with the same numbers: pieces of memory whose states are equally old.

    scalars: by name, flat; they have one value for all parameters. backend: the kernels for these arrays.
    """

    __slots__ = ("_fresh", "_variables", "backend", "pieces", "scalars")

    def __init__(
        self,
        variables: Sequence[Tensor],
        pieces: Sequence[Piece],
        scalars: dict[str, Array],
        fresh: set[Tensor],
    ) -> None:
        self._variables = variables
        self._fresh = fresh
        self.pieces, self.scalars = pieces, scalars
        self.backend = backend_for(variables[0]._array)

    @property
    def first(self) -> bool:
        """True when no step has used the state yet."""
        return self._variables[0] in self._fresh

    def next_step(self, skip: Array = None) -> Any:
        """Count this update, unless `skip`; its number, from 1."""
        steps = self.scalars[STEP]
        steps += 1 if skip is None else 1 - skip
        return self.scalar(STEP)

    def numbers_of_step(self, rule: Rule, skip: Array, *given: Any) -> tuple[Any, ...]:
        """Count this update, unless `skip`; what rule(F, its number, *given) makes of that, by one kernel on a GPU."""
        step = self.scalars[STEP]
        step += 1 if skip is None else 1 - skip
        if (
            not any(isinstance(x, Tensor) for x in (step, *given))
            and (on := backend_for(step)).kind == "cuda"
        ):
            return on.numbers_of_step(rule, step, given)
        return rule(self.backend, self.scalar(STEP), *given)

    def scalar(self, name: str) -> Any:
        """The value of a scalar: a number, or a 0-d float64 array on the device."""
        values = self.scalars[name]
        return float(values[0]) if isinstance(values, np.ndarray) else values[0].astype(np.float64)

    def multiplied(self, name: str, factor: Any) -> Any:
        """The value of a scalar after it is multiplied by `factor`; with the history of both, if one is a Tensor."""
        values = self.scalars[name]
        if isinstance(factor, Tensor) or isinstance(values, Tensor):
            before = values if isinstance(values, Tensor) else self.scalar(name)
            self.scalars[name] = product = before * factor
            return product
        values *= factor
        return self.scalar(name)

    def apply(
        self,
        rule: Rule,
        numbers: Sequence[Any],
        scale: Any = 1.0,
        decay: Any = 0.0,
        shrink: Any = 1.0,
        skip: Array = None,
    ) -> None:
        """Let a rule change the parameters and their state (see `ops/dispatch/update.py`)."""
        targets = [(piece.param, piece.grad, *piece.states) for piece in self.pieces]
        self.backend.update_(rule, targets, numbers, scale, decay, shrink, skip)
        for piece in self.pieces:
            piece.finish()
        for parameter in self._variables:  # what depends on the old values must find out
            parameter._versions[0] += 1
        if self._fresh:
            self._fresh.difference_update(self._variables)


class _Member:
    """One parameter in a plan, with the arrays whose identity the plan rests on.

    live: it has a gradient. grad: its array, in a joint piece. base: what that array is a view
    of, if other gradients are too. single: its piece, if it is alone in it. lent: how many referred
    to the parameter's array when somebody else did.
    """

    __slots__ = ("base", "grad", "lent", "live", "param", "single", "state", "values", "variable")

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.live = variable._grad is not None
        self.base: Array = None
        self.grad: Array = None
        self.param: Array = None
        self.single: Single | None = None
        self.lent = 0

    def remember(self, owners: _Owners) -> None:
        """Note where the parameter and its state are now."""
        self.param = self.variable._array
        self.state = owners[self.variable]
        self.values = tuple([self.state[name]._array for name in owners.names])
        if self.lent:
            self.lent = references(self.variable)

    def in_place(self, owners: _Owners) -> bool:
        """True when the parameter and its state are where they were."""
        if self.variable._array is not self.param:
            return False
        if not owners.names:
            return True
        state = owners.states.get(self.variable)
        if state is None or state is not self.state:
            return False
        for name, value in zip(owners.names, self.values, strict=True):
            found = state.get(name)
            if found is None or found._array is not value:
                return False
        return True


class _Owners:
    """The state of each parameter, made where there is none yet.

    names: the kinds of state that there are; arrays: those that are no scalars. fresh: whose state
    no step has used yet.
    """

    __slots__ = ("_new", "arrays", "fresh", "names", "states")

    def __init__(
        self, states: dict[Tensor, State], names: tuple[str, ...], new: NewState, fresh: set[Tensor]
    ) -> None:
        self.states, self.names, self.fresh = states, names, fresh
        self.arrays = [name for name in names if name not in SCALARS]
        self._new = new

    def __getitem__(self, parameter: Tensor) -> State:
        if not self.names:
            return {}  # and none is recorded
        state = self.states[parameter]
        lacking = [name for name in self.names if state.get(name) is None]
        if 0 < len(lacking) < len(self.names):
            have = ", ".join(repr(name) for name in self.names if name not in lacking)
            raise KeyError(
                f"the optimizer's state of a parameter of shape {list(parameter.shape)} has {have} and lacks {lacking[0]!r}: "
                "it was loaded in part, or made before an option such as amsgrad was changed. Load all of it, or none"
            )
        for name in lacking:
            state[name] = self._new(parameter, name)
            self.fresh.add(parameter)
        if any(state[name]._array.shape != parameter._array.shape for name in self.arrays):
            why = "its .data was replaced, or fully_shard has divided it; make the optimizer after that"
            raise RuntimeError(f"optimizer state does not have the shape of its parameter: {why}")
        return state

    def age(self, parameter: Tensor) -> tuple[Any, ...]:
        """What the state of all parameters of a run must have in common."""
        state = self[parameter]
        return parameter in self.fresh, *[float(state[name]) for name in self.names if name in SCALARS]


class FlatMemory:
    """The plans of one optimizer, by parameter group."""

    def __init__(self) -> None:
        self._plans: dict[int, _Plan] = {}
        self._fresh: set[Tensor] = set()

    def runs(
        self, key: int, params: Sequence[Tensor], states: States, names: tuple[str, ...], new: NewState
    ) -> list[Run]:
        """The runs that update those of `params` that have a gradient; `Unsupported` if it is sparse. key: of their group.

        states: of all parameters of the optimizer. names: the kinds of state that there are. new: makes state of one kind for a parameter that has none.
        """
        owners = _Owners(states, names, new, self._fresh)
        plan = self._plans.get(key)
        if plan is None or not plan.renew(params, owners):
            plan = self._plans[key] = _Plan(params, owners, plan)
        return plan.runs

    def __deepcopy__(self, memo: dict[int, Any]) -> FlatMemory:
        return FlatMemory()


class _Plan:
    """Which parameters of a group are updated together. runs: what to call the kernel for."""

    def __init__(self, params: Sequence[Tensor], owners: _Owners, former: _Plan | None) -> None:
        if any(p._grad is not None and isinstance(p._grad._array, SparseArray) for p in params):
            raise Unsupported("sparse gradients are no pieces of flat memory")
        self.names, self.members = owners.names, [_Member(p) for p in params]
        self.joint: list[tuple[list[_Member], Piece]] = []
        known = former if former is not None and former.names == self.names else None
        found = [(chain, known and known.same(chain, owners)) for chain in self._chains(owners)]
        if former is not None:
            former.forget()
        for chain, kept in found:
            self.joint += [kept] if kept else [(part, _join(part, owners)) for part in _parts(chain)]
        by_variable = {id(m.variable): m for chain, _ in self.joint for m in chain}
        self.members = [by_variable.get(id(m.variable), m) for m in self.members]
        pieces = [piece for _, piece in self.joint]
        for member in self.members:
            if member.live and member.grad is None:
                p = member.variable
                member.single = Single.over(p, _gradient(p), owners[p], owners.arrays)
                pieces.append(member.single)
        self.runs = _runs(pieces, owners)
        for member in self.members:
            if member.live:
                member.remember(owners)

    def same(self, chain: list[_Member], owners: _Owners) -> tuple[list[_Member], Piece] | None:
        """What this plan has for exactly these parameters and gradients, if it is still in place."""
        for members, piece in self.joint:
            if len(members) == len(chain) and all(
                m.variable is new.variable and m.grad is _gradient(new.variable) and m.in_place(owners)
                for m, new in zip(members, chain, strict=True)
            ):
                return members, piece
        return None

    def forget(self) -> None:
        """Refer to no parameter any more: whether others do is asked for by counting."""
        for member in self.members:
            member.param = member.single = None
        self.runs = []

    def renew(self, params: Sequence[Tensor], owners: _Owners) -> bool:
        """Take up this step's gradients. False when something is not where it was planned."""
        if len(params) != len(self.members) or owners.names != self.names:
            return False
        bases: set[int] = set()
        for p, member in zip(params, self.members, strict=True):
            grad = p._grad
            if p is not member.variable or (grad is not None) is not member.live:
                return False
            if grad is None:
                continue
            array = grad._array
            if not member.in_place(owners):
                return False
            if member.single is None:
                if array is not member.grad:
                    return False
                continue
            if array.shape != member.param.shape:
                raise misfit(array, member.param)
            if member.lent and member.lent > references(member.variable):  # perhaps it can be joined
                return False
            base = array.base
            if base is not None and base is not member.base:
                if id(base) in bases:  # gradients share memory now: perhaps they can be joined
                    return False
                bases.add(id(base))
            member.single.renew(array)
        return True

    def _chains(self, owners: _Owners) -> list[list[_Member]]:
        """Members whose gradients follow one another in one block, and whose states are equally old."""
        live = [m for m in self.members if m.live]
        kept = tied([m.variable for m in live])
        blocks: dict[tuple[int, Any], list[tuple[int, _Member]]] = {}
        for member in live:
            grad = _gradient(member.variable)
            base = grad.base
            if base is None or member.variable in kept or not grad.size:
                continue
            if grad.flags.c_contiguous and base.flags.c_contiguous:
                member.base = base
                blocks.setdefault((id(base), grad.dtype), []).append((address_of(grad), member))
        chains: list[list[_Member]] = []
        for block in blocks.values():
            if len(block) == 1:
                block[0][1].base = None  # nobody to be joined with; do not keep its memory alive
                continue
            end, age = -_PADDING, None
            for start, member in sorted(block, key=lambda item: item[0]):
                grad, its_age = _gradient(member.variable), owners.age(member.variable)
                gap = start - end
                if not 0 <= gap < _PADDING or gap % grad.itemsize or its_age != age:
                    chains.append([])
                chains[-1].append(member)
                end, age = start + grad.nbytes, its_age
        return [chain for chain in chains if len(chain) > 1]


def _gradient(parameter: Tensor) -> Array:
    assert parameter._grad is not None
    array = parameter._grad._array
    if array.shape != parameter._array.shape:
        raise misfit(array, parameter._array)
    return array


def misfit(grad: Array, param: Array) -> RuntimeError:
    """The error for a gradient that has another shape than its parameter: flat, they would be paired by accident."""
    return RuntimeError(
        f"a gradient of shape {list(grad.shape)} does not fit its parameter of shape {list(param.shape)}: .data of one of them "
        "was replaced; set .grad to None then"
    )


def _runs(pieces: Sequence[Piece], owners: _Owners) -> list[Run]:
    """Runs of pieces that have the class of arrays, type, device and age in common."""
    alike: dict[Any, list[Piece]] = {}
    for piece in pieces:
        device = backend_for(piece.param).device_of(piece.param)
        key = piece.param.__class__, piece.param.dtype, device, owners.age(piece.variables[0])
        alike.setdefault(key, []).append(piece)
    runs = []
    for together in alike.values():
        variables = [p for piece in together for p in piece.variables]
        scalars = {
            name: lay_flat([owners[p][name] for p in variables], range(len(variables)))
            for name in owners.names
            if name in SCALARS
        }
        runs.append(Run(variables, together, scalars, owners.fresh))
    return runs


def _places(grads: Sequence[Array]) -> list[int]:
    """How many elements after the first gradient each begins."""
    origin = address_of(grads[0])
    return [(address_of(g) - origin) // g.itemsize for g in grads]


def _parts(chain: list[_Member]) -> list[list[_Member]]:
    """Of a chain whose parameters would have to be moved those stretches in which nobody else has their memory."""
    variables = [m.variable for m in chain]
    for member, count in zip(chain, lent(variables), strict=True):
        member.lent = count
    places = _places([_gradient(p) for p in variables])
    if not any(m.lent for m in chain) or lies_flat(variables, places) is not None:
        return [chain]
    parts: list[list[_Member]] = [[]]
    for member in chain:
        if member.lent:
            parts.append([])
        else:
            parts[-1].append(member)
    return [part for part in parts if len(part) > 1]


def _join(chain: list[_Member], owners: _Owners) -> Piece:
    """One piece for the whole chain, over flat memory."""
    variables = [m.variable for m in chain]
    grads = [_gradient(p) for p in variables]
    states = [owners[p] for p in variables]
    places = _places(grads)
    grad = joined(grads, places)
    assert grad is not None
    param = lay_flat(variables, places)
    flat_states = [lay_flat([state[name] for state in states], places) for name in owners.arrays]
    for member, gradient in zip(chain, grads, strict=True):
        member.grad = gradient
    return Piece(variables, param, grad, flat_states)
