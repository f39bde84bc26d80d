"""Ranks with different numbers of rows and samples: `all_gather_variable` and `Mean`."""

import itertools

import numpy as np
import pytest
from replicas import on_ranks, ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import DistributedError, MismatchError


@pytest.mark.parametrize("rows", [(3, 0, 2), (0, 0), (1,), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_every_rank_has_the_rows_of_all(rows, dtype):
    def program():
        rank = dist.get_rank()
        mine = torch.arange(rows[rank] * 2).view(-1, 2) + 10 * rank
        return [t.tolist() for t in dist.all_gather_variable(mine.to(dtype))]

    expected = [
        (torch.arange(n * 2).view(-1, 2) + 10 * rank).to(dtype).tolist() for rank, n in enumerate(rows)
    ]
    assert ranks(len(rows), program) == [expected] * len(rows)


def test_gradients_and_their_gradients_come_back():
    """Each rank's loss is rank + 1 times the sum of cubes of all rows."""
    rows = (2, 0, 1)

    def program():
        rank = dist.get_rank()
        x = (torch.arange(rows[rank], dtype=torch.float64) + rank + 1).requires_grad_()
        loss = torch.cat(dist.all_gather_variable(x)).pow(3).sum() * (rank + 1)
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        assert first is not None
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second is not None
        return x.tolist(), first.tolist(), second.tolist()

    for x, first, second in ranks(3, program):
        assert first == [6 * 3 * v**2 for v in x]
        assert second == [6 * 6 * v for v in x]


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (
            lambda: torch.zeros(1, 4),
            r"rank 1 has rows of shape \[4\] of float32, expected rows of shape \[3\] of float32, as on rank 0\. Ranks may",
        ),
        (
            lambda: torch.zeros(1, 3).double(),
            r"rank 1 has rows of shape \[3\] of float64, expected .* of float32, as on",
        ),
        (
            lambda: torch.zeros(1, 3).requires_grad_(),
            r"rank 1 has rows .* that require a gradient, expected rows of shape \[3\] of float32, as",
        ),
        (
            lambda: torch.zeros(()),
            r"rank 1 has a tensor without dimensions of float32, expected rows\. Ranks may",
        ),
    ],
    ids=["shape", "dtype", "gradient", "no rows"],
)
@on_ranks(3)
def test_all_ranks_are_told_whose_tensor_does_not_fit(odd, text):
    with pytest.raises(MismatchError, match=r"^all_gather_variable\(\): " + text) as raised:
        dist.all_gather_variable(odd() if dist.get_rank() == 1 else torch.zeros(2, 3))
    assert raised.value.ranks == (1,)


def test_a_mean_is_that_of_one_process_with_all_samples():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=23), rng.integers(0, 9, 23)
    shares = [slice(0, 9), slice(9, 9), slice(9, 23)]

    def program():
        mine = shares[dist.get_rank()]
        one_by_one, at_once = dist.Mean(), dist.Mean()
        for v, w in zip(values[mine].tolist(), weights[mine].tolist(), strict=True):
            one_by_one.update(torch.tensor(v, dtype=torch.float64), w).update(float("nan"), 0)
        at_once.update(torch.tensor(values[mine]), torch.tensor(weights[mine]))
        return one_by_one.compute(), at_once.compute()

    found = ranks(3, program)
    assert len(set(found)) == 1
    np.testing.assert_allclose(found[0], np.average(values, weights=weights), rtol=1e-14)


@on_ranks(2)
def test_mistakes_with_a_mean_are_told():
    mean = dist.Mean()
    with pytest.raises(DistributedError, match=r"weights of all ranks sum to 0.*update\(\) never called"):
        mean.compute()
    for weight, told in itertools.product((-1.0, float("inf"), float("nan")), (float, torch.tensor)):
        with pytest.raises(ValueError, match=f"not negative, got {weight}"):
            mean.update(1.0, told(weight))
    with pytest.raises(ValueError, match=r"of the values' shape \[2\], got shape \[3\]"):
        mean.update(torch.ones(2), torch.ones(3))
