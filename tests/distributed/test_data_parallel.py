"""Gradients of replicas: averaged over the ranks, in buckets, also where parameters are unused."""

from contextlib import nullcontext

import numpy as np
import pytest
from replicas import Words, assert_close, batch_for, convolution, gradients, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad._C._distributed_c10d import Reducer
from ddpgrad.distributed.utils import _sync_module_states as sync_module_states
from ddpgrad.errors import DistributedError, MismatchError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


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


def test_what_a_forward_runs_within_decides_whether_its_backward_averages():
    """Wherever that backward runs, as in PyTorch; of a model whose own forward did not run, where backward runs decides."""

    def gradient(forward_within, backward_within, of_module=False):
        ddp = DDP(nn.Linear(6, 1))
        with ddp.no_sync() if forward_within else nullcontext():
            loss = (ddp.module if of_module else ddp)(torch.full((1, 6), 1.0 + dist.get_rank())).sum()
        with ddp.no_sync() if backward_within else nullcontext():
            loss.backward()
        return ddp.module.weight.grad[0, 0].item()

    def program():
        return gradient(True, False), gradient(False, True), gradient(False, True, of_module=True)

    assert ranks(2, program) == [(1.0, 1.5, 1.0), (2.0, 1.5, 2.0)]


def test_gradients_lie_in_memory_as_their_parameters_do():
    def program():
        torch.manual_seed(0)
        ddp = DDP(nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last))
        optimizer = torch.optim.Adam(ddp.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            ddp(torch.ones(2, 3, 5, 5) * (1 + dist.get_rank())).square().sum().backward()
            optimizer.step()
        weight = ddp.module.weight
        return weight.stride(), weight.grad.stride(), weight.tolist()

    def apart():
        format = torch.channels_last if dist.get_rank() else torch.contiguous_format
        DDP(nn.Conv2d(3, 4, 3).to(memory_format=format))

    first, second = ranks(2, program)
    assert first == second and first[0] == first[1] == (27, 1, 9, 3)
    with pytest.raises(
        MismatchError, match="'weight': its elements lie in memory in another order on rank 1"
    ):
        ranks(2, apart)


def test_a_program_that_drives_the_wrapper_itself_finds_pytorchs_names():
    def program():
        torch.manual_seed(dist.get_rank())
        model = nn.Linear(2, 2)
        sync_module_states(model, dist.group.WORLD, 1 << 20, 1, ["bias"])
        ddp = DDP(model, init_sync=False, find_unused_parameters=True)
        assert isinstance(ddp.reducer, Reducer) and ddp.find_unused_parameters and not ddp.static_graph
        assert dist.constants.default_pg_timeout is dist.default_pg_timeout
        ddp.require_backward_grad_sync = False
        ddp(torch.ones(1, 2) * dist.get_rank()).sum().backward()
        own = model.weight.grad.tolist()
        ddp.require_backward_grad_sync = True
        ddp.reducer._rebuild_buckets()
        ddp.reducer.prepare_for_backward([])
        (ddp(torch.ones(1, 2)) * 0).sum().backward()
        assert not ddp._get_ddp_logging_data().get("can_set_static_graph")
        return model.weight.tolist(), model.bias.tolist(), own, model.weight.grad.tolist()

    first, second = ranks(2, program)
    assert first[0] == second[0] and first[1] != second[1]
    assert (first[2], second[2]) == ([[0, 0]] * 2, [[1, 1]] * 2)
    assert first[3] == second[3] == [[0.5, 0.5]] * 2


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


def test_what_was_used_only_within_no_sync_is_averaged_by_the_next_backward():
    x = torch.ones(2, 3)

    def program():
        ddp = DDP(Branches(), find_unused_parameters=True)
        found = []
        for within in ("left", "right", None):
            ddp.zero_grad()
            if within:
                with ddp.no_sync():
                    if dist.get_rank() == 0:
                        getattr(ddp.module, within)(ddp.module.stem(x)).sum().backward()
            ddp.module.stem(x).sum().backward()
            found.append(gradients(ddp.module))
        return found

    whole = Branches()
    (whole.left(whole.stem(x)).sum() + whole.right(whole.stem(x)).sum()).backward()
    expected = gradients(whole)
    for found in ranks(2, program):
        for step, branch in zip(found, ("left", "right"), strict=False):
            assert list(step) == ["stem.weight", "stem.bias", f"{branch}.weight", f"{branch}.bias"]
            for name in (f"{branch}.weight", f"{branch}.bias"):
                np.testing.assert_allclose(step[name], expected[name] / 2, rtol=1e-6)
        assert list(found[2]) == ["stem.weight", "stem.bias"], "what was used is forgotten with the average"


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


def test_a_parameter_that_is_frozen_after_wrapping_is_noticed():
    def program():
        ddp = DDP(perceptron())
        ddp.module[0].weight.requires_grad_(False)
        ddp(torch.ones(2, 6)).sum().backward()

    with pytest.raises(
        DistributedError, match=r"no gradient: '0.weight'. Their requires_grad was turned off"
    ):
        ranks(2, program)


def test_a_part_of_two_models_that_are_wrapped_apart_is_noticed():
    def program(find_unused_parameters):
        shared, model = nn.Linear(6, 3), []
        for head in (nn.Linear(3, 1), nn.Linear(3, 2)):
            model.append(DDP(nn.Sequential(shared, head), find_unused_parameters=find_unused_parameters))
        model[0](torch.ones(2, 6)).sum().backward()
        return shared.weight.grad is not None

    with pytest.raises(
        DistributedError, match=r"made later has some of them, too.* wrap one module that has both"
    ):
        ranks(2, lambda: program(False))
    assert ranks(2, lambda: program(True)) == [True, True]


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
