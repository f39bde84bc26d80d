"""Modules whose parameters are divided among ranks train as on one."""

import copy

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.tensor import DTensor, Replicate, Shard
from ddpgrad.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

torch.manual_seed(0)
WORDS = torch.arange(12).reshape(2, 6) % 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)
        self.up, self.down, self.out = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 10)

    def forward(self, words):
        x = self.words(words)
        return self.out(x + self.down(self.up(self.norm(x)).relu()))


MODEL = Model()
SIMPLE = {
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
    "words": ColwiseParallel(output_layouts=Replicate()),
}
BY_SEQUENCE = {
    "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
    "out": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
}


def trained(model, context=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        if context is None:
            F.cross_entropy(model(WORDS).flatten(0, 1), WORDS.flatten()).backward()
        else:
            with context():
                loss = F.cross_entropy(model(WORDS).flatten(0, 1), WORDS.flatten())
                assert loss.placements == (Replicate(),)
                loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if isinstance(p, DTensor)], 100.0)
        optimizer.step()
    return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]


@pytest.mark.parametrize(("plan", "context"), [(SIMPLE, None), (BY_SEQUENCE, loss_parallel)])
def test_parameters_after_two_steps_are_those_of_one_rank(plan, context):
    expected = trained(copy.deepcopy(MODEL))

    def program():
        mesh = dist.init_device_mesh("cpu", (2,))
        model = parallelize_module(copy.deepcopy(MODEL), mesh, plan)
        assert model.up.weight.to_local().shape == (6, 8)
        for found, wanted in zip(trained(model, context), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    ranks(2, program)


def test_inputs_and_outputs_are_prepared():
    class Sum(nn.Module):
        def forward(self, x, y=None):
            assert x.placements == (Replicate(),)
            return x if y is None else x + y

    def program():
        mesh, rank = dist.init_device_mesh("cpu", (2,)), dist.get_rank()
        style = PrepareModuleInput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(),
            input_kwarg_layouts={"y": Shard(0)}, desired_input_kwarg_layouts={"y": Replicate()},
        )  # fmt: skip
        told = parallelize_module(Sum(), mesh, style)(torch.full((1,), rank + 1.0), y=torch.ones(1))
        both = PrepareModuleInputOutput(
            input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),),
            output_layouts=Replicate(), desired_output_layouts=Shard(0),
        )  # fmt: skip
        module = parallelize_module(nn.ModuleList([Sum()]), mesh, {"*": both})[0]
        with pytest.warns(UserWarning, match="could not be resolved"):
            parallelize_module(module, mesh, {"absent": both})
        with pytest.raises(NotImplementedError, match=r"only support nn\.Linear and nn\.Embedding"):
            parallelize_module(module, mesh, ColwiseParallel())
        return told.to_local().tolist(), module(torch.full((1,), rank + 1.0)).tolist()

    assert ranks(2, program) == [([2.0, 3.0], [1.0]), ([2.0, 3.0], [2.0])]
