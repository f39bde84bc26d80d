"""Sparse tensors between ranks: their sums, and data parallelism with sparse gradients."""

from typing import Any

import numpy as np
import pytest
from replicas import on_ranks, ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.errors import DistributedError
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

WORDS = torch.tensor([[1, 2, 2], [3, 0, 1], [5, 5, 5], [1, 4, 0], [2, 2, 2], [8, 1, 3]])
TARGETS = torch.tensor([0, 1, 2, 0, 1, 2])


class Text(nn.Module):
    """A table of words, and one of bags that a forward pass may leave out."""

    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(9, 4, sparse=sparse)
        self.bags = nn.EmbeddingBag(9, 4, mode="mean", sparse=sparse)
        self.head = nn.Linear(4, 3)

    def forward(self, words: torch.Tensor, with_bags: bool = True) -> torch.Tensor:
        vectors = self.words(words).mean(1)
        return self.head(vectors + self.bags(words) if with_bags else vectors)


def dense_gradients(model: nn.Module) -> dict[str, np.ndarray]:
    return {
        name: p.grad.to_dense().numpy().copy() for name, p in model.named_parameters() if p.grad is not None
    }


def loss_of(
    model: Any, words: torch.Tensor = WORDS, targets: torch.Tensor = TARGETS, **how: Any
) -> torch.Tensor:
    return F.cross_entropy(model(words, **how), targets)


def alone(**how: Any) -> dict[str, np.ndarray]:
    model = Text(sparse=False)
    loss_of(model, **how).backward()
    return dense_gradients(model)


def assert_close(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_gradients_are_those_of_one_process_on_the_joined_batch(world_size: int) -> None:
    def program() -> list[dict[str, np.ndarray]]:
        model = DDP(Text(), bucket_cap_mb=0.0001)
        found = []
        for step in range(3):
            model.zero_grad(set_to_none=step != 1)
            loss_of(model, share(WORDS), share(TARGETS)).backward()
            grad = model.module.words.weight.grad
            assert grad is not None and grad.is_sparse and grad.is_coalesced()
            found.append(dense_gradients(model.module))
        return found

    results = ranks(world_size, program)
    for found in results:
        for step, gradients in enumerate(found):
            assert_close(gradients, alone())
            for name, array in gradients.items():
                assert array.tobytes() == results[0][step][name].tobytes(), "ranks differ in the bits"


def test_training_takes_the_steps_of_one_process() -> None:
    def trained(model: Any, words: Any, targets: Any) -> dict[str, np.ndarray]:
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model, words, targets).backward()
            optimizer.step()
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    expected = trained(Text(sparse=False), WORDS, TARGETS)
    for found in ranks(2, lambda: trained(DDP(Text()), share(WORDS), share(TARGETS))):
        assert_close(found, expected)


def test_no_sync_accumulates_and_the_next_backward_averages_the_sum() -> None:
    def program() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        model = DDP(Text())
        with model.no_sync():
            loss_of(model, share(WORDS), share(TARGETS)).backward()
        local = dense_gradients(model.module)
        loss_of(model, share(WORDS), share(TARGETS)).backward()
        return local, dense_gradients(model.module)

    (local_0, sum_0), (local_1, sum_1) = ranks(2, program)
    assert not np.array_equal(local_0["words.weight"], local_1["words.weight"])
    expected = {name: 2 * array for name, array in alone().items()}
    assert_close(sum_0, expected)
    assert_close(sum_1, expected)


def test_an_unused_table_has_no_gradient_or_that_of_the_ranks_that_used_it() -> None:
    def program() -> list[dict[str, np.ndarray]]:
        model = DDP(Text(), find_unused_parameters=True)
        found = []
        for users in ((), (0,)):
            model.zero_grad()
            loss_of(model, share(WORDS), share(TARGETS), with_bags=dist.get_rank() in users).backward()
            found.append(dense_gradients(model.module))
        return found

    (nobody, one), other = ranks(2, program)
    assert "bags.weight" not in nobody and one["bags.weight"].any()
    assert one["bags.weight"].tobytes() == other[1]["bags.weight"].tobytes()

    def strict() -> None:
        model = DDP(Text())
        loss_of(model, share(WORDS), share(TARGETS), with_bags=False).backward()

    with pytest.raises(DistributedError, match=r"'bags\.weight'"):
        ranks(2, strict)


@pytest.mark.parametrize("divide_by_all", [True, False])
def test_a_rank_without_batches_joins_in(divide_by_all: bool) -> None:
    def program() -> dict[str, np.ndarray]:
        model = DDP(Text())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):  # the second time, whoever was a shadow is none any more
            with model.join(divide_by_initial_world_size=divide_by_all):
                for _ in range(1 + dist.get_rank()):
                    optimizer.zero_grad()
                    loss_of(model).backward()
                    optimizer.step()
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    reference = Text(sparse=False)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        (loss_of(reference) * (0.5 if step % 2 and divide_by_all else 1.0)).backward()
        optimizer.step()
    for found in ranks(2, program):
        assert_close(found, {name: value.numpy() for name, value in reference.state_dict().items()})


def test_a_table_that_is_used_densely_too_is_an_error() -> None:
    def program() -> None:
        model = DDP(Text())
        (loss_of(model) + model.module.words.weight.sum()).backward()

    with pytest.raises(DistributedError, match=r"'words.weight': expected a sparse gradient"):
        ranks(2, program)


def test_a_sparse_buffer_is_refused() -> None:
    def program() -> None:
        module = nn.Linear(2, 2)
        module.register_buffer("adjacency", torch.eye(2).to_sparse())
        DDP(module)

    with pytest.raises(NotImplementedError, match="'adjacency' is a sparse tensor"):
        ranks(1, program)


def test_hooks_on_buckets_are_refused() -> None:
    def program() -> None:
        DDP(Text()).register_comm_hook(None, lambda state, bucket: None)

    with pytest.raises(NotImplementedError, match=r"words.weight, bags.weight are sparse"):
        ranks(1, program)


@pytest.mark.parametrize("async_op", [False, True])
def test_the_sum_of_sparse_tensors(async_op: bool) -> None:
    def program() -> tuple[list[Any], list[Any], bool]:
        rank = dist.get_rank()
        places = [[0, rank, 2], [1, 1, rank]] if rank < 2 else [[], []]
        values = torch.arange(float(len(places[0]))) + rank
        mine = torch.sparse_coo_tensor(torch.tensor(places, dtype=torch.int64), values, (3, 3))
        nothing = torch.sparse_coo_tensor((4,))
        works = [dist.all_reduce(t, async_op=async_op) for t in (mine, nothing)]
        for work in works:
            assert work is None or (not work.is_completed() and work.wait())
        return mine.to_dense().tolist(), nothing.to_dense().tolist(), mine.is_coalesced()

    results = ranks(3, program)
    assert results[0] == ([[0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [2.0, 3.0, 0.0]], [0.0] * 4, True)
    assert results[1:] == results[:1] * 2


@on_ranks(1)
def test_what_is_not_defined_for_sparse_tensors_is_refused() -> None:
    s = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match=r"only works with ReduceOp.SUM"):
        dist.all_reduce(s, dist.ReduceOp.MAX)
    for call in (lambda: dist.broadcast(s, 0), lambda: dist.all_gather([s], s), lambda: dist.reduce(s, 0)):
        with pytest.raises(NotImplementedError, match="sparse"):
            call()
