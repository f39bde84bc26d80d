"""PowerSGD beside PyTorch's: the same random factors, the same errors fed back, the same losses."""

import pytest
import torch

import ddpgrad
import ddpgrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook as ours


def trained(t, hooks, settings: dict) -> list[float]:
    settings = dict(settings)
    compressed = settings.pop("compressed", False)
    t.manual_seed(0)
    nn = t.nn
    # Layers of one shape that do not follow one another: the order of the first factors shows.
    model = nn.Sequential(
        nn.Linear(20, 30),
        nn.Tanh(),
        nn.Linear(30, 30),
        nn.Tanh(),
        nn.Linear(30, 20),
        nn.Linear(20, 30),
        nn.Linear(30, 30),
        nn.Linear(30, 5),
    )
    ddp = nn.parallel.DistributedDataParallel(model)
    state = hooks.PowerSGDState(None, start_powerSGD_iter=3, **settings)
    hook = hooks.powerSGD_hook
    ddp.register_comm_hook(
        state,
        t.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_wrapper(hook)
        if compressed
        else hook,
    )
    optimizer = t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for _ in range(12):
        x = t.randn(16, 20)
        y = x[:, :5].sum(1).long() % 5
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return [*seen, *state.compression_stats()]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"matrix_approximation_rank": 2, "min_compression_rate": 1},
        {"warm_start": False, "random_seed": 5},
        {"use_error_feedback": False, "orthogonalization_epsilon": 1e-8},
        {"batch_tensors_with_same_shape": True},
        {"compressed": True},
    ],
)
def test_power_sgd(settings, tmp_path):
    import torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook as theirs

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        expected = trained(torch, theirs, settings)
    finally:
        torch.distributed.destroy_process_group()
    ddpgrad.distributed.init_process_group()
    try:
        assert trained(ddpgrad, ours, settings) == pytest.approx(expected, rel=1e-4)
    finally:
        ddpgrad.distributed.destroy_process_group()
