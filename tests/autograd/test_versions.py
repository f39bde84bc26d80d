"""Version counters: in-place damage to what backward needs is found, harmless writes are not."""

from collections.abc import Callable

import pytest

import ddpgrad as torch
from ddpgrad.errors import GraphError

Tensor = torch.Tensor


def start() -> tuple[Tensor, Tensor]:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return x, x * 1


DAMAGE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], object], str]] = {
    "input": (lambda y: y * y, lambda y, z: y.add_(1), "of mul"),
    "output": (torch.exp, lambda y, z: z.mul_(2), "the output of exp"),
    "through a view": (lambda y: y * y, lambda y, z: y[:1].add_(1), "of mul"),
    "through detach": (lambda y: y * y, lambda y, z: y.detach().zero_(), "of mul"),
    "by assignment": (torch.log, lambda y, z: y.__setitem__(0, 5.0), "input of log"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str):
    forward, damage, what = DAMAGE[name]
    _, y = start()
    z = forward(y)
    damage(y, z)
    with pytest.raises(
        GraphError, match=rf"modified by an inplace operation: .*{what}.* is at version \d; expected"
    ):
        z.sum().backward()


def test_damage_under_no_grad_to_a_parameter():
    x, w = torch.ones(2), torch.ones(2, requires_grad=True)
    x.requires_grad_()
    loss = (x * w).sum()
    with torch.no_grad():
        w.sub_(0.1)
    with pytest.raises(GraphError, match="other of mul"):
        loss.backward()


def test_damage_to_an_index():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    i = torch.tensor([0, 2])
    picked = [x[i], torch.gather(x, 0, i), x.index_select(0, i)]
    i.add_(-i)
    for y in picked:
        with pytest.raises(GraphError, match="index of"):
            y.sum().backward()


@pytest.mark.parametrize(
    ("forward", "write"),
    [
        (lambda y: y + y, lambda y, z: y.add_(1)),  # a sum needs no values
        (lambda y: y * 2, lambda y, z: y.mul_(3)),  # the number is kept, not y
        (lambda y: y * torch.full((2,), 2.0), lambda y, z: y.zero_()),  # the other needs no gradient
        (torch.exp, lambda y, z: y.add_(1)),  # exp needs its output only
        (torch.log, lambda y, z: z.add_(1)),  # log needs its input only
        (lambda y: y.sum(), lambda y, z: y.zero_()),
        (lambda y: y * y, lambda y, z: z.add_(1)),
    ],
)
def test_harmless_writes(forward: Callable[[Tensor], Tensor], write: Callable[[Tensor, Tensor], object]):
    x, y = start()
    (expected,) = torch.autograd.grad(forward(x * 1).sum(), x)
    z = forward(y)
    write(y, z)
    z.sum().backward()
    assert x.grad.tolist() == expected.tolist()


F = torch.nn.functional
# By the arguments that need a gradient: those that may not be written to before backward, as in PyTorch.
GUARDED: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], dict[str, str]]] = {
    "linear": (F.linear, [(2, 3), (4, 3), (4,)], {"0": "1", "1": "0", "2": "", "02": "1", "12": "0", "012": "01"}),
    "linear of images": (F.linear, [(2, 5, 3), (4, 3), (4,)], {"0": "1", "1": "0", "2": ""}),
    "linear of a row": (F.linear, [(5, 3), (3,), ()], {"0": "1", "1": "0", "2": "", "01": "01"}),
    "conv": (F.conv2d, [(1, 2, 4, 4), (3, 2, 2, 2), (3,)], {"0": "01", "1": "01", "2": "01"}),
    "conv_transpose": (F.conv_transpose2d, [(1, 2, 4, 4), (2, 3, 2, 2), (3,)], {"0": "01", "2": "01"}),
    "matmul": (torch.matmul, [(5, 2, 3), (5, 3, 4)], {"0": "1", "1": "0", "01": "01"}),
    "prelu": (F.prelu, [(2, 3), (3,)], {"0": "01", "1": "01", "01": "01"}),
    "mse_loss": (F.mse_loss, [(3,), (3,)], {"0": "01", "1": "01"}),
    "huber_loss": (F.huber_loss, [(3,), (3,)], {"0": "01", "1": "01"}),
    "cross entropy": (F.binary_cross_entropy, [(3,), (3,)], {"0": "01", "1": "01"}),
    "lerp": (torch.lerp, [(3,), (3,), (3,)], {"0": "2", "2": "012"}),
    "addcdiv": (torch.addcdiv, [(3,), (3,), (3,)], {"0": "2", "1": "2", "2": "12"}),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(2, 4, 3), (4,), (4,)], {"0": "01", "2": "01"}),
    "margin": (F.margin_ranking_loss, [(3,), (3,), (3,)], {"0": "", "01": ""}),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), [(1, 1, 4, 4)], {"0": "0"}),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
def test_what_is_guarded_depends_on_who_needs_a_gradient(name: str):
    function, shapes, guarded = GUARDED[name]
    values = [torch.rand(*shape) * 0.5 + 0.25 for shape in shapes]
    for needed, expected in guarded.items():
        places = [int(place) for place in needed]

        def grads(written: int | None, places: list[int] = places) -> list[list[float]]:
            given = [v.clone() for v in values]
            for place in places:
                given[place].requires_grad_()
            out = function(*given)
            if written is not None:
                given[written].detach().mul_(0.5)
            out.sum().backward()
            return [given[place].grad.tolist() for place in places]

        right, found = grads(None), ""
        for written in range(len(shapes)):
            try:
                assert grads(written) == right
            except GraphError:
                found += str(written)
        assert found == expected, f"of {needed}"


def test_counters():
    x = torch.zeros(3)
    v = x[1:]
    v.add_(1)
    x[0] = 2.0
    x += 1
    assert x._version == v._version == 3
    with torch.no_grad():
        x.zero_()
    assert v._version == 4
    assert (x + 1)._version == 0
