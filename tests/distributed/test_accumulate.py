"""`accumulate`: k micro-batches a rank have the bits of k times as many ranks."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replicas import on_ranks, perceptron, ranks, whole

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.errors import DistributedError, MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset


class Parts(nn.Module):
    """Random numbers, running statistics, and a part that only some micro-batches use."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.rare, self.head = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.norm, self.dropout = nn.BatchNorm1d(16), nn.Dropout(0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.dropout(self.norm(self.body(x)).relu())
        return self.head(h + self.rare(h) if x[0, 0] > 0.7 else h)


def trained(wrap: Any, build: Any, n: int, k: int) -> tuple[list[np.ndarray], list[list[str]]]:
    """Parameters, buffers and the last norm after some steps of n ranks with k micro-batches each, and all losses."""

    def program():
        torch.manual_seed(3)
        data = TensorDataset(torch.randn(200, 6), torch.randint(0, 4, (200,)))
        sampler = DistributedSampler(data, accumulate=k)
        loader = DataLoader(data, batch_size=2 * k, sampler=sampler, drop_last=True)
        net = wrap(build())
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
        torch.manual_seed(5 + 7 * dist.get_rank())
        losses, norm = [], torch.zeros(())
        for _, batch in zip(range(4), loader, strict=False):
            optimizer.zero_grad()
            for x, y in net.accumulate(k, *batch):
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                losses.append(loss.item().hex())
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
        if isinstance(net, DDP):
            net.eval()(torch.ones(1, 6))  # buffers become rank 0's
        return [*map(whole, [*net.state_dict().values(), norm])], losses

    results = ranks(n, program)
    for state, _ in results[1:]:
        assert all(map(np.array_equal, state, results[0][0]))
    steps = [[loss for _, losses in results for loss in losses[k * s : k * s + k]] for s in range(4)]
    return results[0][0], steps


@pytest.mark.parametrize(
    "layouts", [[(1, 8), (2, 4), (4, 2), (8, 1)], [(1, 6), (3, 2), (6, 1)], [(1, 7), (7, 1)]]
)
def test_the_bits_are_those_of_any_number_of_ranks(layouts):
    wrap = partial(DDP, find_unused_parameters=True, bucket_cap_mb=0.0005)
    states, losses = zip(*(trained(wrap, Parts, n, k) for n, k in layouts), strict=True)
    assert all(found == losses[0] for found in losses)
    for state in states[1:]:
        for got, expected in zip(state, states[0], strict=True):
            np.testing.assert_array_equal(got, expected)


@settings(max_examples=30)
@given(st.integers(1, 9), st.data())
def test_gradients_have_the_bits_of_an_average_over_ranks(k, data):
    """Of parameters that only some micro-batches use, too."""
    values = np.float32(np.random.default_rng(k).normal(size=(k, 3)) * 10.0 ** np.arange(-3, 6, 3))
    uses = data.draw(st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=k, max_size=k))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in range(3)])

        def forward(self, i: int) -> torch.Tensor:
            return sum(self.weights[j] * values[i, j].item() for j in sorted(uses[i]))

    def one():
        ddp = DDP(Model(), find_unused_parameters=True)
        for i in ddp.accumulate(k):
            ddp(i).backward()
        return [None if p.grad is None else p.grad.item() for p in ddp.parameters()]

    def many():
        ddp = DDP(Model(), find_unused_parameters=True)
        ddp(dist.get_rank()).backward()
        return [None if p.grad is None else p.grad.item() for p in ddp.parameters()]

    assert ranks(1, one)[0] == ranks(k, many)[0]


def test_without_randomness_it_is_an_ordinary_step_of_more_ranks():
    def program():
        ddp = DDP(perceptron())
        torch.manual_seed(1)
        x, y = torch.randn(24, 6), torch.randint(0, 4, (24,))
        for part, target in ddp.accumulate(4, x[dist.get_rank() :: 2], y[dist.get_rank() :: 2]):
            F.cross_entropy(ddp(part), target).backward()
        return [p.grad.numpy().copy() for p in ddp.parameters()]

    def ordinary():
        ddp = DDP(perceptron())
        torch.manual_seed(1)
        x, y = torch.randn(24, 6), torch.randint(0, 4, (24,))
        place = dist.get_rank() // 4 + 2 * (dist.get_rank() % 4)
        F.cross_entropy(ddp(x[place::8]), y[place::8]).backward()
        return [p.grad.numpy().copy() for p in ddp.parameters()]

    for got, expected in zip(ranks(2, program)[1], ranks(8, ordinary)[1], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_loop_that_is_left_has_no_gradients_and_the_next_is_whole():
    def program():
        ddp = DDP(perceptron())
        x = torch.ones(4, 6)
        state = torch.get_rng_state()
        for i in ddp.accumulate(4):
            ddp(x).sum().backward()
            if i == 2:
                break
        drawn = torch.rand(3) if dist.get_rank() else None
        torch.set_rng_state(state)
        assert drawn is None or drawn.tolist() == torch.rand(3).tolist()  # as if the loop had not been
        assert all(p.grad is None for p in ddp.parameters())
        with pytest.raises(ValueError, match="boom"):
            for _ in ddp.accumulate(2):
                raise ValueError("boom")
        for (part,) in ddp.accumulate(2, [x]):
            ddp(part).sum().backward()
        return [p.grad.numpy().copy() for p in ddp.parameters()]

    model = perceptron()
    model(torch.ones(2, 6)).sum().backward()
    for got, p in zip(ranks(2, program)[0], model.parameters(), strict=True):
        np.testing.assert_array_equal(got, p.grad.numpy())


def divided(model: nn.Module) -> nn.Module:
    fully_shard(model[0])
    return fully_shard(model)


def once(ddp, k, *batch):
    for _ in ddp.accumulate(k, *batch):
        ddp(torch.ones(1, 6)).sum().backward()


def twice_in_one(ddp):
    for _ in ddp.accumulate(2):
        ddp(torch.ones(1, 6)).sum().backward()
        ddp(torch.ones(1, 6)).sum().backward()


def not_in_the_last(ddp):
    for i in ddp.accumulate(2):
        if i == 0:
            ddp(torch.ones(1, 6)).sum().backward()


def multiplied(net):
    with torch.no_grad():
        next(net.parameters()).mul_(2)


def among_them(change):
    def wrong(ddp):
        optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
        for _ in ddp.accumulate(4):
            ddp(torch.ones(1, 6)).sum().backward()
            change(ddp, optimizer)

    return wrong


def after_a_step(ddp):
    once(ddp, 2)
    once(ddp, 2)


def within_no_sync(ddp):
    if not isinstance(ddp, DDP):
        ddp.set_requires_gradient_sync(False)
    with ddp.no_sync() if isinstance(ddp, DDP) else nullcontext():
        once(ddp, 2)


@pytest.mark.parametrize("wrap", [DDP, divided], ids=["DDP", "fully_shard"])
@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda ddp: once(ddp, 0), ValueError, "at least 1, got 0"),
        (lambda ddp: once(ddp, 2, torch.ones(3, 6)), ValueError, "a batch of 3 samples cannot be dealt to 2"),
        (lambda ddp: once(ddp, 2, ["a"]), TypeError, "expected tensors of samples, got 'a'"),
        (lambda ddp: once(ddp, 1 + dist.get_rank()), MismatchError, "rank [01] has [12] micro-batches, and others from 1 to 2"),
        (twice_in_one, DistributedError, "parameter '2.weight' got a second gradient in micro-batch 0"),
        (not_in_the_last, DistributedError, r"rank [01] called no backward\(\) for the last of its 2 micro-batches"),
        (among_them(lambda net, _: multiplied(net)), DistributedError, "was changed between micro-batches 0 and 1"),
        (after_a_step, RuntimeError, r"parameter '[02].weight' has a gradient from before. Call optimizer.zero_grad\(\)"),
        (within_no_sync, RuntimeError, "not within no_sync"),
    ],
)  # fmt: skip
@on_ranks(2)
def test_wrong_use_is_an_error(wrap, wrong, error, text):
    with pytest.raises(error, match=text):
        wrong(wrap(perceptron()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda ddp, optimizer: optimizer.step(), r"Call zero_grad\(\) before"),
        (lambda ddp, optimizer: optimizer.zero_grad(), "or its .grad"),
        (lambda ddp, optimizer: optimizer.zero_grad(False), "or its .grad"),
        (lambda ddp, optimizer: nn.utils.clip_grad_norm_(ddp.parameters(), 1e-3), "or its .grad"),
    ],
)
@on_ranks(2)
def test_gradients_stay_as_they_are_between_micro_batches(change, text):
    with pytest.raises(
        DistributedError, match=f"(?s)(?=.*was changed between micro-batches 0 and 1).*{text}"
    ):
        among_them(change)(DDP(perceptron()))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Linear(6, 4, dtype=torch.bfloat16), "'weight' is averaged in bfloat16"),
        (nn.Embedding(6, 4, sparse=True), "the gradients of weight are sparse"),
        (
            nn.Sequential(nn.Linear(6, 4), nn.SyncBatchNorm(4)),
            "SyncBatchNorm has the mean over the ranks' current",
        ),
    ],
)
@on_ranks(1)
def test_models_whose_bits_would_depend_on_the_ranks_are_refused(model, text):
    with pytest.raises(NotImplementedError, match=text):
        next(DDP(model).accumulate(2))
