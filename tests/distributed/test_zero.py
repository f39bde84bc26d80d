"""ZeroRedundancyOptimizer: the bits of the optimizer alone, a share of its state, and its files."""

import numpy as np
import pytest
from replicas import batch_for, on_ranks, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, default_hooks
from ddpgrad.distributed.optim import ZeroRedundancyOptimizer
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

KINDS = {"sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), "adamw": (torch.optim.AdamW, {"lr": 0.01})}


def steps(model, optimizer, count: int, scheduler=None) -> None:
    x, y = batch_for(perceptron)
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(model(share(x)), share(y)).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def bits(model) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def groups(model):
    """Two groups of different options, one with a single parameter."""
    first, *others = model.parameters()
    return [{"params": [first], "lr": 0.02}, {"params": others}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 6])
def test_same_bits_as_the_optimizer_alone(kind, world_size):
    make, options = KINDS[kind]

    def program():
        found = []
        for zero in (False, True):
            model = perceptron()
            wrapped = DDP(model)
            optimizer = (
                ZeroRedundancyOptimizer(groups(model), make, **options)
                if zero
                else make(groups(model), **options)
            )
            steps(wrapped, optimizer, 4, torch.optim.lr_scheduler.StepLR(optimizer, 2))
            found.append((bits(model), len(optimizer.state)))
        return found

    results = ranks(world_size, program)
    for (alone, whole), (shared, _) in results:
        assert shared == alone == results[0][0][0]
        assert whole == 4
    # Every parameter has its state on one rank.
    assert sum(shared for _, (_, shared) in results) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_that_of_the_optimizer_alone_and_loads_into_other_worlds(kind):
    make, options = KINDS[kind]

    def saved(zero):
        model = perceptron()
        optimizer = (
            ZeroRedundancyOptimizer(model.parameters(), make, **options)
            if zero
            else make(model.parameters(), **options)
        )
        steps(DDP(model), optimizer, 3)
        if zero:
            with pytest.raises(RuntimeError, match="has not been consolidated"):
                optimizer.state_dict()
            optimizer.consolidate_state_dict(to=1)
            if dist.get_rank() != 1:
                return None
        return model.state_dict(), optimizer.state_dict()

    _, (weights, whole) = ranks(2, lambda: saved(True))
    _, (_, expected) = ranks(2, lambda: saved(False))
    assert whole["param_groups"] == expected["param_groups"]
    assert list(whole["state"]) == list(expected["state"])
    for number, values in expected["state"].items():
        for name, value in values.items():
            np.testing.assert_array_equal(np.asarray(whole["state"][number][name]), np.asarray(value))

    def goes_on(zero):
        model = perceptron()
        model.load_state_dict(weights)
        optimizer = (
            ZeroRedundancyOptimizer(model.parameters(), make, **options)
            if zero
            else make(model.parameters(), **options)
        )
        optimizer.load_state_dict(whole)
        steps(DDP(model), optimizer, 2)
        return bits(model)

    assert ranks(3, lambda: goes_on(True)) == ranks(3, lambda: goes_on(False))


def test_a_group_that_is_added_later_is_dealt_too():
    def program():
        model = perceptron()
        first, *others = model.parameters()
        optimizer = ZeroRedundancyOptimizer([first], torch.optim.AdamW, lr=0.01)
        optimizer.add_param_group({"params": others, "lr": 0.1})
        steps(DDP(model), optimizer, 2)
        return bits(model), len(optimizer.state)

    def alone():
        model = perceptron()
        first, *others = model.parameters()
        optimizer = torch.optim.AdamW([{"params": [first]}, {"params": others, "lr": 0.1}], lr=0.01)
        steps(DDP(model), optimizer, 2)
        return bits(model)

    results = ranks(2, program)
    assert [result[0] for result in results] == ranks(2, alone)
    assert sum(count for _, count in results) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("hook", [default_hooks.allreduce_hook, default_hooks.bf16_compress_hook])
def test_updates_within_backward_have_the_bits_of_a_step_after_it(kind, static, hook):
    make, options = KINDS[kind]
    x, y = batch_for(perceptron)

    def program(wrap):
        model = perceptron()
        ddp = DDP(model, bucket_cap_mb=1e-4, static_graph=static)
        zero = ZeroRedundancyOptimizer(groups(model), make, overlap_with_ddp=wrap is not None, **options)
        ddp.register_comm_hook(None, hook if wrap is None else wrap(hook, ddp, zero))
        losses = []
        for step in range(7):
            zero.zero_grad()
            loss = F.cross_entropy(ddp(share(x)), share(y))
            loss.backward()
            losses.append(loss.item())
            if wrap is None and step >= 2 + static:  # until then PyTorch's hooks wait for the last buckets
                zero.step()
            if step == 4:
                zero.param_groups[1]["lr"] *= 0.1
        zero.consolidate_state_dict()
        state = zero.state_dict() if dist.get_rank() == 0 else {"state": {}}
        moments = [torch.as_tensor(v).tolist() for s in state["state"].values() for v in s.values()]
        return losses, bits(model), moments

    results = [
        ranks(3, lambda wrap=wrap: program(wrap))
        for wrap in (None, ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved)
    ]
    assert results[0] == results[1] == results[2]


def test_what_decides_about_gradients_after_backward_does_not_go_with_updates_within_it(caplog):
    def program():
        model, x = perceptron(), torch.ones(4, 6)
        alone = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, overlap_with_ddp=True)
        make, hook = ddp_zero_hook.hook_with_zero_step, default_hooks.allreduce_hook
        with pytest.raises(ValueError, match="must be constructed with `overlap_with_ddp=True`"):
            make(hook, DDP(model), alone)
        with pytest.raises(ValueError, match="has find_unused_parameters=True, which decides"):
            make(hook, DDP(model, find_unused_parameters=True), zero)
        with pytest.raises(ValueError, match=r"parameters \[0, 1, 2, 3\] are not among"):
            make(hook, DDP(perceptron()), zero)
        ddp = DDP(model)
        ddp.register_comm_hook(None, make(hook, ddp, zero))
        before = bits(model)
        for _ in range(2):
            ddp(x).sum().backward()
            zero.step()
        assert bits(model) == before
        zero.zero_grad()
        ddp.loss_weight(4)
        with pytest.raises(dist.DistError, match="loss_weight, accumulate and join scale gradients"):
            ddp(x).sum().backward()

    ranks(1, program)
    assert "`step()` should not be included" in caplog.text


@pytest.mark.parametrize(
    ("given", "error", "text"), [([], ValueError, "empty parameter list"), ([3], TypeError, "got int")]
)
@on_ranks(2)
def test_no_parameters_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        ZeroRedundancyOptimizer(given, torch.optim.SGD, lr=0.1)
