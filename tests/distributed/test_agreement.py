"""One decision on all ranks, and what rank 0 does for the others or before them."""

import pytest
from replicas import ranks

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import errors


@pytest.mark.parametrize("n", [2, 4])
def test_all_ranks_get_one_answer_of_the_kind_that_they_gave(n):
    def program():
        rank = dist.get_rank()
        last = rank == dist.get_world_size() - 1
        nan = torch.tensor(float("nan") if last else 1.0).isnan()
        return [
            dist.agree(last),
            dist.agree(last, "all"),
            dist.agree(nan),
            dist.agree(True, "all"),
            dist.agree(rank + 3),
            dist.agree(-rank, "all"),
        ]

    for answers in ranks(n, program):
        assert answers == [True, False, True, True, n + 2, 1 - n]
        assert [type(a) for a in answers] == [bool] * 4 + [int] * 2


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: dist.agree(0.5), TypeError, "expected a bool or an int, got float"),  # type: ignore[arg-type]
        (lambda: dist.agree(True, "most"), ValueError, "how must be"),  # type: ignore[arg-type]
        (lambda: dist.agree(1 if dist.get_rank() else True), errors.MismatchError, "dtype int64 instead of"),
        (lambda: dist.on_rank_zero(object), (TypeError, errors.RankFailedError), "object is no plain data"),
        (
            lambda: dist.on_rank_zero(dist.barrier),
            errors.MismatchError,
            r"rank 0: barrier at .*test_agreement\.py:\d+\n  rank 1: broadcast_object",
        ),
    ],
)
def test_wrong_flags_and_functions(call, error, text):
    with pytest.raises(error, match=text):
        ranks(2, call)


def test_rank_zero_works_for_all_and_its_error_is_theirs():
    def fails():
        raise FileNotFoundError("no data here")

    def program():
        calls = []
        result = dist.on_rank_zero(lambda: {"size": (3, 4), "mean": torch.ones(2), "calls": calls.append(1)})
        with pytest.raises((OSError, errors.RankFailedError)) as raised:
            dist.on_rank_zero(fails)
        return len(calls), result["size"], result["mean"].tolist(), raised.value, dist.agree(True)

    first, *others = ranks(4, program)
    assert first[:3] == (1, (3, 4), [1.0, 1.0]) and type(first[3]) is FileNotFoundError
    for calls, *result, error, goes_on in others:
        assert calls == 0 and result == [(3, 4), [1.0, 1.0]] and goes_on
        assert type(error) is errors.RankFailedError and error.ranks == (0,)
        assert str(error) == "rank 0 raised within on_rank_zero: FileNotFoundError: no data here"


def test_rank_zero_goes_first_and_its_error_keeps_the_others_out():
    order = []

    def program():
        with dist.rank_zero_first():
            order.append(dist.get_rank())
        dist.barrier()
        try:
            with dist.rank_zero_first():
                order.append("again")
                raise OSError("disk full")
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    told = ranks(3, program)
    assert order[0] == 0 and sorted(order[1:3]) == [1, 2] and order[3:] == ["again"]
    assert (
        told
        == ["OSError: disk full"]
        + ["RankFailedError: rank 0 raised within rank_zero_first: OSError: disk full"] * 2
    )


def test_a_rank_that_does_not_come_is_named():
    def program():
        if dist.get_rank() != 0:
            dist.on_rank_zero(lambda: 1)

    with pytest.raises(
        errors.RankFailedError, match=r"rank 0 has finished its program\. Others wait:\n  rank 1: broad"
    ):
        ranks(2, program)
