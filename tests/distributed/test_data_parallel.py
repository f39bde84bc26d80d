"""Replicas that train as one: gradients, buckets, buffers, and what is said when models differ."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.errors import DistributedError, MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

BATCH = 12


def ranks(n: int, program: Callable[[], Any]) -> list[Any]:
    """The results of `program` on `n` ranks of this process, each within a process group."""

    def run() -> Any:
        dist.init_process_group()
        try:
            return program()
        finally:
            dist.destroy_process_group()

    return dist.simulate(run, n)


def share(batch: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def gradients(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}


def assert_close(
    got: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float = 1e-6
) -> None:
    """Each gradient within `tolerance` of the largest element expected in it."""
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert np.abs(got[name] - array).max() <= tolerance * np.abs(array).max(), name


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 4))


def convolution() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 9, 4)]
    return nn.Sequential(*layers)


class Words(nn.Module):
    """Embedding, attention and LayerNorm, with the embedding used twice: a small language model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix, self.norm = nn.Embedding(9, 16), nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        q, k, v = (t.view(*x.shape, 2, 8).transpose(1, 2) for t in self.mix(h).chunk(3, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(*x.shape, 16)
        return F.linear(self.norm(h + a), self.table.weight).transpose(1, 2)


def batch_for(build: Callable[[], nn.Module]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    if build is Words:
        return torch.randint(0, 9, (BATCH, 7)), torch.randint(0, 9, (BATCH, 7))
    x = torch.randn(BATCH, 1, 6, 6) if build is convolution else torch.randn(BATCH, 6)
    return x, torch.randint(0, 4, (BATCH,))


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("build", [perceptron, convolution, Words])
def test_gradients_equal_those_of_one_process_on_the_joined_batch(build, world_size):
    x, y = batch_for(build)
    alone = build()
    F.cross_entropy(alone(x), y).backward()

    def program():
        ddp = DDP(build())
        found = []
        for _ in range(2):  # before and after the buckets are laid out anew
            ddp.zero_grad()
            F.cross_entropy(ddp(share(x)), share(y)).backward()
            found.append(gradients(ddp.module))
        return found

    results = ranks(world_size, program)
    for found in results:
        for step in (0, 1):
            assert_close(found[step], gradients(alone))
            for name, array in found[step].items():
                assert array.tobytes() == results[0][step][name].tobytes(), "ranks differ in the bits"


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


def test_buffers_become_those_of_rank_0_before_each_forward_in_training():
    def program():
        ddp = DDP(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
        norm = ddp.module[0]
        torch.manual_seed(dist.get_rank())
        ddp(torch.randn(8, 2)).sum().backward()
        own = norm.running_mean.numpy().copy()
        ddp.eval()(torch.randn(8, 2))
        evaluated = norm.running_mean.numpy().copy()
        seen = []
        norm.register_forward_pre_hook(lambda *_: seen.append(norm.running_mean.numpy().copy()))
        ddp.train()(torch.randn(8, 2))
        return own, evaluated, seen[0]

    (own_0, _, seen_0), (own_1, evaluated_1, seen_1) = ranks(2, program)
    assert not np.array_equal(own_0, own_1)
    assert np.array_equal(evaluated_1, own_1)
    assert np.array_equal(seen_0, own_0) and np.array_equal(seen_1, own_0)


def test_no_sync_accumulates_and_the_next_backward_averages_the_sum():
    x, y = batch_for(perceptron)
    alone = perceptron()
    for half in (slice(0, 6), slice(6, 12)):
        F.cross_entropy(alone(x[half]), y[half]).backward()

    def program():
        ddp = DDP(perceptron())
        with ddp.no_sync():
            F.cross_entropy(ddp(share(x[:6])), share(y[:6])).backward()
        local = gradients(ddp.module)
        F.cross_entropy(ddp(share(x[6:])), share(y[6:])).backward()
        return local, gradients(ddp.module)

    (local_0, sum_0), (local_1, sum_1) = ranks(2, program)
    assert not np.array_equal(local_0["0.weight"], local_1["0.weight"])
    assert_close(sum_0, gradients(alone))
    assert_close(sum_1, gradients(alone))


def test_gradients_are_views_of_the_buckets():
    x, y = batch_for(perceptron)

    def program():
        ddp = DDP(perceptron())
        optimizer_sees = []
        for set_to_none in (True, True, False):
            F.cross_entropy(ddp(share(x)), share(y)).backward()
            flats = [bucket.flat for bucket in ddp.reducer.buckets]
            optimizer_sees += [
                any(np.shares_memory(p.grad.numpy(), flat) for flat in flats) for p in ddp.parameters()
            ]
            ddp.zero_grad(set_to_none=set_to_none)
        return optimizer_sees

    assert all(all(result) for result in ranks(2, program))


def test_a_gradient_that_lies_elsewhere_is_taken_into_its_bucket():
    x, y = batch_for(perceptron)

    def program():
        model = perceptron()
        F.cross_entropy(model(share(x)), share(y)).backward()  # before the model is wrapped
        ddp = DDP(model)
        F.cross_entropy(ddp(share(x)), share(y)).backward()
        for p in model.parameters():
            p.grad = p.grad * 0  # the program puts a gradient of its own in place
        F.cross_entropy(ddp(share(x)), share(y)).backward()
        return gradients(model)

    alone = perceptron()
    F.cross_entropy(alone(x), y).backward()
    for found in ranks(2, program):
        assert_close(found, gradients(alone))


class Backwards(nn.Module):
    """Uses its layers in the order opposite to their registration."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last, self.middle, self.first = nn.Linear(4, 3), nn.Linear(5, 4), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))


def test_buckets_are_laid_out_again_in_the_order_of_arrival():
    x, _ = batch_for(perceptron)

    def program():
        ddp = DDP(Backwards(), bucket_cap_mb=1e-6)
        names = ddp.reducer.names

        def order():
            return [names[i].split(".")[0] for bucket in ddp.reducer.buckets for i in bucket.layout.indices]

        registered = order()
        ddp(share(x)).square().sum().backward()
        first = gradients(ddp.module)
        arrived = order()
        ddp.zero_grad()
        ddp(share(x)).square().sum().backward()
        return registered, arrived, len(ddp.reducer.buckets), first, gradients(ddp.module)

    for registered, arrived, count, first, second in ranks(2, program):
        assert registered == ["first", "first", "middle", "middle", "last", "last"]
        assert arrived == ["last", "last", "middle", "middle", "first", "first"]
        assert count == 6
        assert_close(second, first, tolerance=0)


class Branches(nn.Module):
    """Rank 0 uses `left`, the others `right`, nobody `spare`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.left, self.right, self.spare = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.left if dist.get_rank() == 0 else self.right)(self.stem(x))


def test_unused_parameters_are_named():
    def program():
        ddp = DDP(Branches())
        ddp(torch.ones(2, 3)).sum().backward()

    with pytest.raises(DistributedError) as caught:
        ranks(2, program)
    message = str(caught.value)
    assert "rank" in message and "4 of 8 parameters" in message
    assert "'spare.weight', 'spare.bias'" in message
    assert "find_unused_parameters=True" in message


def test_unused_parameters_count_as_zeros_where_that_is_asked_for():
    x = torch.ones(2, 3)

    def program():
        ddp = DDP(Branches(), find_unused_parameters=True)
        found = []
        for _ in range(2):
            ddp.zero_grad()
            ddp(x).sum().backward()
            found.append(gradients(ddp.module))
        return found

    def alone(name):
        model = Branches()
        getattr(model, name)(model.stem(x)).sum().backward()
        return gradients(model)

    left, right = alone("left"), alone("right")
    expected = {
        "stem.weight": (left["stem.weight"] + right["stem.weight"]) / 2,
        "stem.bias": (left["stem.bias"] + right["stem.bias"]) / 2,
        **{name: left[name] / 2 for name in ("left.weight", "left.bias")},
        **{name: right[name] / 2 for name in ("right.weight", "right.bias")},
    }
    for found in ranks(2, program):
        for step in found:
            assert_close(step, expected)  # `spare` has no gradient on any rank


def test_ranks_may_differ_in_what_they_leave_unused_from_step_to_step():
    x = torch.ones(2, 3)

    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.always, self.extra = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, extra: bool) -> torch.Tensor:
            return self.extra(self.always(x)) if extra else self.always(x)

    def program():
        ddp = DDP(Sometimes(), find_unused_parameters=True)
        found = []
        for step in range(3):
            ddp.zero_grad()
            ddp(x, extra=dist.get_rank() == 0 or step == 2).sum().backward()
            found.append(gradients(ddp.module))
        return found

    whole = Sometimes()
    whole(x, extra=True).sum().backward()
    for found in ranks(2, program):
        for step, share_of_extra in enumerate((0.5, 0.5, 1.0)):
            expected = gradients(whole)["extra.weight"] * share_of_extra
            np.testing.assert_allclose(found[step]["extra.weight"], expected, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda rank: nn.Sequential(nn.Linear(3, 4 + rank)),
            r"parameter '0.weight': rank 0 has shape \[4, 3\]",
        ),
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
    ids=["shape", "length", "name", "dtype", "trained"],
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


def test_dtypes_have_buckets_of_their_own_and_frozen_parameters_none():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.narrow, self.wide = nn.Linear(3, 2), nn.Linear(2, 2, dtype=torch.float64)
            self.frozen = nn.Linear(2, 2, dtype=torch.float64).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.frozen(self.wide(self.narrow(x).double()))

    x = torch.arange(12.0).reshape(4, 3)

    def program():
        ddp = DDP(Mixed())
        ddp(share(x)).mean().backward()
        return len(ddp.reducer.buckets), gradients(ddp.module)

    alone = Mixed()
    alone(x).mean().backward()
    for count, found in ranks(2, program):
        assert count == 2
        assert_close(found, gradients(alone))


def test_a_backward_that_raised_is_not_taken_for_a_whole_one():
    def fail(grad):
        raise KeyError("lost")

    def program():
        ddp = DDP(perceptron())
        x = torch.ones(2, 6)
        ddp.module[1].register_forward_hook(
            lambda module, inputs, output: output.register_hook(fail) and None
        )
        with pytest.raises(KeyError):
            ddp(x).sum().backward()
        with pytest.raises(DistributedError, match="did not run to its end"):
            ddp(x)

    ranks(1, program)


def test_a_model_without_anything_to_train_needs_no_wrapper():
    def program():
        with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
            DDP(nn.ReLU())
        with pytest.raises(ValueError, match="bucket_cap_mb must be positive"):
            DDP(perceptron(), bucket_cap_mb=0)

    ranks(1, program)
