"""DiLoCo: inner steps apart, outer steps together, against the same arithmetic by NumPy."""

from pathlib import Path

import numpy as np
import pytest
from replicas import on_ranks, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import launcher, nn
from ddpgrad.distributed.algorithms.diloco import DiLoCo
from ddpgrad.distributed.optim import PostLocalSGDOptimizer

RATE, OUTER, MOMENTUM, STEPS = 0.1, 0.7, 0.9, 13
SIZES = [300, 40, 7, 600]


def start(rank: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rank)
    return [rng.normal(size=n).astype(np.float32) for n in SIZES]


def gradient(rank: int, step: int, i: int) -> np.ndarray:
    return np.random.default_rng([rank, step, i]).normal(size=SIZES[i]).astype(np.float32)


def expected(world: int, every: int, parts: list[list[int]], delay: int, alpha: float) -> list[np.ndarray]:
    """Rank 0's parameters after all steps, computed in float64."""
    local = [[p.astype(float) for p in start(0)] for _ in range(world)]
    outer = [p.astype(float) for p in start(0)]
    momentum = [np.zeros(n) for n in SIZES]
    sent: dict[int, np.ndarray] = {}
    for step in range(1, STEPS + 1):
        for rank in range(world):
            for i in range(len(SIZES)):
                local[rank][i] = local[rank][i] - RATE * gradient(rank, step, i)
        for k, part in enumerate(parts):
            begins = (k + 1) * every // len(parts) % every
            for i in part:
                if step >= begins and (step - begins) % every == 0:
                    sent[i] = sum(outer[i] - local[rank][i] for rank in range(world)) / world
                if (step - begins) % every == delay and i in sent:
                    g = sent.pop(i)
                    momentum[i] = MOMENTUM * momentum[i] + g
                    outer[i] = outer[i] - OUTER * (g + MOMENTUM * momentum[i])
                    for rank in range(world):
                        local[rank][i] = alpha * local[rank][i] + (1 - alpha) * outer[i]
    return local[0]


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(
    ("options", "parts", "tolerance"),
    [
        ({}, [[0, 1, 2, 3]], 1e-5),
        ({"fragments": 2}, [[0, 1, 2], [3]], 1e-5),
        ({"fragments": 2, "fragment_sync_delay": 2, "fragment_update_alpha": 0.5}, [[0, 1, 2], [3]], 1e-5),
        ({"should_quantize": True, "fragment_sync_delay": 1}, [[0, 1, 2, 3]], 0.03),
    ],
    ids=["together", "in parts", "later", "8 bits"],
)
def test_parameters_are_those_of_the_papers_arithmetic(world, options, parts, tolerance):
    def program():
        parameters = [nn.Parameter(torch.tensor(p)) for p in start(dist.get_rank())]
        inner = torch.optim.SGD(parameters, RATE)
        averager = DiLoCo(parameters, 4, OUTER, MOMENTUM, **options)
        optimizer = PostLocalSGDOptimizer(inner, averager)
        for step in range(1, STEPS + 1):
            for i, p in enumerate(parameters):
                p.grad = torch.tensor(gradient(dist.get_rank(), step, i))
            optimizer.step()
        before = [p.detach().numpy().copy() for p in parameters]
        averager.synchronize()
        return before, [p.detach().numpy().copy() for p in parameters]

    found = ranks(world, program)
    delay, alpha = options.get("fragment_sync_delay", 0), options.get("fragment_update_alpha", 0.0)
    for got, value in zip(found[0][0], expected(world, 4, parts, delay, alpha), strict=True):
        np.testing.assert_allclose(got, value, atol=tolerance * np.abs(value).max())
    for i in range(len(SIZES)):
        assert all(np.array_equal(after[i], found[0][1][i]) for _, after in found)


@pytest.mark.parametrize("stop", [5, 7])
@pytest.mark.parametrize("options", [{}, {"fragment_sync_delay": 2, "should_quantize": True}])
@pytest.mark.parametrize(
    "how", [{}, {"sharded": True}, {"background": True}], ids=["", "sharded", "background"]
)
def test_a_run_goes_on_from_its_file_with_the_same_bits(stop, options, how, tmp_path):
    """Between two meetings, where ranks differ, and while parts are under way."""

    def trained(folder: Path | None):
        def make():
            torch.manual_seed(0)
            model = perceptron()
            averager = DiLoCo(model.parameters(), 6, fragments=2, **options)
            return {
                "optimizer": PostLocalSGDOptimizer(torch.optim.AdamW(model.parameters(), 1e-2), averager),
                "model": model,
            }

        run = make()
        for step in range(12):
            if step == stop and folder is not None:
                checkpoints = launcher.Checkpointer(folder, **how)
                checkpoints.save(step - 1, **run)
                checkpoints.wait()
                run = make()
                assert checkpoints.resume(**run) == step
            torch.manual_seed(10 * step + dist.get_rank())
            x, y = torch.randn(8, 6), torch.randint(0, 4, (8,))
            run["optimizer"].zero_grad()
            F.cross_entropy(run["model"](x), y).backward()
            run["optimizer"].step()
        return [p.detach().numpy().tobytes() for p in run["model"].parameters()]

    whole = ranks(2, lambda: trained(None))
    assert ranks(2, lambda: trained(tmp_path)) == whole
    assert whole[0] != whole[1]


def test_parts_that_have_just_met_stay_as_they_are():
    """Synchronised again they would go on by their momentum."""

    def program():
        p = nn.Parameter(torch.tensor([float(dist.get_rank())]))
        averager = DiLoCo([p], 2)
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD([p], RATE), averager)
        values = []
        for step in range(5):
            p.grad = torch.tensor([1.0 + dist.get_rank()])
            optimizer.step()
            values.append(p.item())
            if step >= 3:
                averager.synchronize()
                values.append(p.item())
        return values

    (_, _, _, met, again, apart, last), other = ranks(2, program)
    assert met == again and apart != last == other[-1]


@on_ranks(1)
def test_mistakes_are_told():
    weight = nn.Parameter(torch.zeros(3))
    for wrong, text in (
        ({"fragments": 5, "sync_every": 4}, "1 <= fragments <= sync_every, got 5 and 4"),
        ({"fragment_sync_delay": 100}, "0 <= fragment_sync_delay < sync_every, got 100 and 100"),
        ({"fragment_update_alpha": 1.0}, "0 <= fragment_update_alpha < 1, got 1.0"),
        ({"outer_lr": 0.0}, "outer_lr > 0 and 0 <= outer_momentum < 1, got 0.0 and 0.9"),
    ):
        with pytest.raises(ValueError, match=text):
            DiLoCo([weight], **wrong)
    with pytest.raises(ValueError, match="no parameter requires a gradient"):
        DiLoCo([torch.zeros(3)])
    saved = DiLoCo([weight]).state_dict()
    with pytest.raises(ValueError, match=r"the saved parts have \[3\] elements, and these \[4\]"):
        DiLoCo([nn.Parameter(torch.zeros(4))]).load_state_dict(saved)
