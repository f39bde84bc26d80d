"""Steps of many parameters on a GPU are those of the CPU; steps that unscale gradients do not ask the GPU whether to be taken."""

import sys

import pytest

import ddpgrad as torch
from ddpgrad import nn, optim

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu(device: str) -> str:
    if device == "cpu":
        pytest.skip("compares a GPU with the CPU")
    return device


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_fused_step_is_skipped_on_the_device(name: str, gpu: str) -> None:
    p = nn.Parameter(torch.ones(4, device=gpu))
    optimizer = getattr(optim, name)([p], lr=0.5, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    course = []
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(factor * p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        course.append(float(p.detach()[0]))
    assert course == pytest.approx([0.5, 0.5, 0.0], abs=1e-5) and scaler.get_scale() == 2.0
    if name == "Adam":
        assert float(optimizer.state[p]["step"]) == 2.0


def test_gradients_are_unscaled_clipped_and_used_together(gpu: str) -> None:
    torch.manual_seed(0)
    shapes = [(3000,), (7, 5), (1,), (40, 30)] * 5
    values = [(torch.randn(shape), torch.randn(shape)) for shape in shapes]
    found, started = [], 0
    for where in ("cpu", gpu):
        parameters = [nn.Parameter(value.to(where, copy=True)) for value, _ in values]
        optimizer = optim.AdamW(parameters, lr=0.1)
        scaler = torch.amp.GradScaler(where, init_scale=4.0)
        scaler.scale(torch.ones((), device=where))
        for _ in range(2):
            for p, (_, grad) in zip(parameters, values, strict=True):
                p.grad = 4 * grad.to(where)
            before = launched()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            scaler.step(optimizer)
            started = launched() - before
            scaler.update()
        found.append([norm, *(t.detach().cpu().clone() for p in parameters for t in (p, p.grad))])
        parameters[7].grad[0] = float("nan")
        scaler.unscale_(optimizer)
        before = parameters[0].detach().clone()
        scaler.step(optimizer)
        assert torch.equal(before, parameters[0].detach())
    assert started <= 12  # for 20 parameters
    for on_cpu, on_gpu in zip(*found, strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-5, atol=1e-6)


def launched() -> int:
    """How many kernels were started so far, where a stand-in for the GPU counts them; else 0."""
    stand_in = sys.modules.get("fakecuda")
    return 0 if stand_in is None else stand_in.counters()["launches"]
