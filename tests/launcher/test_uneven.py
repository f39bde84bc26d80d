"""Loops over prepared loaders whose last batch has fewer samples than there are ranks."""

import contextlib
import itertools

import numpy as np
import pytest
from samples import Numbered, Several

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import distributed, launcher, nn
from ddpgrad.distributed import simulate
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.errors import RankFailedError
from ddpgrad.nn.parallel import DistributedDataParallel
from ddpgrad.utils.data import DataLoader

RANKS, EPOCHS = 4, 3


def data(kind: str, size: int, workers: int = 0):
    if kind == "stream":
        return DataLoader(Several(size), 2, num_workers=workers)
    return DataLoader(Numbered(size), 2, shuffle=kind == "shuffled", num_workers=workers)


def bits(model: nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def build(normalised: bool = False) -> nn.Module:
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(8)] if normalised else []
    return nn.Sequential(nn.Linear(3, 8), *norm, nn.Tanh(), nn.Linear(8, 2))


def trained(
    kind: str, size: int, workers: int = 0, weighted: bool = False, joins: str = "", normalised: bool = False
):
    """By rank: parameters, steps, the sample numbers of which the loss has counted, the mean loss."""

    def program():
        model = nn.SyncBatchNorm.convert_sync_batchnorm(build(normalised))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.0 if joins else 0.9)
        if joins == "in join":
            loader = launcher.prepare(data(kind, size, workers), even=False)
            model = DistributedDataParallel(model)
        elif joins == "fully sharded":
            loader = launcher.prepare(data(kind, size, workers))
            fully_shard(model)
        else:
            model, optimizer, loader = launcher.setup(model, optimizer, data(kind, size, workers))
        steps, mean = 0, distributed.Mean()
        for _ in range(EPOCHS):
            with model.join() if joins == "in join" else contextlib.nullcontext():
                for _, x, y in loader:
                    loss = F.cross_entropy(model(x), y)
                    mean.update(loss, len(y))
                    if weighted:
                        model.loss_weight(len(y))
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    steps += 1
                    if not joins:
                        distributed.barrier()  # the loop's own collectives match
        if joins == "fully sharded":
            return (
                [p.full_tensor().detach().numpy().tobytes() for p in model.parameters()],
                steps,
                mean.compute(),
            )
        return bits(model), steps, mean.compute()

    return simulate(program, RANKS)


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
def test_ranks_without_a_batch_join_with_gradients_of_zero(kind):
    """As many steps on all ranks, replicas of the same bits, which are those of `model.join()`, and of `fully_shard`."""
    here, there = trained(kind, 17, joins="by default"), trained(kind, 17, joins="in join")
    assert trained(kind, 17, joins="fully sharded") == here
    assert {steps for _, steps, _ in here} == {3 * EPOCHS}
    assert sorted(steps for _, steps, _ in there) == [2 * EPOCHS] * 3 + [3 * EPOCHS]
    assert all(parameters == there[0][0] for parameters, *_ in (*here, *there))
    assert {mean for *_, mean in here} == {mean for *_, mean in there}


@pytest.mark.parametrize(("size", "normalised"), [(19, False), (17, False), (3, False), (18, True)])
def test_weighted_losses_are_those_of_one_process(size, normalised):
    """With momentum, over epochs: what stands in has weight 0, in SyncBatchNorm too, and the optimizer goes on everywhere."""
    model = build(normalised)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    numbered, losses, n = Numbered(size), 0.0, 0
    for _ in range(EPOCHS):
        for first in range(0, size, 2 * RANKS):
            samples = [numbered[i][1:] for i in range(first, min(first + 2 * RANKS, size))]
            x, y = map(torch.stack, zip(*samples, strict=True))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses, n = losses + loss.item() * len(y), n + len(y)
    found = trained("in order", size, weighted=True, normalised=normalised)
    for parameters, _, mean in found:
        assert parameters == found[0][0]
        np.testing.assert_allclose(mean, losses / n, rtol=1e-5)
        for got, p in zip(parameters, model.parameters(), strict=True):
            np.testing.assert_allclose(
                np.frombuffer(got, np.float32), p.detach().numpy().ravel(), rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("kind", "workers"), [("in order", 0), ("stream", 0), ("stream", 1), ("shuffled", 1)]
)
@pytest.mark.parametrize("size", [17, 3])
@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_an_evaluation_reads_every_sample_once(kind, workers, size, how):
    """And a loop in which the model is trained has as many batches on all ranks."""

    def program():
        loader, model = launcher.setup(data(kind, size, workers), nn.Linear(3, 2))
        steps = len(list(loader))
        if how == "eval":
            model.eval()
        with torch.no_grad() if how == "no_grad" else contextlib.nullcontext():
            return steps, [int(i) for numbers, *_ in loader for i in numbers]

    found = simulate(program, RANKS)
    assert len({steps for steps, _ in found}) == 1
    assert sorted(itertools.chain(*(read for _, read in found))) == list(range(size))


def test_a_loop_that_is_left_leaves_gradients_as_they_are():
    def program():
        loader = launcher.prepare(data("in order", 1))
        x = torch.ones(1, requires_grad=True)

        def gradient() -> list[float]:
            x.grad = None
            x.sum().backward()
            return x.grad.tolist() if x.grad is not None else []

        gradients = []
        for _ in loader:
            with torch.no_grad():
                for _ in loader:  # an evaluation within a step; it counts as the next epoch
                    pass
            gradients += gradient()
            break
        return gradients + gradient()

    assert simulate(program, 2) == [[1.0, 1.0], [0.0, 1.0]]


def test_loops_of_different_lengths_without_the_launcher_are_told_what_to_do():
    def program():
        distributed.init_process_group()
        model = DistributedDataParallel(nn.Linear(3, 2))
        for _ in range(2 - distributed.get_rank()):
            model(torch.ones(1, 3)).sum().backward()

    with pytest.raises(RankFailedError) as raised:
        simulate(program, 2)
    assert str(raised.value).splitlines()[0] == "rank 1 has finished its program. Others wait:"
    assert str(raised.value).splitlines()[2] == (
        "All ranks must call the same collectives. Where they have different numbers of batches: launcher.prepare(loader) "
        "deals them out alike, and within `with model.join():` ranks without a batch take part in the others' steps."
    )
