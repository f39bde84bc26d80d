"""Pipelines: gradients, losses and outputs are those of the whole model on the whole batch, whatever the schedule."""

import numpy as np
import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.distributed.device_mesh import init_device_mesh
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.pipelining import PipelineStage, schedules
from ddpgrad.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from ddpgrad.distributed.pipelining.schedules import get_schedule_class
from ddpgrad.distributed.pipelining.stage import PipeliningShapeError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

WIDTH, ROWS = 6, 12
mean_square = nn.functional.mse_loss


def layers(n: int, width: int = WIDTH) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(width, width), nn.Tanh()).double() for _ in range(n)]


def batch(width: int = WIDTH):
    draws = np.random.default_rng(0).normal(size=(2, ROWS, width))
    return torch.tensor(draws[0]), torch.tensor(draws[1])


def gradients(module):
    return [
        p.grad.full_tensor().numpy() if hasattr(p.grad, "full_tensor") else p.grad.numpy().copy()
        for p in module.parameters()
    ]


def close(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "n", "per_rank", "chunks", "width"),
    [
        ("GPipe", 2, 1, 3, WIDTH), ("1F1B", 3, 1, 4, WIDTH), ("1F1B", 3, 1, 3, 300), ("1F1B", 1, 1, 2, WIDTH),
        ("Interleaved1F1B", 2, 2, 4, WIDTH), ("interleaved1f1b", 3, 3, 6, WIDTH), ("Interleaved1F1B", 2, 2, 1, 300),
        ("Interleaved1F1B", 1, 3, 2, WIDTH), ("LoopedBFS", 2, 3, 3, WIDTH),
    ],
)  # fmt: skip
def test_a_step_is_that_of_the_whole_model(name, n, per_rank, chunks, width):
    x, y = batch(width)
    whole = nn.Sequential(*layers(n * per_rank, width))
    output = whole(x)
    mean_square(output, y).backward()

    def program():
        rank, parts = dist.get_rank(), layers(n * per_rank, width)
        stages = [PipelineStage(parts[i], i, n * per_rank, "cpu") for i in range(rank, n * per_rank, n)]
        kind = get_schedule_class(name)
        single = issubclass(kind, schedules.PipelineScheduleSingle)
        schedule = kind(stages[0] if single else stages, chunks, loss_fn=mean_square)
        losses: list = []
        for _ in range(2):
            for stage in stages:
                stage.submod.zero_grad()
            last = {"target": y, "losses": losses} if rank == n - 1 else {}
            out = schedule.step(*([x] if rank == 0 else []), **last)
        with torch.no_grad():
            again = schedule.eval(*([x] if rank == 0 else []))
        if rank == n - 1:
            assert len(losses) == chunks
            assert torch.equal(out, again) and not out.requires_grad
        return [gradients(stage.submod) for stage in stages], out if rank < n - 1 else out.numpy()

    results = ranks(n, program)
    for rank, (found, out) in enumerate(results):
        for k, own in enumerate(found):
            close(own, gradients(whole[rank + k * n]))
        if rank == n - 1:
            np.testing.assert_allclose(out, output.detach().numpy(), rtol=1e-9)
        else:
            assert out is None


class Passing(nn.Module):
    """Passes on what needs a gradient, what does not, and integers; the last one uses all."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, WIDTH).double(), last

    def forward(self, x, rows=None, fixed=None, *, scale):
        y = self.inner(x) * scale
        if self.last:
            return y * rows[:, None] + fixed
        return y, torch.arange(len(x)), y.detach() * 2


def test_stages_pass_on_several_tensors_and_take_keyword_arguments():
    x, y = batch()
    scale = torch.linspace(1, 2, ROWS, dtype=torch.float64)[:, None]

    def modules():
        torch.manual_seed(0)
        return Passing(False), Passing(True)

    def program():
        rank = dist.get_rank()
        own = modules()[rank]
        schedule = schedules.Schedule1F1B(
            PipelineStage(own, rank, 2, "cpu"), 3, loss_fn=mean_square, scale_grads=False
        )
        if rank:
            schedule.step(target=y, scale=scale)
        else:
            schedule.step(x, scale=scale)
        return gradients(own)

    first, second = modules()
    for part in torch.arange(ROWS).chunk(3):
        mean_square(second(*first(x[part], scale=scale[part]), scale=scale[part]), y[part]).backward()
    for found, module in zip(ranks(2, program), (first, second), strict=True):
        close(found, gradients(module))


@pytest.mark.parametrize("shard", [False, True], ids=["ddp", "fully_shard"])
def test_replicas_of_a_pipeline_average_in_the_last_backward(shard):
    x, y = batch()
    whole = nn.Sequential(*layers(2))
    mean_square(whole(x), y).backward()

    def program():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
        stage, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
        own = layers(2)[stage]
        own = fully_shard(own, mesh=mesh["dp"]) if shard else DDP(own, process_group=mesh.get_group("dp"))
        part = PipelineStage(own, stage, 2, "cpu", group=mesh.get_group("pp"))
        schedule = schedules.Schedule1F1B(part, 3, loss_fn=mean_square)
        for _ in range(2):
            own.zero_grad()
            half = slice(replica * ROWS // 2, (replica + 1) * ROWS // 2)
            schedule.step(target=y[half]) if stage else schedule.step(x[half])
        return gradients(own)

    for rank, found in enumerate(ranks(4, program)):
        close(found, gradients(whole[rank % 2]))


def test_arguments_are_split_and_outputs_joined_as_their_specs_say():
    x = torch.arange(12.0).view(2, 6)
    args, kwargs = split_args_kwargs_into_chunks((x, 3, [x]), {"m": x}, 2)
    assert [a[0].tolist() for a in args] == [[x[0].tolist()], [x[1].tolist()]]
    assert args[1][1] == 3 and torch.equal(args[1][2][0], x[1:]) and torch.equal(kwargs[0]["m"], x[:1])
    columns, _ = split_args_kwargs_into_chunks((x,), None, 3, TensorChunkSpec.from_tuple((1,)))
    assert torch.equal(merge_chunks(columns, (TensorChunkSpec(1),))[0], x)
    with pytest.raises(ValueError, match="into 3 micro-batches"):
        split_args_kwargs_into_chunks((x,), None, 3)


def test_what_cannot_be_a_pipeline_is_refused():
    def program():
        part = layers(1)[0]
        stage = PipelineStage(part, 0, 1, "cpu", input_args=torch.zeros(4, WIDTH, dtype=torch.float64))
        with pytest.raises(ValueError, match="Stage index 2 is out of range of 2"):
            PipelineStage(part, 2, 2, "cpu")
        with pytest.raises(ValueError, match=r"rank 0 of 1 has stages \[0, 1\] of 2, got \[0\]"):
            schedules.ScheduleLoopedBFS([PipelineStage(part, 0, 2, "cpu")], 2)
        with pytest.raises(ValueError, match="Unknown schedule name 'eager'"):
            get_schedule_class("eager")
        with pytest.raises(NotImplementedError, match="make a PipelineStage"):
            get_schedule_class("ZBVZeroBubble")([stage], 2)
        schedule = schedules.ScheduleGPipe(stage, 2, loss_fn=mean_square)
        with torch.no_grad(), pytest.raises(RuntimeError, match="call eval"):
            schedule.step(batch()[0])
        with pytest.raises(PipeliningShapeError, match="expected inputs"):
            schedule.step(batch()[0])

    ranks(1, program)
