"""Communication hooks: called for every bucket, in order; their results become the gradients."""

import numpy as np
import pytest
from replicas import batch_for, gradients, on_ranks, perceptron, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad.distributed.algorithms import ddp_comm_hooks
from ddpgrad.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from ddpgrad.errors import StallError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def step(hook=None, state=None, size: int = 3) -> list:
    """Each rank's (own gradients, gradients of DDP) after one backward under `hook`, in several buckets."""
    x, y = batch_for(perceptron)

    def program():
        alone = perceptron()
        F.cross_entropy(alone(share(x)), share(y)).backward()
        model = perceptron()
        ddp = DDP(model, bucket_cap_mb=1e-4)
        if hook is not None:
            ddp.register_comm_hook(state, hook)
        for _ in range(2):  # buckets are laid out anew after the first
            ddp.zero_grad()
            F.cross_entropy(ddp(share(x)), share(y)).backward()
        return gradients(alone), gradients(model)

    return ranks(size, program)


def test_gradients_are_views_of_the_buffer_that_was_set():
    seen = []

    def hook(state, bucket):
        before = [g.numpy() for g in bucket.gradients()]
        bucket.set_buffer(bucket.buffer().double() * 2)
        bucket.buffer().mul_(2)
        for old, g in zip(before, bucket.gradients(), strict=True):
            seen.append(g.dtype == torch.float64 and np.array_equal(g.numpy(), old.astype(np.float64) * 4))
        return default_hooks.allreduce_hook(state, bucket)

    step(hook)
    assert seen and all(seen)


def test_all_reduce_hook_gives_the_bits_of_no_hook():
    for (_, plain), (_, hooked) in zip(step(), step(default_hooks.allreduce_hook), strict=True):
        assert plain.keys() == hooked.keys()
        assert all(np.array_equal(plain[name], hooked[name]) for name in plain)


@pytest.mark.parametrize(
    ("hook", "dtype"),
    [
        (default_hooks.fp16_compress_hook, np.float16),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), np.float16),
        (default_hooks.bf16_compress_hook, "bfloat16"),
        (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), "bfloat16"),
    ],
)
def test_compressed_gradients_are_rounded_once_per_rank_and_once_after_the_average(hook, dtype):
    results = step(hook)
    for name in results[0][1]:
        own = [r[0][name].astype(np.dtype(dtype)).astype(np.float32) for r in results]
        expected = ((own[0] + own[1] + own[2]) / np.float32(3)).astype(np.dtype(dtype)).astype(np.float32)
        for _, averaged in results:
            assert averaged[name].dtype == np.float32
            assert np.array_equal(averaged[name], expected), name


@pytest.mark.parametrize(
    "hook", [quantization_hooks.quantization_pertensor_hook, quantization_hooks.quantization_perchannel_hook]
)
def test_quantized_gradients_are_within_half_a_level_and_the_same_on_all_ranks(hook):
    plain, quantized = step(), step(hook)
    width = max(np.ptp(np.append(g, 0)) for own, _ in plain for g in own.values())
    for (_, expected), (_, got) in zip(plain, quantized, strict=True):
        for name, gradient in expected.items():
            assert np.array_equal(got[name], quantized[0][1][name])
            assert 0 < abs(got[name] - gradient).max() <= 0.51 * width / 255


def test_a_hook_sees_every_bucket_and_its_result_is_taken():
    def hook(seen, bucket: dist.GradBucket):
        names = [tuple(p.shape) for p in bucket.parameters()]
        assert names == [tuple(g.shape) for g in bucket.gradients()]
        assert bucket.buffer().numel() >= sum(g.numel() for g in bucket.gradients())
        seen.append((dist.get_rank(), bucket.index(), bucket.is_last()))
        future = torch.futures.Future()
        future.set_result(torch.full_like(bucket.buffer(), 7.0))
        return future

    seen: list = []
    for _, got in step(hook, seen, size=2):
        assert all((g == 7).all() for g in got.values())
    for rank in range(2):
        calls = [call[1:] for call in seen if call[0] == rank]
        ends = [place for place, (_, last) in enumerate(calls) if last]
        assert len(ends) == 2  # one for each backward; the second has other buckets
        assert [index for index, _ in calls] == [*range(ends[0] + 1), *range(ends[1] - ends[0])]
        assert ends[0] > 0


def test_wrong_hooks_are_refused():
    def program():
        ddp = DDP(perceptron())
        with pytest.raises(TypeError, match="must be callable"):
            ddp.register_comm_hook(None, 1)
        with pytest.raises(ValueError, match=r"annotation should be dist\.GradBucket"):
            ddp.register_comm_hook(None, lambda_with_annotation)
        with pytest.raises(TypeError, match=r"must be one of ALLREDUCE, .* got 'ALLREDUCE'"):
            ddp_comm_hooks.register_ddp_comm_hook("ALLREDUCE", ddp)
        other = DDP(perceptron())
        other.register_comm_hook(None, powerSGD_hook.powerSGD_hook)
        with pytest.raises(TypeError, match="must be a PowerSGDState, got NoneType"):
            other(torch.ones(1, 6)).sum().backward()

    def lambda_with_annotation(state, bucket: int):
        raise AssertionError

    ranks(1, program)


@pytest.mark.parametrize("hook", [powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook])
def test_power_sgd_leaves_out_what_it_remembers(hook):
    """What ranks took for the average and what they kept of their own add up to the average, step by step."""
    x, y = batch_for(perceptron)

    def program():
        alone, model = perceptron(), perceptron()
        F.cross_entropy(alone(share(x)), share(y)).backward()
        ddp = DDP(model)
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
        ddp.register_comm_hook(state, hook)
        taken = []
        for _ in range(5):
            ddp.zero_grad()
            F.cross_entropy(ddp(share(x)), share(y)).backward()
            taken.append(gradients(model))
        return gradients(alone), taken, sum(error.sum().item() for error in state.error_dict.values())

    results = ranks(3, program)
    for step in range(5):
        first = results[0][1][step]
        assert all(np.array_equal(first[name], r[1][step][name]) for r in results for name in first)
    average = {name: np.mean([own[name] for own, _, _ in results], axis=0) for name in results[0][0]}
    assert all(
        np.allclose(results[0][1][1][name], average[name], atol=1e-6) for name in average
    )  # not yet compressed
    assert not all(np.allclose(results[0][1][2][name], average[name], atol=1e-3) for name in average)
    if hook is powerSGD_hook.batched_powerSGD_hook:
        return  # a part of its error lies between and behind the gradients
    compressed = sum(sum(taken[name].sum() for name in taken) for taken in results[0][1][2:])
    kept = np.mean([left for _, _, left in results])
    assert compressed + kept == pytest.approx(3 * sum(a.sum() for a in average.values()), abs=1e-4)


def test_a_hook_whose_future_nobody_completes_is_waited_for_no_longer_than_others(monkeypatch):
    monkeypatch.setenv("DDPGRAD_TIMEOUT", "0.1")

    def program():
        model = DDP(perceptron())
        model.register_comm_hook(None, lambda state, bucket: torch.futures.Future())
        model(torch.ones(2, 6)).sum().backward()

    with pytest.raises(
        StallError, match=r"communication hook returned was not completed within 0\.1 seconds"
    ):
        ranks(2, program)


def test_power_sgd_tells_how_much_it_saves(caplog):
    def program():
        ddp = DDP(perceptron())
        state = powerSGD_hook.PowerSGDState(
            None, start_powerSGD_iter=2, compression_stats_logging_frequency=3
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        for _ in range(7):
            ddp(torch.ones(1, 6)).sum().backward()

    with caplog.at_level("INFO"):
        ranks(1, program)
    assert [record.args[0] for record in caplog.records] == [3, 6]


def test_power_sgd_of_full_rank_is_the_average():
    def hook(state, bucket):
        state = state or powerSGD_hook.PowerSGDState(
            None, 100, start_powerSGD_iter=0, min_compression_rate=0, use_error_feedback=False, warm_start=False,
            batch_tensors_with_same_shape=True,
        )  # fmt: skip
        return powerSGD_hook.powerSGD_hook(state, bucket)

    for (_, plain), (_, hooked) in zip(step(), step(hook), strict=True):
        assert all(np.allclose(plain[name], hooked[name], atol=1e-6) for name in plain)
    with pytest.raises(ValueError, match=r"Expect `start_powerSGD_iter` > 1 .* got 1"):
        powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1)


@on_ranks(2)
def test_hooks_by_type():
    for kind in ddp_comm_hooks.DDPCommHookType:
        ddp = DDP(perceptron())
        ddp_comm_hooks.register_ddp_comm_hook(kind, ddp)
        ddp(torch.full((1, 6), float(dist.get_rank()))).sum().backward()
        mine = next(ddp.parameters()).grad
        alike = dist.nn.functional.all_gather(mine)
        assert torch.equal(*alike) == (kind.name != "NOOP"), kind
