"""Uneven inputs: ranks with fewer batches take part with gradients of zero, and end with the same model."""

import numpy as np
import pytest
from replicas import batch_for, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.algorithms import Join, Joinable, JoinHook
from ddpgrad.distributed.ddp.zero import ZeroRedundancyOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

BATCHES = (2, 4, 1)


def normalised() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.Linear(20, 4))


def trained(build, counts, divide_by_all: bool, find_unused: bool = False):
    def program():
        rank = dist.get_rank()
        model = DDP(build(), bucket_cap_mb=0.001, find_unused_parameters=find_unused)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = batch_for(build)
        with model.join(divide_by_initial_world_size=divide_by_all):
            for step in range(counts[rank]):
                mine = slice(rank * 2 + step, rank * 2 + step + 4)
                optimizer.zero_grad()
                F.cross_entropy(model(x[mine]), y[mine]).backward()
                optimizer.step()
        model(x)  # all go on together
        return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}

    return ranks(len(counts), program)


@pytest.mark.parametrize("divide_by_all", [True, False])
def test_the_average_counts_ranks_without_a_batch_as_zeros_or_not_at_all(divide_by_all):
    x, y = batch_for(perceptron)
    alone = perceptron()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(max(BATCHES)):
        present = [rank for rank, count in enumerate(BATCHES) if step < count]
        optimizer.zero_grad()
        for rank in present:
            mine = slice(rank * 2 + step, rank * 2 + step + 4)
            loss = F.cross_entropy(alone(x[mine]), y[mine])
            (loss / (len(BATCHES) if divide_by_all else len(present))).backward()
        optimizer.step()
    results = trained(perceptron, BATCHES, divide_by_all)
    for result in results:
        for name, parameter in alone.named_parameters():
            np.testing.assert_allclose(result[name], parameter.detach().numpy(), rtol=1e-5, atol=1e-6)
            assert result[name].tobytes() == results[0][name].tobytes()


@pytest.mark.parametrize("counts", [(3, 1), (0, 2), (2, 0, 2), (2, 2)])
def test_buffers_and_parameters_end_equal_whoever_ends_first(counts):
    results = trained(normalised, counts, True, find_unused=counts == (3, 1))
    for result in results:
        assert {n: a.tobytes() for n, a in result.items()} == {n: a.tobytes() for n, a in results[0].items()}


def test_all_ranks_raise_when_the_first_has_run_out():
    def program():
        model = DDP(perceptron())
        x, y = batch_for(perceptron)
        steps = 0
        with (
            pytest.raises(RuntimeError, match="exhausted inputs") as raised,
            model.join(throw_on_early_termination=True),
        ):
            for _ in range(1 + dist.get_rank()):
                F.cross_entropy(model(x), y).backward()
                steps += 1
        return steps, str(raised.value)

    first, second = ranks(2, program)
    assert first[0] == second[0] == 1
    assert first[1] == second[1]


def test_disabled_it_does_nothing():
    def program():
        model = DDP(perceptron())
        x, y = batch_for(perceptron)
        with model.join(enable=False):
            F.cross_entropy(model(x), y).backward()
        return model.joined

    assert ranks(2, program) == [None, None]


def test_an_optimizer_that_is_divided_takes_the_steps_of_the_others_alike():
    """Its parts on ranks without a batch are updated by the gradients of the others, with the bits of the whole optimizer."""

    def program(divided: bool):
        model = DDP(perceptron())
        adam = torch.optim.Adam
        parameters = model.parameters()
        optimizer = ZeroRedundancyOptimizer(parameters, adam, lr=0.1) if divided else adam(parameters, lr=0.1)
        x, y = batch_for(perceptron)
        with Join([model, optimizer] if divided else [model], divide_by_initial_world_size=False):
            for step in range(BATCHES[dist.get_rank()]):
                optimizer.zero_grad()
                F.cross_entropy(model(x[step:]), y[step:]).backward()
                optimizer.step()
        assert isinstance(model, Joinable) and isinstance(optimizer, Joinable) == divided
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    whole, parts = ranks(3, lambda: program(False)), ranks(3, lambda: program(True))
    assert whole == parts and parts == [parts[0]] * 3


class Counter(Joinable):
    """Counts the steps of all ranks, by sums that a hook of its own stands in for."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.told = torch.zeros(1), []

    def step(self) -> None:
        Join.notify_join_context(self)
        one = torch.ones(1)
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs) -> JoinHook:
        counter = self

        class Hook(JoinHook):
            def main_hook(self) -> None:
                dist.all_reduce(torch.zeros(1))

            def post_hook(self, is_last_joiner: bool) -> None:
                counter.told.append((is_last_joiner, kwargs))

        return Hook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


def test_objects_of_the_programs_own_are_joined():
    def program():
        counter = Counter()
        with Join([counter], word=1):
            for _ in range(BATCHES[dist.get_rank()]):
                counter.step()
        with pytest.raises(RuntimeError, match="exhausted"), Join([counter], throw_on_early_termination=True):
            for _ in range(BATCHES[dist.get_rank()]):
                counter.step()
        with Join([counter], enable=False):
            counter.step()
        return counter.count.item(), counter.told

    assert ranks(3, program) == [(count, [(count == 13.0, {"word": 1})]) for count in (11.0, 13.0, 9.0)]
    with pytest.raises(AssertionError, match="calls the ``Joinable`` constructor"):
        Join.notify_join_context(object())


def test_a_rank_that_has_run_out_keeps_the_gradients_of_its_own_steps():
    def program():
        model = DDP(nn.Linear(2, 1, bias=False))
        with model.join():
            for _ in range(1 + dist.get_rank()):
                model.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                model.zero_grad()
        return model.module.weight.grad

    assert ranks(2, program) == [None, None]
