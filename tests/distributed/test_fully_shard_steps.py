"""`accumulate`, `loss_weight` and `nonfinite_gradients` under `fully_shard`: the same names and bits as DistributedDataParallel's."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from replicas import on_ranks, perceptron, ranks, whole
from test_accumulate import trained

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.fsdp import FullyShardedDataParallel as FSDP
from ddpgrad.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from ddpgrad.errors import DistributedError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def network() -> nn.Module:
    """Random numbers and running statistics."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 17), nn.BatchNorm1d(17), nn.ReLU(), nn.Dropout(0.4))
    return nn.Sequential(body, nn.Linear(17, 5), nn.Tanh(), nn.Linear(5, 4))


def divided(model: nn.Module, **options: Any) -> Any:
    inner = {name: value for name, value in options.items() if name != "nonfinite_gradients"}
    fully_shard(model[0], **inner)
    fully_shard(model[1], **inner)
    return fully_shard(model, **options)


@pytest.mark.parametrize("layouts", [[(1, 8), (2, 4), (4, 2), (8, 1)], [(1, 6), (3, 2), (6, 1)]])
def test_micro_batches_have_the_bits_of_ddp_and_of_any_number_of_ranks(layouts):
    expected, losses = trained(DDP, network, *layouts[0])
    for wrap in (divided, FSDP):
        for n, k in layouts:
            state, found = trained(wrap, network, n, k)
            assert found == losses
            for got, other in zip(state, expected, strict=True):
                np.testing.assert_array_equal(got, other)


def test_micro_batches_of_16_bits_add_up_in_the_dtype_of_the_average():
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    states = [
        trained(lambda m: fully_shard(m, mp_policy=policy), network, n, k)
        for n, k in ((1, 4), (2, 2), (4, 1))
    ]
    for state, losses in states[1:]:
        assert losses == states[0][1]
        assert all(map(np.array_equal, state, states[0][0]))


class Rare(nn.Module):
    """A part that only the first micro-batch uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.rare = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, first: bool) -> torch.Tensor:
        return self.rare(self.body(x)) if first else self.body(x)


def test_what_the_last_micro_batch_does_not_use_is_averaged_too():
    def program(sharded: bool, synced: bool):
        model = Rare()
        net: Any = fully_shard(model) if sharded else DDP(model, find_unused_parameters=True)
        x = torch.arange(6.0).reshape(1, 6) + dist.get_rank()
        if synced:
            for i in net.accumulate(4):
                net(x + i, i == 0).square().mean().backward()
        else:
            for last in (False, True):
                if sharded:
                    net.set_requires_gradient_sync(last)
                else:
                    net.require_backward_grad_sync = last
                net(x + last, not last).square().mean().backward()
        return [whole(p.grad) for p in model.parameters()]

    for synced in (True, False):
        for got, expected in zip(
            ranks(2, lambda s=synced: program(True, s)),
            ranks(2, lambda s=synced: program(False, s)),
            strict=True,
        ):
            assert len(got) == 4 and all(map(np.array_equal, got, expected))


def weighted(wrap: Any, k: int) -> list[np.ndarray]:
    """Gradients of 8 samples in batches of 1, 2, 4 and 1; twice, so that what is left of the first time would count."""
    net = wrap(perceptron())
    torch.manual_seed(1)
    x, y = torch.randn(8, 6), torch.randint(0, 4, (8,))
    sizes, found = [1, 2, 4, 1], []
    for _ in range(2):
        net.zero_grad()
        for i in net.accumulate(k):
            place = k * dist.get_rank() + i
            rows = slice(sum(sizes[:place]), sum(sizes[: place + 1]))
            net.loss_weight(sizes[place])
            F.cross_entropy(net(x[rows]), y[rows]).backward()
        found += [whole(p.grad) for p in net.parameters()]
    return found


def test_weights_of_losses_have_the_bits_of_ddp():
    alone = perceptron()
    torch.manual_seed(1)
    F.cross_entropy(alone(torch.randn(8, 6)), torch.randint(0, 4, (8,))).backward()
    for n, k in ((1, 4), (2, 2), (4, 1)):
        expected = ranks(n, lambda k=k: weighted(DDP, k))[0]
        found = ranks(n, lambda k=k: weighted(divided, k))
        assert all(all(map(np.array_equal, got, expected)) for got in found)
        for got, p in zip(expected, alone.parameters(), strict=False):
            np.testing.assert_allclose(got, p.grad.numpy(), rtol=1e-4, atol=1e-7)


@on_ranks(2)
def test_weights_of_losses_hold_while_the_first_averages_are_made():
    net = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(4)])
    for part in net:
        nn.init.eye_(part.weight)
        fully_shard(part)
    fully_shard(net)
    net.loss_weight(3)
    net(torch.ones(1, 2)).sum().backward()
    assert [whole(p.grad).tolist() for p in net.parameters()] == [[[1.0, 1.0], [1.0, 1.0]]] * 4


@pytest.mark.parametrize("action", ["skip", "raise", "stop"])
def test_all_ranks_decide_alike_about_gradients_that_are_not_finite(action, caplog):
    def program(wrap):
        model = wrap(perceptron(), nonfinite_gradients=action)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        told = []
        if hasattr(model, "unshard"):
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(
                    lambda p: told.append(bool(p.grad.full_tensor().isfinite().all()))
                )
        found: list[Any] = []
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 6)).square().mean()
            try:
                (loss * float("inf") if step == 1 and dist.get_rank() == 1 else loss).backward()
            except (DistributedError, SystemExit) as error:
                found.append((type(error), str(error).replace("bias", "weight")))
            assert (model[0].weight if wrap is divided else model.module[0].weight).grad is None or step != 1
            optimizer.step()
            found.append([whole(p).tobytes() for p in model.parameters()])
        assert all(told)
        return found

    expected = ranks(3, lambda: program(DDP))
    warned = [record.getMessage().replace("bias", "weight") for record in caplog.records]
    caplog.clear()
    found = ranks(3, lambda: program(divided))
    assert found == expected
    assert [record.getMessage().replace("bias", "weight") for record in caplog.records] == warned
    assert ("is not finite" in str(warned)) == (action == "skip")


def unfit(net):
    for _ in range(2):
        net.loss_weight(2)
        net(torch.ones(2, 6)).sum().backward()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (unfit, DistributedError, "has the average of earlier batches in its .grad"),
        (lambda net: (net.loss_weight(0), net(torch.ones(1, 6)).sum().backward()), DistributedError, "sum to 0"),
        (lambda net: (net(torch.ones(1, 6)), next(net[0].accumulate(2))), RuntimeError, "call it of that one"),
    ],
)  # fmt: skip
@on_ranks(2)
def test_wrong_use_is_an_error(wrong, error, text):
    model = perceptron()
    fully_shard(model[0])
    with pytest.raises(error, match=text):
        wrong(fully_shard(model))


def test_options_that_do_not_fit_are_refused():
    def inner():
        model = perceptron()
        fully_shard(model[0], nonfinite_gradients="skip")
        fully_shard(model)(torch.ones(1, 6))

    def narrow():
        next(fully_shard(perceptron(), mp_policy=MixedPrecisionPolicy(torch.bfloat16)).accumulate(2))

    for program, error, text in (
        (inner, ValueError, "'0' has nonfinite_gradients='skip', and the module around it None"),
        (narrow, NotImplementedError, "the gradient of '0.weight' is averaged in bfloat16"),
        (lambda: fully_shard(perceptron(), nonfinite_gradients="ignore"), ValueError, "must be one of"),
    ):
        with pytest.raises(error, match=text):
            ranks(1, program)


@on_ranks(2)
def test_an_optimizer_updates_the_rows_of_a_group_as_one_piece_of_memory():
    """Nobody but the program refers to them: what it took of one before stays its memory, and joins the others later."""
    model = fully_shard(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    taken = [model[0].weight.detach()]
    for step in range(4):
        model(torch.ones(2, 6)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if taken:
            assert torch.equal(taken[0].to_local(), model[0].weight.to_local())
        if step == 1:
            taken.clear()
    places = sorted((rows.data_ptr(), rows.nbytes) for rows in (p.to_local() for p in model.parameters()))
    assert all(0 <= b - (a + size) < 64 for (a, size), (b, _) in pairwise(places))
