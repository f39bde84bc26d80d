"""Small programs at the edges of autograd, run by PyTorch and by ddpgrad: the same values, the same kinds of errors."""

import copy
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch as oracle

import ddpgrad

Program = Callable[[Any], Iterator[Any]]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


def tried(call: Callable[[], Any]) -> Any:
    """What `call` returns, or which of Python's exceptions it raises."""
    try:
        return call()
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def plain(value: Any) -> Any:
    """Tensors by their elements and their place in the graph."""
    if isinstance(value, (oracle.Tensor, ddpgrad.Tensor)):
        return plain(value.detach().tolist()), tuple(value.shape), value.requires_grad, value.is_leaf
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return pytest.approx(value, rel=1e-5) if isinstance(value, float) else value


def function(torch: Any, forward: Any, backward: Any) -> Any:
    made = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (torch.autograd.Function,), made)


# -- views ----------------------------------------------------------------------------------


@program
def one_of_several_views(torch: Any) -> Iterator[Any]:
    for parts in (lambda a: a.unbind(), lambda a: a.split(1), lambda a: a.chunk(2)):
        a = torch.ones(2, 3, requires_grad=True) * 1
        x, y = parts(a)
        yield (
            tried(lambda x=x: x.add_(1)),
            tried(lambda x=x: x[0].add_(1)),
            tried(lambda x=x: x.unsqueeze_(0)),
        )
        a.mul_(2)
        yield tried(lambda y=y: y.sum()), a
        x, _ = parts(torch.ones(2, 3))
        w = torch.ones(3, requires_grad=True)
        yield x.add_(1), tried(lambda x=x, w=w: x.mul_(w)), tried(lambda x=x, w=w: x.copy_(w))


@program
def view_that_a_function_returns(torch: Any) -> Iterator[Any]:
    for make in (lambda ctx, x: x.view_as(x), lambda ctx, x: x, lambda ctx, x: (x * 1)[:1]):
        f = function(torch, make, lambda ctx, g: g * 3)
        for x in (torch.ones(2, requires_grad=True) * 1, torch.ones(2)):
            y = f.apply(x)
            w = torch.ones(1, requires_grad=True)
            yield (
                y.requires_grad,
                y._is_view(),
                tried(lambda y=y, w=w: y.add_(w)),
                tried(lambda y=y: y.add_(1)),
            )
            x.mul_(w)
            yield tried(lambda y=y: y.grad_fn is None), x


# -- hooks ----------------------------------------------------------------------------------


@program
def hooks_where_no_gradient_comes(torch: Any) -> Iterator[Any]:
    log: list[Any] = []
    nothing = function(torch, lambda ctx, x: x * 1, lambda ctx, g: None)
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    x.register_hook(lambda g: log.append(("leaf", g is None)))
    y.register_hook(lambda g: log.append(("tensor", g is None)))
    y.grad_fn.register_hook(lambda gi, go: log.append(("node", [g is None for g in (*gi, *go)])))
    y.grad_fn.register_prehook(lambda go: log.append(("before", go[0] is None)))
    x.register_post_accumulate_grad_hook(lambda t: log.append("after"))
    nothing.apply(y).sum().backward()
    yield log, x.grad
    y = x * 2
    y.register_hook(lambda g: torch.ones(2))
    yield tried(lambda: nothing.apply(y).sum().backward())
    first, second = (x * 1).unbind()
    first.register_hook(lambda g: log.append(g))
    second.backward()
    yield log[-3:]


@program
def what_hooks_return(torch: Any) -> Iterator[Any]:
    x = torch.ones(2, requires_grad=True)
    for result in (lambda gi: gi[0], lambda gi: gi[:1], lambda gi: (torch.ones(3), None), lambda gi: (gi[0] * 5, None),
                   lambda gi: (gi[0], gi[0]), lambda gi: list(gi), lambda gi: (None, None)):  # fmt: skip
        x.grad = None
        y = x * 2
        y.grad_fn.register_hook(lambda gi, go, result=result: result(gi))
        yield tried(lambda y=y: y.sum().backward()), x.grad
    for result in (lambda go: go[0], lambda go: (*go, *go), lambda go: 5, lambda go: (go[0] * 3,)):
        x.grad = None
        y = x * 2
        y.grad_fn.register_prehook(result)
        yield tried(lambda y=y: y.sum().backward()), x.grad


@program
def hooks_that_change_hooks(torch: Any) -> Iterator[Any]:
    log: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    second = None

    def first(g: Any) -> None:
        log.append(1)
        assert second is not None
        second.remove()

    x.register_hook(first)
    second = x.register_hook(lambda g: log.append(2))
    x.sum().backward()
    x.sum().backward()
    x.register_hook(lambda g: x.register_hook(lambda g: log.append(3)) and None)
    x.sum().backward()
    x.sum().backward()
    yield log

    def fails(g: Any) -> None:
        raise KeyError("mine")

    x.grad = None
    handle = x.register_hook(fails)
    yield tried(lambda: x.sum().backward()), x.grad, torch.is_grad_enabled()
    handle.remove()
    x.sum().backward()
    yield x.grad


@program
def hooks_of_modules_and_their_nodes(torch: Any) -> Iterator[Any]:
    order: list[str] = []
    module = torch.nn.Tanh()
    module.register_full_backward_hook(lambda m, gi, go: order.append("module"))
    module.register_full_backward_pre_hook(lambda m, go: order.append("module, before"))
    x = torch.ones(2, requires_grad=True)
    y = module(x)
    node, place = y.grad_fn, 0
    while node is not None:
        node.register_prehook(lambda g, place=place: order.append(f"before node {place}"))
        node.register_hook(lambda gi, go, place=place: order.append(f"after node {place}"))
        node, place = (node.next_functions[0][0] if node.next_functions else None), place + 1
    x.register_hook(lambda g: order.append("leaf"))
    y.sum().backward()
    yield order


@program
def hooks_and_in_place(torch: Any) -> Iterator[Any]:
    log: list[Any] = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: log.append(("before", g.tolist())))
    y.mul_(3)
    y.register_hook(lambda g: log.append(("after", g.tolist())))
    (y * 5).sum().backward()
    yield log, y.grad
    base = x * 1
    view, other = base[:], base[:]
    view.register_hook(lambda g: log.append("of the view before"))
    other.register_hook(lambda g: log.append("of the other before"))
    view.mul_(2)
    yield other.grad_fn is None
    other.register_hook(lambda g: log.append("of the other after"))
    (view + other).sum().backward()
    yield log[2:]


@program
def order_of_nodes(torch: Any) -> Iterator[Any]:
    log: list[str] = []

    def named(name: str) -> Any:
        def backward(ctx: Any, g: Any) -> Any:
            log.append(name)
            return (g,) * len(ctx.needs_input_grad)

        return function(torch, lambda ctx, *x: sum(x) * 1, backward).apply

    a, b, c, d = (named(n) for n in "abcd")
    x = torch.ones(1, requires_grad=True)
    first = a(x)
    d(b(first), c(first, x)).backward()
    torch.autograd.backward([a(b(x)), c(x)])
    yield log, x.grad
    y = x * 2
    torch.autograd.backward([y, y, y * 3])
    yield x.grad


# -- Functions ------------------------------------------------------------------------------


@program
def what_backward_returns(torch: Any) -> Iterator[Any]:
    x = torch.ones(2, requires_grad=True)
    for backward in (
        lambda ctx, g: (g, g), lambda ctx, g: (), lambda ctx, g: 5, lambda ctx, g: torch.ones(3), lambda ctx, g: g.sum(),
        lambda ctx, g: g.double(), lambda ctx, g: [g], lambda ctx, g: (g, None), lambda ctx, g: None, lambda ctx: None,
        lambda ctx, g: torch.ones(3, 2),
    ):  # fmt: skip
        x.grad = None
        f = function(torch, lambda ctx, x: x * 2, backward)
        yield tried(lambda f=f: f.apply(x).sum().backward()), x.grad


@program
def what_forward_returns(torch: Any) -> Iterator[Any]:
    x = torch.ones(2, requires_grad=True)
    f = function(torch, lambda ctx, x: (x * 2, None, "text", 5, x > 0), lambda ctx, g, *others: g)
    y, *rest = f.apply(x)
    y.sum().backward()
    yield rest, x.grad
    for value in (None, 5, "text"):
        f = function(torch, lambda ctx, x, value=value: value, lambda ctx, g: g)
        yield tried(lambda f=f: f.apply(x))
    yield function(torch, lambda ctx, x, k=2: x * k, lambda ctx, g: g).apply(x, k=3)


@program
def dirty_arguments(torch: Any) -> Iterator[Any]:
    def double(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    f = function(torch, double, lambda ctx, g: g * 2)
    leaf = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        result = f.apply(leaf)
        yield result is leaf, result.requires_grad, leaf
    a = leaf * 1
    yield f.apply(a) is a, a._version


@program
def dirty_views_of_what_needs_no_gradient(torch: Any) -> Iterator[Any]:
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.mark_dirty(x)
        return x.add_(w)

    add_ = function(torch, forward, lambda ctx, g: (g, g)).apply
    for part in (lambda x: x[:2], lambda x: x.split(2)[0], lambda x: x.split(2)[0][:]):
        x, w = torch.zeros(4), torch.ones(2, requires_grad=True)
        yield tried(lambda x=x, w=w, part=part: add_(part(x), w)), x.requires_grad
        if x.requires_grad:
            yield torch.autograd.grad((x * torch.arange(4.0)).sum(), w)


# -- leaves and graphs ----------------------------------------------------------------------


@program
def attributes(torch: Any) -> Iterator[Any]:
    for name, values in {
        "data": (3, None, torch.ones(2, dtype=torch.int64)),
        "requires_grad": (None, "yes", 1),
        "grad": (5, torch.ones(3), torch.ones(2, dtype=torch.float64)),
        "grad_fn": (None,), "is_leaf": (True,), "output_nr": (1,), "shape": (3,),
    }.items():  # fmt: skip
        for value in values:
            x = torch.ones(2, requires_grad=True)
            yield name, tried(lambda x=x, name=name, value=value: setattr(x, name, value))
    for name in ("data", "requires_grad", "grad", "grad_fn", "shape"):
        x = torch.ones(2, requires_grad=True)
        yield name, tried(lambda x=x, name=name: delattr(x, name))
    yield tried(lambda: x.requires_grad_(1)), tried(lambda: copy.deepcopy(x * 2)), copy.deepcopy(x)


@program
def backward_twice(torch: Any) -> Iterator[Any]:
    b = torch.tensor([0.5, 1.5, 2.5], requires_grad=True)
    makes = (
        lambda: b * b, lambda: b * 2, lambda: b / 2, lambda: b + 1, lambda: b.exp(), lambda: b[[0, 1]], lambda: b[0:2],
        lambda: b[b > 1], lambda: b.max(), lambda: b.view(3, 1), lambda: torch.cat([b, b]), lambda: b.cumsum(0), lambda: b.mean(),
        lambda: torch.where(b > 1, b, -b), lambda: b.sort()[0], lambda: b.expand(2, 3), lambda: b.double(), lambda: -b,
    )  # fmt: skip
    for i, make in enumerate(makes):
        y = make().sum()
        y.backward()
        yield i, tried(lambda y=y: y.backward())
    c = torch.zeros(3)
    c[[1, 2]] = b[[1, 1]]
    c.sum().backward()
    yield tried(lambda: c.sum().backward())


@program
def arguments_of_grad(torch: Any) -> Iterator[Any]:
    grad = torch.autograd.grad
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    other = torch.ones(1, requires_grad=True)
    y = x * x
    for call in (
        lambda: grad([], x), lambda: grad(y.sum(), []), lambda: grad(y.sum(), other), lambda: grad(y.sum(), torch.ones(1)),
        lambda: grad(y, x), lambda: grad(y, x, torch.ones(3)), lambda: torch.autograd.backward([]),
        lambda: torch.autograd.backward(y, []), lambda: y.sum().backward(inputs=[]), lambda: y.backward(3),
        lambda: grad(y.sum(), other, allow_unused=False, materialize_grads=True),
        lambda: grad(y, x, None, is_grads_batched=True),
    ):  # fmt: skip
        yield tried(call)
    before = torch.autograd.graph.get_gradient_edge(x)
    z = x * 3
    with torch.no_grad():
        x.set_(torch.ones(2))
    yield tried(lambda: grad(z.sum(), x, retain_graph=True)), grad(z.sum(), before)


@program
def names_of_nodes(torch: Any) -> Iterator[Any]:
    x = torch.ones(2, 3, requires_grad=True)

    def written(write: Callable[[Any], Any]) -> Any:
        y = x * 1
        write(y)
        return y

    for y in (
        written(lambda y: y.copy_(x)), written(lambda y: y.__setitem__(0, 3.0)), written(lambda y: y.__setitem__([0], 3.0)),
        written(lambda y: y[:1].mul_(2)), x**2, x**x, 2**x, x.sum(), x.sum(1), x[0], x[[0]], x.clamp(0), x.clamp(x, x),
        x.max(), x.max(1)[0], x @ x.t(), x.to(torch.float64), torch.stack([x, x]), x.unbind()[1],
    ):  # fmt: skip
        yield y.grad_fn.name(), type(y.grad_fn).__name__, y.output_nr
    for y, names in (
        (torch.cat([x, x], 1), "dim"), (x.pow(3), "exponent"), (x.view(6), "self_sym_sizes"), (x.softmax(1), "dim"),
        (x.transpose(0, 1), "dim0"), (x.mean(1, keepdim=True), "keepdim"), (x * x, "self"), (x.exp(), "result"),
        (x[:, torch.tensor([0, 1])], "indices"),
    ):  # fmt: skip
        value = getattr(y.grad_fn, f"_saved_{names}")
        yield (
            names,
            plain(value) if names != "indices" else [None if v is None else v.tolist() for v in value],
        )


@program
def without_derivative(torch: Any) -> Iterator[Any]:
    x = torch.tensor([1.0, 2.0, 2.0], requires_grad=True)
    for y in (
        torch.unique(x),
        torch.unique_consecutive(x),
        torch.unique(x, dim=0),
        torch.special.zeta(x + 1, x),
    ):
        yield y.requires_grad, tried(lambda y=y: y.sum().backward())
    source = torch.zeros(2, requires_grad=True)
    y = torch.ones(1, requires_grad=True).scatter_reduce(0, torch.tensor([0, 0]), source, "prod")
    (g,) = torch.autograd.grad(y, source, create_graph=True)
    yield g, tried(lambda: g.sum().backward())


def outcome(run: Program, torch: Any) -> list[Any]:
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [plain(result) for result in run(torch)]
    gc.collect()
    return found


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program(run: Program):
    expected, got = outcome(run, oracle), outcome(run, ddpgrad)
    for place, (theirs, ours) in enumerate(zip(expected, got, strict=True)):
        assert ours == theirs, f"{run.__name__}, result {place}"
