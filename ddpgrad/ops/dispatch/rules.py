"""The gradient rules of an op: what they need of a call, what is therefore kept, and how backward asks them.

How a rule is written is told in `declare.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .declare import Op

Rule = Callable[..., Any]


def set_rules(
    op: Op, grads: Mapping[str, Rule], joint: Rule | None, kept_for: Mapping[str, Sequence[str]]
) -> None:
    """Work out what the rules need by their parameter names, and bind them to what is kept."""
    names: list[str] = []
    skipped = 3 if joint is not None else 2  # F, g and, for a joint rule, needs
    for rule in grads.values() if joint is None else [joint]:
        for name in _parameters(rule)[skipped:]:
            if name not in names:
                names.append(name)
    # The shapes of all tensors are at hand as soon as a rule asks for one.
    op.shapes = op.tensors if any(f"{op.params[i]}_shape" in names for i in op.tensors) else ()
    known = (*op.params, "out", *op.extras, *(f"{op.params[i]}_shape" for i in op.shapes))
    for name in [*names, *grads]:
        if name not in known:
            raise TypeError(
                f"op {op.name}: a gradient rule names '{name}', which is none of {', '.join(known)}"
            )
    op.keep = tuple(names)
    op.kept_tensors = tuple((i, op.tensors.index(op.params.index(n))) for i, n in enumerate(names)
                            if n in op.params and op.params.index(n) in op.tensors)  # fmt: skip
    op.plans = _plans(op, grads, names, known, kept_for)
    op.one_plan = len(set(map(id, op.plans))) == 1
    # Other arguments that are kept and may hold tensors, such as indices.
    op.watched = tuple(
        i for i, p in enumerate(op.signature.parameters.values())
        if p.name in names and i not in op.tensors and str(p.annotation) == "Any"
    )  # fmt: skip
    op.keeps_values = bool(op.kept_tensors) or any(n in op.extras for n in names)
    op.joint = joint
    op.rules = ()
    if grads and joint is None:
        op.rules = tuple(
            _bind_rule(grads[op.params[i]], names) if op.params[i] in grads else None for i in op.tensors
        )
    op.backward = _bind_backward(op, grads)
    op.backward.__name__ = f"{op.name}_backward"  # as tracebacks and the code of captured steps call it


def _parameters(rule: Rule) -> tuple[str, ...]:
    """The names of what a rule takes; `inspect.signature` takes ten times as long, which importing would feel."""
    return rule.__code__.co_varnames[: rule.__code__.co_argcount]


class Plan(NamedTuple):
    """What to keep for backward, given which tensor arguments need a gradient.

    pick: takes it from (arguments..., out, extras..., shapes..., None), in the order of
    `op.keep`, with None for what is not needed. inputs: positions of the tensor arguments whose versions are guarded;
    given: their positions among the tensor arguments. guards_out: whether the version of the output is.
    """

    pick: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    inputs: tuple[int, ...]
    given: tuple[int, ...]
    guards_out: bool


def _plans(
    op: Op,
    grads: Mapping[str, Rule],
    names: list[str],
    known: tuple[str, ...],
    kept_for: Mapping[str, Sequence[str]],
) -> tuple[Plan, ...]:
    """A plan for each set of needed gradients, read as a binary number; the last is for all of them.

    A version is guarded, as PyTorch does, where the value is kept and where several rules name it: PyTorch leaves a value
    out only if a single rule does.
    """
    if grads:
        needs = [set(_parameters(grads[op.params[i]])[2:]) if op.params[i] in grads else set()
                 for i in op.tensors]  # fmt: skip
        always = {n for n in names if sum(n in of_one for of_one in needs) > 1}
    else:
        needs = [{n for n in names if op.params[i] in kept_for.get(n, (op.params[i],))} for i in op.tensors]
        always = set()
    # Where nothing needs a gradient nothing is recorded; a list of tensors has one plan.
    full = 2 ** len(op.tensors) - 1
    plans: dict[frozenset[str], Plan] = {}
    chosen: list[Plan] = []
    for bits in [full] if op.sequence else [full, *range(1, full + 1)]:
        needed = frozenset[str]().union(*(n for k, n in enumerate(needs) if bits >> k & 1))
        if needed not in plans:
            plans[needed] = _plan(op, names, known, needed, always)
        chosen.append(plans[needed])
    return tuple(chosen)


def _plan(op: Op, names: list[str], known: tuple[str, ...], needed: frozenset[str], always: set[str]) -> Plan:
    guarded = needed | always
    return Plan(
        _picker([known.index(n) if n in needed else len(known) for n in names]),
        tuple(i for i in op.tensors if op.params[i] in guarded),
        tuple(k for k, i in enumerate(op.tensors) if op.params[i] in guarded),
        "out" in guarded,
    )


def _bind_backward(op: Op, grads: Mapping[str, Rule]) -> Callable[..., Sequence[Any]]:
    """All rules as one function of (F, g, kept values, edges): a gradient, or None, for each edge."""
    rules, joint = op.rules, op.joint
    if joint is not None:
        if _parameters(joint)[2] == "targets":
            return lambda F, g, kept, edges: joint(F, g, [edge[0] for edge in edges], *kept)
        return lambda F, g, kept, edges: joint(F, g, [edge[0] is not None for edge in edges], *kept)
    if len(rules) == 1:
        # The op was recorded, so its only gradient is wanted, and all that is kept is for this rule.
        (only,) = grads.values()
        return lambda F, g, kept, edges: (only(F, g, *kept),)
    if len(rules) == 2 and None not in rules:
        first, second = rules

        def both(F: Any, g: Any, kept: Any, edges: Any) -> Sequence[Any]:
            return (
                None if edges[0][0] is None else first(F, g, kept),
                None if edges[1][0] is None else second(F, g, kept),
            )

        return both
    return lambda F, g, kept, edges: [
        rule(F, g, kept) if edge[0] is not None and rule is not None else None
        for rule, edge in zip(rules, edges, strict=True)
    ]


def _picker(positions: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if not positions:
        return lambda values: ()
    if len(positions) == 1:
        i = positions[0]
        return lambda values: (values[i],)
    return itemgetter(*positions)


def _bind_rule(rule: Rule, names: list[str]) -> Rule:
    """`rule` as a function of (F, g, kept values)."""
    positions = [names.index(n) for n in _parameters(rule)[2:]]
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
