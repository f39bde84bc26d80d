"""What a model says of its buckets: who is in them, when they went and came, and what was not used."""

import pytest
from replicas import batch_for, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.nn.parallel import DistributedDataParallel as DDP


def trained(model: DDP, steps: int) -> None:
    x, y = batch_for(perceptron)
    for _ in range(steps):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()


class Idle(nn.Module):
    """One part is used by rank 0 only."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.idle = perceptron(), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + self.idle(x) if dist.get_rank() == 0 else self.net(x)


@pytest.mark.parametrize("n", [2, 4])
def test_each_bucket_is_explained(n):
    def program():
        model = DDP(perceptron(), bucket_cap_mb=0.0001)
        before = model.explain()
        trained(model, 4)
        return before, model.explain(), str(model.explain())

    for rank, (before, told, text) in enumerate(ranks(n, program)):
        assert before["steps"] == 0 and before["buckets"][0]["ready"] is None and "-" in str(before)
        assert told["rank"] == rank and told["steps"] == 3  # since the first laid the buckets out anew
        assert [b["parameters"] for b in told["buckets"]] == [
            ["2.weight"],
            ["2.bias", "0.weight"],
            ["0.bias"],
        ]
        assert [b["bytes"] for b in told["buckets"]] == [320, 496, 80]
        for b in told["buckets"]:
            assert 0 < b["ready"] <= b["launched"] <= b["finished"] <= told["backward"]
            assert 0 < b["exposed"] < told["backward"]
        assert told["buckets"][0]["ready"] < told["buckets"][1]["ready"]
        assert told["unused"] == [] and told["forward"] > 0
        assert "medians of 3 steps" in text and "2.bias … 0.weight (2)" in text


def test_unused_parameters_are_named_by_rank():
    def program():
        model = DDP(Idle(), find_unused_parameters=True)
        trained(model, 2)
        data = model._get_ddp_logging_data()
        return (
            model.explain(),
            str(model.explain()),
            data["unused_parameter_size"],
            model.explain(collective=True),
        )

    first, second = ranks(2, program)
    assert first[0]["unused"] == [] and first[2] == 0 and "without a gradient" not in first[1]
    assert second[0]["unused"] == ["idle.bias", "idle.weight"][::-1] and second[2] == 112
    assert "without a gradient on rank 1 in the last backward: idle.weight, idle.bias." in second[1]
    assert "(nothing of 'idle' was used), or call requires_grad_(False)" in second[1]
    assert "when backward has ended, and bucket 0 with them" in second[1]
    for *_, together in (first, second):
        assert together["unused_by_rank"] == {0: [], 1: ["idle.weight", "idle.bias"]}
        assert "without a gradient on rank 1 in the last backward: idle.weight" in str(together)
