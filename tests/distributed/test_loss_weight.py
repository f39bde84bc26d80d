"""`loss_weight`: gradients are the mean over all tokens or samples of all ranks, as one process computes them."""

import numpy as np
import pytest
from replicas import assert_close, batch_for, gradients, perceptron, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.errors import DistributedError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

# Samples by rank, and by micro-batch within it; the last rank has a micro-batch without any.
DEALT = [[1, 3], [2, 1], [4, 0], [0, 1]]


class Branches(nn.Module):
    """Parts that only some batches use, one of them with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.small, self.table = nn.Linear(6, 4), nn.Linear(6, 4), nn.Embedding(4, 4, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x) + self.table(torch.arange(len(x)) % 4)
        return out + self.small(x) if len(x) == 1 else out


def rows(rank: int, part: int) -> slice:
    sizes = [n for counts in DEALT for n in counts]
    start = sum(sizes[: 2 * rank + part])
    return slice(start, start + DEALT[rank][part])


def joined(build, parts) -> dict[str, np.ndarray]:
    """The gradients of one process, whose loss is the mean over all samples of `parts`."""
    model, (x, y) = build(), batch_for(perceptron)
    count = sum(DEALT[rank][part] for rank, part in parts)
    for rank, part in parts:
        mine = rows(rank, part)
        if DEALT[rank][part]:
            (F.cross_entropy(model(x[mine]), y[mine], reduction="sum") / count).backward()
    return dense(model)


def dense(model: nn.Module) -> dict[str, np.ndarray]:
    for p in model.parameters():
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.to_dense()
    return gradients(model)


def backward(model: DDP, part: int) -> None:
    x, y = batch_for(perceptron)
    mine = rows(dist.get_rank(), part)
    loss = F.cross_entropy(model(x[mine]), y[mine])  # NaN of an empty batch
    model.loss_weight(DEALT[dist.get_rank()][part])
    loss.backward()


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("build", [perceptron, Branches])
def test_micro_batches_of_all_ranks_count_by_their_samples(n, build):
    def program():
        model = DDP(build(), find_unused_parameters=build is Branches, bucket_cap_mb=0.0001)
        found = []
        for _ in range(2):
            model.zero_grad()
            with model.no_sync():
                backward(model, 0)
            backward(model, 1)
            found.append(dense(model.module))
        model.zero_grad()
        model(torch.ones(1, 6) * (dist.get_rank() + 1)).sum().backward()  # an ordinary average again
        return *found, dense(model.module)

    alone = build()
    (sum(alone(torch.ones(1, 6) * (rank + 1)).sum() for rank in range(n)) / n).backward()
    for first, second, plain in ranks(n, program):
        assert_close(first, joined(build, [(r, p) for r in range(n) for p in (0, 1)]), 1e-5)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        assert_close(plain, dense(alone), 1e-5)


def penalised(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss with the gradient of the output in it, as a mean."""
    x = x.clone().requires_grad_()
    out = model(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.square().mean() + grad.square().mean()


def test_double_backward_is_weighted_once():
    x, _ = batch_for(perceptron)

    def program():
        model, mine = DDP(perceptron()), x[:3] if dist.get_rank() else x[3:]
        model.loss_weight(len(mine))
        penalised(model, mine).backward()
        return gradients(model.module)

    alone = perceptron()
    penalised(alone, x).backward()
    for told in ranks(2, program):
        assert_close(told, gradients(alone), 1e-5)


@pytest.mark.parametrize("divide_by_all", [True, False])
def test_ranks_that_have_run_out_count_for_nothing(divide_by_all):
    def program():
        model, found = DDP(perceptron()), []
        with model.join(divide_by_initial_world_size=divide_by_all):
            for part in range(1 + (dist.get_rank() < 2)):
                model.zero_grad()
                backward(model, part)
                found.append(gradients(model.module))
        return found

    first, second, *_ = ranks(3, program)
    assert_close(first[0], joined(perceptron, [(0, 0), (1, 0), (2, 0)]), 1e-5)
    assert_close(first[1], joined(perceptron, [(0, 1), (1, 1)]), 1e-5)
    assert first[1]["0.weight"].tobytes() == second[1]["0.weight"].tobytes()


def one_rank_only(model: DDP) -> None:
    with model.join():
        loss = model(torch.ones(2, 6)).sum()
        if dist.get_rank():
            model.loss_weight(2)
        loss.backward()


def twice(model: DDP) -> None:
    backward(model, 0)
    backward(model, 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda model: model.loss_weight(torch.tensor(float("nan"))), ValueError, "got nan"),
        (one_rank_only, DistributedError, "called on 1 of the 2 ranks that have a batch"),
        (twice, DistributedError, r"parameter '\d.\w+' has the average of earlier batches.*zero_grad\(\)"),
    ],
)
def test_wrong_weights(call, error, text):
    with pytest.raises(error, match=text):
        ranks(2, lambda: call(DDP(perceptron())))
