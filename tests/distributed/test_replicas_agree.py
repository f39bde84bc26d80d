"""Replicas start alike and stay alike: parameters, buffers, names, and what is said when models differ."""

import weakref

import numpy as np
import pytest
from replicas import assert_close, batch_for, gradients, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.backend.cpu import mkl
from ddpgrad.errors import MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def test_replicas_begin_with_the_parameters_and_buffers_of_rank_0():
    def program():
        torch.manual_seed(dist.get_rank())
        model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
        torch.nn.init.normal_(model[1].running_mean)
        before = model.state_dict()["0.weight"].numpy().copy()
        state = DDP(model).state_dict()
        return before, {name: value.numpy().copy() for name, value in state.items()}

    (first, state_0), (second, state_1) = ranks(2, program)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, state_0["0.weight"])
    for name, value in state_0.items():
        assert np.array_equal(value, state_1[name]), name


def test_buffers_become_those_of_rank_0_in_the_forward_after_one_in_training():
    def program():
        ddp = DDP(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
        norm = ddp.module[0]
        torch.manual_seed(dist.get_rank())
        ddp(torch.randn(8, 2)).sum().backward()
        own = norm.running_mean.numpy().copy()
        ddp.eval()
        for _ in range(1 + dist.get_rank()):  # ranks may have different numbers of batches
            ddp(torch.randn(8, 2))
        evaluated = norm.running_mean.numpy().copy()
        seen = []
        norm.register_forward_pre_hook(lambda *_: seen.append(norm.running_mean.numpy().copy()))
        ddp.train()(torch.randn(8, 2))
        with ddp.no_sync():
            for _ in range(2):
                ddp(torch.randn(8, 2))
        ddp(torch.randn(8, 2))  # which follows one without averages
        return own, evaluated, seen

    (own_0, _, (seen_0, *after_0)), (own_1, evaluated_1, (seen_1, *after_1)) = ranks(2, program)
    assert [bool((a == b).all()) for a, b in zip(after_0, after_1, strict=True)] == [True, False, False]
    assert not np.array_equal(own_0, own_1)
    assert np.array_equal(evaluated_1, own_0)
    assert np.array_equal(seen_0, own_0) and np.array_equal(seen_1, own_0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda rank: nn.Sequential(*(nn.Linear(3, 3) for _ in range(1 + rank))),
            "rank 1 has parameter '1.weight'",
        ),
        (lambda rank: nn.ModuleDict({"ab"[rank]: nn.Linear(3, 3)}), "'a.weight' where rank 1 has 'b.weight'"),
        (
            lambda rank: nn.Linear(3, 3, dtype=torch.float64 if rank else None),
            "'weight': rank 0 has .* float32",
        ),
        (
            lambda rank: nn.Linear(3, 3).requires_grad_(rank == 0),
            "'weight': rank 0 trains it, rank 1 does not",
        ),
    ],
    ids=["length", "name", "dtype", "trained"],
)
def test_a_model_that_differs_between_ranks_is_refused_by_name(build, message):
    def program():
        DDP(build(dist.get_rank()))

    with pytest.raises(MismatchError, match=message):
        ranks(2, program)


def test_names_in_a_checkpoint_are_those_of_the_model():
    def program():
        ddp = DDP(perceptron())
        state = ddp.state_dict()
        pytorch_like = {f"module.{name}": value * 2 for name, value in state.items()}
        ddp.load_state_dict(pytorch_like)
        return list(state), ddp.module[0].weight.detach().numpy() / perceptron()[0].weight.detach().numpy()

    ((names, ratio),) = ranks(1, program)
    assert names == list(perceptron().state_dict())
    assert np.all(ratio == 2)


def test_a_model_may_be_wrapped_again():
    x, y = batch_for(perceptron)
    alone = perceptron()
    F.cross_entropy(alone(x), y).backward()

    def program():
        model = perceptron()
        found, kept = [], []
        for keep in (False, True, False):
            ddp = DDP(model)
            model.zero_grad()
            F.cross_entropy(ddp(share(x)), share(y)).backward()
            found.append(gradients(model))
            kept += [ddp] * keep
        dropped = weakref.ref(ddp.reducer)
        del ddp
        kept.clear()
        model.zero_grad()
        F.cross_entropy(model(share(x)), share(y)).backward()  # on its own again: nothing is averaged
        return found, dropped() is None, gradients(model)

    (found, dropped, left), (_, _, right) = ranks(2, program)
    for step in found:
        assert_close(step, gradients(alone))
    assert dropped, "a wrapper that is no longer used keeps its buckets"
    assert not np.array_equal(left["0.weight"], right["0.weight"])


def test_ranks_are_told_that_they_multiply_by_different_libraries(monkeypatch):
    monkeypatch.setattr(mkl, "chosen", lambda: "2026.2" if dist.get_rank() else None)
    with pytest.warns(
        UserWarning, match="rank 0 multiplies matrices with NumPy's BLAS and rank 1 with MKL 2026.2"
    ):
        ranks(2, lambda: DDP(nn.Linear(2, 2)) and None)
