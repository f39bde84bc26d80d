"""Functions that change how a module runs, and leave it the module that it is."""

import copy

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed._composable import _get_registry, checkpoint, contract, replicate
from ddpgrad.distributed._composable_state import _get_module_state
from ddpgrad.distributed.algorithms import Join
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def test_a_contract_is_kept_once_with_its_state():
    @contract()
    def counts(module, start=0):
        counts.state(module).calls = start
        return module

    model = build()
    assert counts.state(model) is None
    assert _get_registry(model) is None
    assert counts(model, start=3) is model
    assert (counts.state(model).calls, list(_get_registry(model))) == (3, ["counts"])
    assert counts.state(copy.deepcopy(model)).calls == 3
    with pytest.raises(AssertionError, match="counts has already been applied"):
        counts(model)


@pytest.mark.parametrize("change", [lambda m: nn.Sequential(m), lambda m: m.append(nn.ReLU())])
def test_a_contract_renames_nothing(change):
    with pytest.raises(RuntimeError, match="cannot modify FQNs"):
        contract()(change)(build())


def test_backward_computes_a_checkpointed_part_again():
    plain, model, runs = build(), build(), []
    model[0].register_forward_hook(lambda *_: runs.append(1))
    assert checkpoint(model) is model
    assert list(model.state_dict()) == list(plain.state_dict())
    x = torch.ones(4, 2)
    for one in (plain, copy.deepcopy(model), model):
        one(x).sum().backward()
    assert len(runs) == 4  # twice in the copy, too
    for p, q in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
    with pytest.raises(NotImplementedError, match="use_reentrant=True is not supported"):
        checkpoint(build(), use_reentrant=True)


def test_replicas_average_gradients_but_for_parts_left_out():
    def program():
        rank = dist.get_rank()
        found = []
        for wrap in (DistributedDataParallel, replicate):
            model = build(rank)
            wrapped = wrap(model)
            for scale in (1.0, 2.0):
                wrapped(torch.full((1, 2), scale * (rank + 1))).sum().backward()
            found.append([p.grad.tolist() for p in model.parameters()])
        assert found[0] == found[1]
        model = build()
        replicate(model, ignored_modules=[model[2]])
        (rank * model(torch.ones(1, 2))).sum().backward()
        sharded = fully_shard(build())
        assert (_get_module_state(model), _get_module_state(sharded).modules) == (None, [sharded])
        return found[0], model[2].bias.grad.item()

    first, second = ranks(2, program)
    assert first[0] == second[0]
    assert (first[1], second[1]) == (0.0, 1.0)


def test_join_takes_what_can_be_joined():
    def program():
        model = DistributedDataParallel(nn.Linear(1, 1))
        with Join([model]):
            for _ in range(2 + dist.get_rank()):
                model(torch.ones(1, 1)).sum().backward()
        with pytest.raises(TypeError, match="got SGD"):
            Join([torch.optim.SGD(model.parameters(), lr=0.1)])
        with pytest.raises(ValueError, match="at least one"):
            Join([])
        return model.module.bias.grad.item()

    assert ranks(2, program) == [1.5, 1.5]
