"""Other sizes of buckets: what they are predicted to give, and `bucket_cap_mb="auto"`."""

import hashlib
from typing import Any

import pytest
from replicas import ranks, share

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.core.errors import DistributedError
from ddpgrad.distributed.communicator.port import ArrayWork
from ddpgrad.distributed.ddp import what_if
from ddpgrad.distributed.ddp.cost_model import Cost, fit, replay
from ddpgrad.distributed.transports.base import Pending
from ddpgrad.nn.parallel import DistributedDataParallel as DDP

MIB = 1 << 20
SLOW = Cost(0.1, 1e-9, overlaps=True)


def test_a_line_is_fitted_through_latency_and_bandwidth():
    true = Cost(2e-3, 4e-8, overlaps=True)
    samples = [(n, true.seconds(n)) for n in (4096, 1 << 16, MIB, 25 * MIB)]
    found = fit(samples, overlaps=True)
    assert found is not None and found.overlaps
    assert found.latency == pytest.approx(true.latency) and found.per_byte == pytest.approx(true.per_byte)
    # One of many buckets of about the same size that went faster, as a burst, says little.
    many = [*samples, *[(MIB + 100 * n, true.seconds(MIB)) for n in range(20)], (MIB - 1, 1e-4)]
    found = fit(many, overlaps=True)
    assert found is not None and found.seconds(MIB) == pytest.approx(true.seconds(MIB), rel=0.05)


@pytest.mark.parametrize(
    "samples", [[], [(MIB, 1.0)], [(MIB, 1.0), (MIB + 64, 1.1)], [(MIB, 1.0), (64, 0.0)]]
)
def test_nothing_is_fitted_to_sizes_that_are_alike(samples):
    assert fit(samples, overlaps=False) is None


@pytest.mark.parametrize(
    ("samples", "line"),
    [([(1 << 10, 2.0), (1 << 20, 1.0)], (1.3, 0.0)), ([(10**3, 1.0), (10**6, 4000.0)], (0.0, 0.004))],
)
def test_a_fitted_line_is_never_negative(samples, line):
    found = fit(samples, overlaps=True)
    assert found is not None
    assert (found.latency, found.per_byte) == pytest.approx(line, rel=0.1)


def test_a_replay_has_the_times_that_one_computes_by_hand():
    buckets = [(100, 1.0), (200, 2.0), (100, 6.0)]
    overlapping = replay(buckets, 6.5, Cost(0.5, 0.01, overlaps=True))
    # The first from 1 to 2.5, the second from 2.5 to 5, the last from 6 to 7.5.
    assert (overlapping.buckets, overlapping.finished, overlapping.exposed) == (3, 7.5, 1.0)
    within = replay(buckets, 6.5, Cost(0.5, 0.01, overlaps=False))
    assert (within.buckets, within.finished, within.exposed) == (3, 12.0, 5.5)
    assert replay(buckets[:1], 6.5, Cost(0.5, 0.01, overlaps=True)).exposed == 0.0


def deep() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[part for _ in range(12) for part in (nn.Linear(160, 160), nn.Tanh())])


def trained(steps: int, **options: Any) -> tuple[DDP, str]:
    """The model, and what its parameters are to the last bit."""
    ddp = DDP(deep(), **options)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    torch.manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(share(torch.randn(8, 160))).square().mean().backward()
        optimizer.step()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in ddp.parameters())).hexdigest()
    return ddp, digest


@pytest.fixture
def slow_links(monkeypatch):
    """All-reduces that have a long way: few large buckets are best."""
    monkeypatch.setattr(what_if, "fitted", lambda reducer: SLOW)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.usefixtures("slow_links")
def test_auto_takes_one_size_on_all_ranks_and_leaves_the_bits_alone(n):
    def program():
        _, usual = trained(16)
        before, _ = trained(10, bucket_cap_mb="auto")
        ddp, chosen = trained(16, bucket_cap_mb="auto")
        return usual, chosen, len(before.reducer.buckets), len(ddp.reducer.buckets), ddp.explain()

    told = ranks(n, program)
    for usual, chosen, at_first, buckets, explained in told:
        assert usual == chosen
        assert at_first == 2 and buckets == 1
        assert explained["bucket_cap_bytes"] == 12 * 161 * 160 * 4 and explained["steps"] == 5
        assert explained["caps"][0]["cap_mb_list"] == [12 * 161 * 160 * 4 / MIB]
    assert len({usual for usual, *_ in told}) == 1


def test_auto_keeps_the_usual_buckets_where_no_others_promise_more(monkeypatch):
    monkeypatch.setattr(what_if, "fitted", lambda reducer: Cost(0.0, 1e-12, overlaps=False))

    def program():
        ddp, _ = trained(12, bucket_cap_mb="auto")
        return ddp.reducer.cap_bytes, ddp.explain()["steps"]

    assert ranks(2, program) == [(MIB, 11)] * 2  # and the recorded times stay


def test_auto_measures_where_the_buckets_do_not_say_what_an_all_reduce_costs(monkeypatch):
    measured = []

    def measure(c: Any) -> Cost:
        measured.append(c.rank)
        return real(c)

    real = what_if.measure
    monkeypatch.setattr(what_if, "measure", measure)
    # Of rank 0 alone it matters what its buckets say.
    monkeypatch.setattr(what_if, "fitted", lambda reducer: None if reducer.communicator.rank == 0 else SLOW)
    ranks(2, lambda: trained(11, bucket_cap_mb="auto") and None)
    assert sorted(measured) == [0, 1]


@pytest.mark.usefixtures("slow_links")
def test_ranks_without_batches_take_part_in_the_choice():
    def program():
        ddp = DDP(deep(), bucket_cap_mb="auto")
        with ddp.join():
            for _ in range((14, 4)[dist.get_rank()]):
                ddp(torch.randn(2, 160)).square().mean().backward()
        return len(ddp.reducer.buckets)

    assert ranks(2, program) == [1, 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bucket_cap_mb": 0}, "bucket_cap_mb must be positive"),
        ({"bucket_cap_mb": "fast"}, "must be a number of MiB, None or 'auto', got 'fast'"),
        ({"bucket_cap_mb": "auto", "bucket_cap_mb_list": [1]}, "got 'auto' together with bucket_cap_mb_list"),
    ],
)
def test_other_words_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        ranks(1, lambda: DDP(deep(), **options))


def test_auto_is_not_for_communication_hooks():
    def program():
        DDP(deep(), bucket_cap_mb="auto").register_comm_hook(None, lambda state, bucket: None)

    with pytest.raises(NotImplementedError, match="give a number, or None"):
        ranks(1, program)


def test_an_explanation_predicts_what_other_buckets_give():
    def program():
        ddp = DDP(deep(), bucket_cap_mb=0.2)
        before = ddp.explain(collective=True)
        for _ in range(6):
            ddp(torch.randn(4, 160)).square().mean().backward()
        return before, ddp.explain(), ddp.explain(collective=True)

    for before, told, together in ranks(2, program):
        assert before["caps"] == [] and "no step was recorded" in before["unpredicted"]
        assert "is not known: no step was recorded" in str(before)
        assert told["unused_by_rank"] is None and together["unused_by_rank"] == {0: [], 1: []}
        assert not (told["cost"] and told["cost"]["measured"])
        assert together["unpredicted"] == "" and together["cost"]["measured"]
        rows = together["caps"]
        assert [row["buckets"] for row in rows] == [len(together["buckets"]), 2, 2, 2, 2, 2, 2, 1]
        assert rows[0]["cap_bytes"] == MIB // 5 and rows[1]["cap_bytes"] == MIB
        assert rows[-1]["cap_mb_list"] == [sum(b["bytes"] for b in together["buckets"]) / MIB]
        for row in rows:
            assert 0 <= row["exposed"] <= row["finished"]
        lines = str(together).splitlines()
        head = next(n for n, line in enumerate(lines) if "measured all-reduces" in line)
        assert lines[head + 1].split() == ["cap", "in", "MiB", "buckets", "finished", "exposed"]
        assert lines[head + 2].split()[:3] == ["0.2,", "in", "use"] and len(lines[head + 2 :]) == 8


def test_recorded_times_give_the_predictions_that_one_computes_by_hand():
    """A thread takes 1 ms and 1 ms for 4 KiB for each bucket; backward computes for 5 ms, and takes 8."""

    def program():
        layers = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 2, bias=False))
        ddp = DDP(layers, bucket_cap_mb=1e-4)
        for _ in range(2):
            ddp(torch.randn(4, 32)).square().mean().backward()
        reducer = ddp.reducer
        took = [1e-3 * (1 + bucket.layout.length * 4 / 4096) for bucket in reducer.buckets]
        reducer.timed.clear()
        reducer.timed.append((0.0, 1.0, 1.005, [(1.0, 1.0, 1.008, 1e-5, seconds) for seconds in took]))
        reducer.noted.clear()
        reducer.noted.append(({0: 5e-3, 1: 1e-3}, 5e-3, 8e-3))
        return ddp.explain()

    for told in ranks(2, program):
        cost = told["cost"]
        assert cost["overlaps"] and not cost["measured"]
        assert (cost["latency"], cost["bytes_per_second"]) == pytest.approx((1e-3, 4096e3))
        # Two buckets: the second goes from 5 to 7 ms, and 1 ms is not explained. One: from 5 ms on, 2.0625 ms.
        assert told["caps"][0]["buckets"] == 2 and told["caps"][-1]["buckets"] == 1
        assert [told["caps"][n][what] for n in (0, -1) for what in ("finished", "exposed")] == pytest.approx(
            [8e-3, 3e-3, 8.0625e-3, 3.0625e-3]
        )


def test_a_work_keeps_when_another_thread_worked_on_it():
    class Done(Pending):
        @property
        def carried(self) -> tuple[float, float]:
            return 1.0, 3.0

        def poll(self) -> bool:
            return True

        def wait(self) -> None:
            return

    work = ArrayWork(Done())
    assert work.carried is None and work.poll()
    work.wait()
    assert work.carried == (1.0, 3.0)


@pytest.mark.parametrize("size", [1, 2])
def test_an_explanation_says_why_it_predicts_nothing(size):
    def program():
        ddp = DDP(nn.Linear(4, 4), bucket_cap_mb=1)
        for _ in range(3):
            ddp(torch.randn(2, 4)).sum().backward()
        return ddp.explain()

    said = "there is one rank" if size == 1 else "too few sizes to fit a line. explain(collective=True)"
    for told in ranks(size, program):
        assert (
            told["caps"] == [] and told["cost"] is None and said in told["unpredicted"] and said in str(told)
        )


def test_an_explanation_that_not_all_ranks_ask_for_is_an_error():
    def program():
        ddp = DDP(nn.Linear(4, 4))
        if dist.get_rank() == 0:
            ddp.explain(collective=True)
        else:
            ddp(torch.randn(2, 4)).sum().backward()

    with pytest.raises(DistributedError, match="rank 1"):
        ranks(2, program)
