"""The lean forms of hot paths against the general forms that they repeat, on the same cases.

`calls.general` and `node.record` run every op of the table beside its own call; `Walk.drain` runs graphs beside
`lean_drain`. Compared are results, history, version counters, gradients of first and second order, and errors.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import Tensor
from ddpgrad.autograd import walk
from ddpgrad.ops import load_all
from ddpgrad.ops.dispatch import lean_calls
from ddpgrad.ops.dispatch.calls import general
from ddpgrad.ops.dispatch.declare import OPS, Op

load_all()
LEAN = sorted(
    op.name
    for op in OPS.values()
    if op.view != "several" and op.call.__code__ is not general(op).__code__ and op.samples is not None
)
DTYPES = ["float32", "float64", "float64", "bfloat16", "int64", "complex64", "bool"]
KINDS = ["leaf", "leaf", "history", "view", "constant", "inference"]
SETTINGS = ["plain", "plain", "create_graph", "saved_hooks", "tensor_hook", "written", "no_grad", "inference"]
INSTEAD = [2, 0.5, True, 1j, np.float64(0.5), None, "text", [1.0]]
USUAL = 4
"""Cases on float32 leaves without anything around them, two of them with a number for a tensor; the others vary."""
CASES = 16


class Case(NamedTuple):
    """One call: how each argument comes about, and what is done around it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dtypes: list[str]
    kinds: list[str]
    setting: str
    instead: tuple[int, Any] | None
    """A place, and what is given there for the tensor."""
    cut: bool
    """Whether the last tensor misses its first element, so that shapes may not fit."""


def cases(op: Op) -> Iterator[Case]:
    seed = crc32(op.name.encode())
    rng = np.random.default_rng(seed)
    assert op.samples is not None
    samples = list(op.samples(np.random.default_rng(seed)))
    for number in range(CASES):
        args, kwargs = samples[number % len(samples)]
        if number < USUAL:
            instead = [None, None, (0, 0.5), (1, 2)][number]
            yield Case(args, kwargs, ["float32"] * len(args), ["leaf"] * len(args), "plain", instead, False)
            continue
        dtypes = [DTYPES[rng.integers(len(DTYPES))]] * len(args)
        if rng.random() < 0.2:
            dtypes[-1] = DTYPES[rng.integers(len(DTYPES))]
        place, value = int(rng.integers(len(op.tensors))), INSTEAD[rng.integers(len(INSTEAD))]
        yield Case(
            args,
            kwargs,
            dtypes,
            [KINDS[rng.integers(len(KINDS))] for _ in args],
            SETTINGS[rng.integers(len(SETTINGS))],
            (place, value) if rng.random() < 0.3 else None,
            bool(rng.random() < 0.1),
        )


def made(value: Any, dtype: str, kind: str) -> Any:
    """An argument as the case has it; arrays of numbers that are no indices take the dtype of the case."""
    if not isinstance(value, (np.ndarray, np.floating)):
        return value
    t = torch.tensor(np.asarray(value))
    if not t.is_floating_point():
        return t
    with torch.inference_mode(kind == "inference"):
        t = t.to(getattr(torch, dtype)).clone()
        if kind == "inference" and t.dtype.category > 1:
            return t.requires_grad_()
    if t.dtype.category < 2 or kind == "constant":
        return t
    t.requires_grad_()
    return t if kind == "leaf" else t.clone() if kind == "history" else t.clone()[...]


def arguments(op: Op, case: Case) -> list[Any]:
    args = [made(*parts) for parts in zip(case.args, case.dtypes, case.kinds, strict=True)]
    tensors = [i for i in op.tensors if i < len(args)]
    if case.cut and isinstance(args[tensors[-1]], Tensor) and args[tensors[-1]].dim():
        args[tensors[-1]] = args[tensors[-1]][1:]
    if case.instead is not None and case.instead[0] < len(tensors):
        args[tensors[case.instead[0]]] = case.instead[1]
    return args


def content(value: Any) -> Any:
    """A value as something that can be compared, bit by bit."""
    if isinstance(value, (tuple, list)):
        return [content(part) for part in value]
    if not isinstance(value, Tensor):
        return repr(value)
    array = value.detach()._array
    return type(value), str(value.dtype), array.shape, array.strides, array.tobytes()


def history(out: Tensor, args: list[Any]) -> Any:
    """What the node of a result keeps, where its edges lead, and whose versions it guards."""
    node: Any = out.grad_fn
    if node is None:
        return None
    owners = {id(t._versions): i for i, t in enumerate(args) if isinstance(t, Tensor)}
    owners.setdefault(id(out._versions), -1)
    return (
        node.name(),
        type(node).__name__,
        [(None if n is None else n.name(), nr) for n, nr in node.next_functions],
        (node.shape, node.dtype),
        [owners[id(counter)] for counter in node._counters],
        list(node._versions),
        [np.shape(kept) for kept in node.saved_tensors if hasattr(kept, "dtype")],
    )


@contextlib.contextmanager
def around(setting: str, log: list[Any]) -> Iterator[None]:
    def pack(t: Tensor) -> Tensor:
        log.append(("pack", content(t)))
        return t

    managers: dict[str, Callable[[], Any]] = {
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "saved_hooks": lambda: torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
    }
    with managers.get(setting, contextlib.nullcontext)():
        yield


def gradients(out: Tensor, args: list[Any], setting: str, log: list[Any]) -> None:
    inputs = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    again = setting == "create_graph"
    if setting == "tensor_hook":
        out.register_hook(lambda g: log.append(("hook", content(g))))
    if setting == "written":
        with torch.no_grad():
            next(t for t in [*inputs, out] if t.dim()).add_(1)
    seed = torch.ones(out.shape, dtype=out.dtype)
    found = torch.autograd.grad(out, inputs, seed, create_graph=again, allow_unused=True)
    log.append(content(found))
    for g in found:
        if again and g is not None and g.requires_grad:
            log.append(content(torch.autograd.grad(g.sum(), inputs, allow_unused=True, retain_graph=True)))


def outcome(op: Op, call: Callable[..., Any], case: Case) -> list[Any]:
    """All that can be seen of a call: what it gives, leaves behind and raises."""
    log: list[Any] = []
    args = arguments(op, case)
    try:
        torch.manual_seed(0)
        with around(case.setting, log):
            out = call(*args, **case.kwargs)
        view = None if out._base is None else next((i for i, t in enumerate(args) if t is out._base), "else")
        log += [content(out), out.requires_grad, out.is_inference(), view]
        log.append([t.is_inference() or t._version for t in [out, *args] if isinstance(t, Tensor)])
        log.append(None if case.setting == "saved_hooks" else history(out, args))
        if out.requires_grad and out.grad_fn is not None:
            gradients(out, args, case.setting, log)
    except StopIteration:
        log.append("nothing to write to")
    except Exception as error:
        log.append((type(error), str(error)))
    return log


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEAN)
def test_lean_calls_do_what_the_general_form_does(name: str):
    op = OPS[name]
    call = general(op)
    call.__dict__["op"] = op
    for case in cases(op):
        assert outcome(op, op.call, case) == outcome(op, call, case), case


@pytest.mark.parametrize("name", LEAN)
def test_lean_calls_take_arguments_by_their_names(name: str):
    op = OPS[name]
    case = next(cases(op))
    if op.varargs is not None:
        pytest.skip("takes any number of arguments")
    expected = outcome(op, op.call, case)
    for first in range(len(case.args)):

        def by_name(*args, first=first, **kwargs):
            return op.call(
                *args[:first], **dict(zip(op.params[first:], args[first:], strict=False)), **kwargs
            )

        assert outcome(op, by_name, case) == expected


def test_the_cases_reach_every_lean_form_and_end_in_every_way():
    """The comparison above means little where all cases are refused, or none is."""
    forms = {"exp": lean_calls.unary, "mul": lean_calls.binary, "sum": lean_calls.single}
    assert all(form(OPS[name]).__code__ is OPS[name].call.__code__ for name, form in forms.items())
    ends = [
        outcome(OPS[n], OPS[n].call, case)[-1] for n in ("mul", "sub", "exp", "sum") for case in cases(OPS[n])
    ]
    errors = [end for end in ends if isinstance(end, tuple) and isinstance(end[0], type)]
    assert len(ends) // 10 < len(errors) < len(ends) // 2


STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - 2,
    lambda a, b: a.tanh(),
    lambda a, b: a[None].sum(0),
    lambda a, b: torch.stack([a, a])[1],
    lambda a, b: a.split(1)[0].expand_as(a) if a.dim() else a.double(),
]


def graph(rng: np.random.Generator) -> tuple[list[Tensor], Tensor]:
    """Leaves, and a scalar of a random graph over them: values used often, broadcast, viewed and cast."""
    dtypes = [torch.float32, torch.float64]
    leaves = [
        torch.tensor(rng.uniform(0.5, 1.5, shape)).to(dtypes[rng.integers(2)]).requires_grad_()
        for shape in ((3, 4), (4,), (3, 1), ())
    ]
    values = list(leaves)
    for _ in range(12):
        a, b = (values[i] for i in rng.integers(len(values), size=2))
        values.append(STEPS[rng.integers(len(STEPS))](a, b))
    return leaves, sum((v.double().sum() for v in values[-6:]), torch.zeros((), dtype=torch.float64))


def backward(seed: int, drain: Callable[..., None], patch: pytest.MonkeyPatch) -> list[Any]:
    """What two backward passes leave: gradients, in what order hooks ran, and the error of a third pass."""
    patch.setattr(walk, "lean_drain", drain)
    rng = np.random.default_rng(seed)
    leaves, loss = graph(rng)
    log: list[Any] = []
    for i, leaf in enumerate(leaves):
        if rng.random() < 0.3:
            leaf.register_hook(lambda g, i=i: log.append((i, content(g))))
        leaf.register_post_accumulate_grad_hook(lambda p, i=i: log.append((i, "filled", content(p.grad))))
    loss.backward(retain_graph=True)
    loss.backward()
    grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
    log += [content(g) for g in grads]
    assert not any(np.shares_memory(a._array, b._array) for a in grads for b in grads if a is not b)
    try:
        loss.backward()
    except RuntimeError as error:
        log.append(str(error))
    return log


@pytest.mark.parametrize("seed", range(40))
def test_lean_walk_does_what_the_general_form_does(seed: int, monkeypatch: pytest.MonkeyPatch):
    lean = walk.lean_drain
    assert backward(seed, lean, monkeypatch) == backward(seed, walk.Walk.drain, monkeypatch)
