"""Flat memory: the layout follows the gradients, and no result depends on it."""

import weakref
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn, optim

SHAPES = [(3, 5), (7,), (), (2, 3, 4), (16,)]
OPTIONS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1},
    "AdamW": {"lr": 0.1, "amsgrad": True},
}


def parameters(dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    return [nn.Parameter(torch.tensor(np.asarray(rng.standard_normal(s), dtype))) for s in SHAPES]


def bucket(params: list[Any], order: list[int], padded: bool = True) -> dict[int, Any]:
    """Gradients of the parameters `order` names, one after the other in one block."""
    step = 64 // params[0].element_size() if padded else 1
    sizes = [-(-params[i].numel() // step) * step for i in order]
    flat = np.zeros(sum(sizes), params[0].dtype.numpy)
    ends = np.cumsum(sizes)
    parts = (flat[end - size :][: params[i].numel()] for i, end, size in zip(order, ends, sizes, strict=True))
    return {
        i: torch.from_numpy(part.reshape(tuple(params[i].shape)))
        for i, part in zip(order, parts, strict=True)
    }


def in_buffer(p: Any) -> list[Any]:
    """The buffer of whose end the parameter becomes a view, as libraries lay out what they send."""
    buffer = torch.cat([torch.zeros(1), p.detach().flatten()])
    p.data = buffer[1:].view_as(p)
    return [buffer[1:].view_as(p), buffer[1:].numpy().reshape(tuple(p.shape))]


def give(params: list[Any], step: int, places: dict[int, Any]) -> None:
    """The gradients of one step: in `places`, or fresh ones where there is none."""
    rng = np.random.default_rng(step)
    for i, p in enumerate(params):
        values = torch.from_numpy(np.asarray(rng.standard_normal(tuple(p.shape)), p.dtype.numpy))
        p.grad = places[i].copy_(values) if i in places else values


def in_order(params: list[Any], order: list[int]) -> bool:
    """Whether the parameters lie one after the other, with less than 64 bytes between them."""
    starts = [params[i].data_ptr() for i in order]
    ends = [params[i].data_ptr() + params[i].nbytes for i in order]
    return all(0 <= start - end < 64 for end, start in zip(ends, starts[1:], strict=False))


def equal(a: list[Any], b: list[Any]) -> None:
    for p, q in zip(a, b, strict=True):
        assert np.array_equal(p.detach().numpy(), q.detach().numpy())


@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_the_same_bits_in_any_layout(name: str) -> None:
    """Gradients on their own against a bucket that is rebuilt, missed, left and replaced on the way."""
    plain, moved = parameters(), parameters()
    reference = getattr(optim, name)(plain, **OPTIONS[name])
    optimizer = getattr(optim, name)(moved, **OPTIONS[name])
    objects = list(moved)
    backward, arrival = [4, 3, 2, 1, 0], [3, 4, 1, 0, 2]
    places = bucket(moved, backward)
    for step in range(12):
        if step == 2:  # buckets rebuilt in another order
            places = bucket(moved, arrival, padded=False)
        if step == 9:
            places = {}
        give(plain, step, {})
        give(moved, step, places)
        if step in (4, 5):
            plain[1].grad = moved[1].grad = None
        if step == 6:
            moved[3].data = moved[3].data.clone()
        if step == 7:
            state = optimizer.state_dict()
            optimizer = getattr(optim, name)(moved, lr=99.0)
            optimizer.load_state_dict(state)
        if step == 8:
            kind = "momentum_buffer" if name == "SGD" else "exp_avg_sq"
            for params, owner in ((plain, reference), (moved, optimizer)):
                owner.state[params[0]][kind] = torch.ones(*params[0].shape)
        reference.step()
        optimizer.step()
        equal(plain, moved)
        if step < 4:
            assert in_order(moved, backward if step < 2 else arrival)
    assert all(p is q for p, q in zip(moved, objects, strict=True))
    for p, q in zip(plain, moved, strict=True):
        for kind, value in reference.state[p].items():
            assert np.array_equal(value.numpy(), optimizer.state[q][kind].numpy()), kind


def test_state_is_laid_out_as_the_parameters_are() -> None:
    params = parameters()
    optimizer = optim.Adam(params, lr=0.1)
    give(params, 0, bucket(params, [0, 1, 2, 3, 4]))
    optimizer.step()
    for kind in ("exp_avg", "exp_avg_sq"):
        state = [optimizer.state[p][kind] for p in params]
        assert in_order(state, [0, 1, 2, 3, 4])
        assert [s.shape for s in state] == [p.shape for p in params]
    assert [optimizer.state[p]["step"].item() for p in params] == [1.0] * len(params)


def test_a_parameter_in_flat_memory_is_a_storage_of_its_own() -> None:
    """Programs save what shares a storage once: they would leave out all parameters of a bucket but one."""
    params = parameters()
    optimizer = optim.Adam(params, lr=0.1)
    give(params, 0, bucket(params, [0, 1, 2, 3, 4]))
    optimizer.step()
    assert in_order(params, [0, 1, 2, 3, 4])
    for parameter in params:
        storage = parameter.detach().reshape(-1).untyped_storage()
        assert (storage.data_ptr(), storage.nbytes()) == (parameter.data_ptr(), parameter.nbytes)
    assert (params[0].storage_offset(), params[0][1:].storage_offset()) == (0, 5)
    assert params[0].as_strided((2,), (1,), 3).tolist() == params[0].flatten()[3:5].tolist()


@pytest.mark.parametrize(
    "taken",
    [
        lambda p: [p.data], lambda p: [p.detach()], lambda p: [p.detach().numpy()], lambda p: list(nn.ParameterList([p]).state_dict().values()),
        in_buffer,
    ],
)  # fmt: skip
@pytest.mark.parametrize("which", [[2], [0, 4], [0, 1, 2, 3, 4]])
def test_what_was_taken_of_a_parameter_follows_it(which: list[int], taken: Any) -> None:
    """The others are laid out; so is this one, when nobody has its memory any more."""
    order, results = [0, 1, 2, 3, 4], []
    for take in (taken, lambda p: []):
        params = parameters()
        optimizer = optim.AdamW(params, lr=0.1)
        places = bucket(params, order)
        held = {i: take(params[i]) for i in which}
        for step in range(4):
            give(params, step, places)
            optimizer.step()
            assert all(np.array_equal(v, params[i].detach().numpy()) for i in held for v in held[i])
            assert in_order(params, [1, 2, 3] if which == [0, 4] else [3, 4]) or which == order
            if step == 1:
                held = {}
        assert in_order(params, order)
        results.append(params)
    equal(*results)


def test_only_the_bucket_that_changed_is_laid_out_anew() -> None:
    params = parameters()
    optimizer = optim.AdamW(params, lr=0.1)
    places = bucket(params, [0, 1]) | bucket(params, [2, 3, 4])
    memory = []
    for step in range(4):
        give(params, step, places)
        if step % 2:
            params[3].grad = None
        optimizer.step()
        memory.append([p.data_ptr() for p in params[:2]])
    assert memory[0] == memory[1] == memory[2] == memory[3]
    assert [optimizer.state[p]["step"].item() for p in params] == [4, 4, 4, 2, 4]


def test_groups_and_types_are_runs_of_their_own() -> None:
    params, doubles = parameters(), parameters(np.float64)
    plain, plain_doubles = parameters(), parameters(np.float64)
    groups = lambda p, d: [{"params": [*p[:3], *d]}, {"params": p[3:], "lr": 0.5}]  # noqa: E731
    optimizer, reference = (
        optim.SGD(groups(params, doubles), lr=0.1),
        optim.SGD(groups(plain, plain_doubles), lr=0.1),
    )
    places, double_places = bucket(params, [3, 0, 4, 1, 2]), bucket(doubles, [0, 1, 2, 3, 4])
    for step in range(3):
        give(params, step, places)
        give(doubles, step, double_places)
        give(plain, step, {})
        give(plain_doubles, step, {})
        optimizer.step()
        reference.step()
    equal(params, plain)
    equal(doubles, plain_doubles)


def test_tied_and_transposed_memory_stays_as_it_is() -> None:
    a = nn.Parameter(torch.ones(4))
    b = nn.Parameter(a.detach())  # another parameter on the same memory
    c = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    before = c.detach().clone()
    memory = c.data_ptr()
    params = [a, b, c]
    optimizer = optim.SGD(params, lr=1.0)
    places = bucket(params, [0, 1, 2])
    for _ in range(2):
        give(params, 1, places)
        optimizer.step()
    expected = torch.ones(4) - 2 * (a.grad + b.grad)
    assert a.data_ptr() == b.data_ptr() and torch.allclose(a.detach(), expected)
    assert c.data_ptr() == memory and torch.allclose(c.detach(), before - 2 * c.grad)


def test_gradients_of_former_steps_are_not_kept() -> None:
    p = nn.Parameter(torch.zeros(3))
    optimizer = optim.AdamW([p])
    for _ in range(2):
        p.grad = torch.ones(3)
        memory = weakref.ref(p.grad.numpy())
        optimizer.step()
        optimizer.zero_grad()
        assert memory() is None


def test_a_step_counts_as_a_change_in_place() -> None:
    layer = nn.Linear(2, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    x = torch.ones(1, 2, requires_grad=True)
    early = layer(x).square().sum()
    layer(x).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        early.backward()


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 2), (2, 4)])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_gradient_of_another_shape_is_refused(name: str, shape: tuple[int, ...]) -> None:
    p = nn.Parameter(torch.zeros(2, 3))
    optimizer = getattr(optim, name)([p], **OPTIONS[name])
    for _ in range(2):
        p.grad = torch.ones(2, 3)
        optimizer.step()
    p.grad.data = torch.ones(*shape)
    with pytest.raises(RuntimeError, match=r"does not fit its parameter of shape \[2, 3\]"):
        optimizer.step()
    other = nn.Parameter(torch.zeros(2, 3))
    other.grad = torch.ones(2, 3)
    other.data = torch.ones(*shape)
    with pytest.raises(RuntimeError, match=r"a gradient of shape \[2, 3\] does not fit"):
        optim.SGD([other], lr=0.1).step()
