"""Memory: graphs die by reference counting alone, and backward frees what it has used."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ddpgrad as torch


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:1].neg_()
    y += y.detach() * 1
    return y.tanh_()


def with_hooks(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.grad_fn.next_functions[0][0].register_hook(lambda gi, go: None)
    return y * y


def second_order(x: torch.Tensor) -> torch.Tensor:
    y = (x * x * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g * y


GRAPHS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ops": lambda x: torch.softmax(x.exp() @ torch.ones(3, 2), -1).tanh(),
    "views": lambda x: x.reshape(9)[::2][:3].unsqueeze(0).expand(2, 3),
    "in place": in_place,
    "hooks": with_hooks,
    "function": Square.apply,
    "second order": second_order,
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("run_backward", [False, True])
def test_no_cycle_keeps_a_graph_alive(name: str, run_backward: bool, no_collector: None):
    x = torch.ones(3, 3, requires_grad=True)
    y = GRAPHS[name](x)
    if run_backward:
        y.sum().backward(retain_graph=True)
    dying = [weakref.ref(y), weakref.ref(y.grad_fn), weakref.ref(y._array), weakref.ref(x)]
    del x, y
    assert [r() for r in dying] == [None] * len(dying)


def test_backward_frees_as_it_goes(no_collector: None):
    x = torch.full((4,), -4.0, requires_grad=True)
    h = x
    saved: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []
    for _ in range(4):
        h = h.exp()
        saved.append(weakref.ref(h._array))
        h.register_hook(lambda g: alive.append(sum(r() is not None for r in saved)))
    y = h.sum()
    del h
    y.backward()
    # The hook of an output runs before the node that keeps it.
    assert alive == [4, 3, 2, 1]
    assert [r() for r in saved] == [None] * 4


def test_peak_of_a_long_chain(no_collector: None):
    """50 layers: what they keep is the peak, and it falls as backward goes."""
    layers, size = 50, 8 * 100_000
    x = torch.zeros(100_000, dtype=torch.float64, requires_grad=True)
    torch.autograd.grad(x.tanh().sum(), x)  # what is loaded on first use does not count
    tracemalloc.start()
    h = x
    left: list[float] = []
    for i in range(layers):
        h = h.tanh()
        if i % 10 == 9:
            h.register_hook(lambda g: left.append(tracemalloc.get_traced_memory()[0] / size))
    y = h.sum()
    del h
    kept = tracemalloc.get_traced_memory()[0] / size
    y.backward()
    after, peak = (n / size for n in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert kept == pytest.approx(layers, abs=0.5)
    assert peak < layers + 4, "the gradient on its way, and what one rule needs besides"
    assert [round(n) for n in left] == pytest.approx([layers, 40, 30, 20, 10], abs=3)
    assert after == pytest.approx(1, abs=0.5), "the gradient of x is all that is left"


def test_many_views_of_a_plain_tensor_cost_nothing_when_gone():
    x = torch.zeros(4)
    for _ in range(1000):
        x[:2].sum()
    assert len(x._plain_views or ()) < 40
