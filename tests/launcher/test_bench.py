"""`ddprun bench` measures what it says it measures, refuses what cannot be compared, and predicts by its own arithmetic."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.ddp.cost_model import Cost
from ddpgrad.launcher.bench import cluster, collectives, jobs, results
from ddpgrad.launcher.bench.training import Training
from ddpgrad.launcher.cli.ddprun import main

MODEL = """
import time
from ddpgrad.launcher.bench.models import Job

def slow(torch, size=4):
    def batch(seed):
        torch.manual_seed(seed)
        return torch.randn(size, 8), torch.randint(0, 3, (size,))
    def loss(model, pair):
        time.sleep(0.01)
        return torch.nn.functional.cross_entropy(model(pair[0]), pair[1])
    return Job(torch.nn.Linear(8, 3), loss, batch, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
"""


@pytest.fixture
def bench(capsys):
    def run(*words):
        code = main(["bench", *words])
        return SimpleNamespace(
            returncode=code, **dict(zip(("stdout", "stderr"), capsys.readouterr(), strict=True))
        )

    return run


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return f"{tmp_path / 'model.py'}:slow"


def test_training_is_measured_kept_and_compared_with_what_is_alike(bench, model, tmp_path, monkeypatch):
    monkeypatch.setenv("DDPGRAD_CHECK_REPLICAS", "1")  # replicas drift in the steps without averages
    words = ["--model", model, "--ranks", "1,2", "--rounds", "1", "--seconds", "0.1", "--batch", "6"]
    done = bench(*words, "--strong", "-o", str(tmp_path / "a"), "--predict", "hosts=4,link=1Gb")
    assert done.returncode == 0, done.stderr
    what, [[one], [two]] = results.read(tmp_path / "a", "training")
    assert what["scaling"] == "strong"
    assert [(run.ranks, run.samples, len(run.memory)) for run in (one, two)] == [(1, 6, 1), (2, 3, 2)]
    assert one.parameters == 27 and one.parts["forward"] >= 0.01 and min(one.steps) >= 0.01
    first, second = results.points([[one], [two]])
    assert first.efficiency == results.Spread(1.0, 1.0, 1.0)
    assert second.efficiency.middle == pytest.approx(median(one.steps) / median(two.steps) / 2)
    assert "hosts  ranks" in done.stdout and "a guess: give latency=" in done.stdout
    assert (tmp_path / "a" / "table.txt").read_text() in done.stdout

    again = bench(*words, "-o", str(tmp_path / "a"))
    assert again.returncode == 2 and "results are there already" in again.stderr
    threads = bench(
        *words, "--strong", "--threads", "2", "-o", str(tmp_path / "b"), "--against", str(tmp_path / "a")
    )
    assert threads.returncode == 2 and "it measured threads 1, and this run 2" in threads.stderr
    weak = bench(*words, "-o", str(tmp_path / "b"), "--against", str(tmp_path / "a"))
    assert weak.returncode == 2 and "it measured scaling strong, and this run weak" in weak.stderr
    assert "round" not in weak.stderr  # nothing was measured in vain
    other = replace(one, machine=one.machine | {"processor": "another"})
    with pytest.raises(LaunchError, match=r"measured on another machine.*processor another, now "):
        results.against(tmp_path, [[other]], [[one]])
    assert "1.000 of the time before" in results.against(tmp_path, [[one]], [[one]])[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [("raise OSError('no such luck')", "no such luck"), ("return 3", "returned a int; expected a ddpgrad.launcher.bench.models.Job")],
)  # fmt: skip
def test_a_job_that_fails_is_told_with_its_last_words(bench, tmp_path, body, said):
    (tmp_path / "model.py").write_text(f"def broken(torch, size=1): {body}")
    done = bench("--model", f"{tmp_path / 'model.py'}:broken", "--ranks", "1", "-o", str(tmp_path / "a"))
    assert done.returncode == 2
    assert "ddpgrad with 1 rank ended with code 1 and no result" in done.stderr and said in done.stderr


def test_collectives_are_right_and_say_how_fast_they_are(bench, tmp_path):
    done = bench(
        "collectives", "--ranks", "3", "--kib", "3000,6000", "--rounds", "1", "-o", str(tmp_path / "a")
    )
    assert done.returncode == 0, done.stderr
    _, [[found]] = results.read(tmp_path / "a", "collectives")
    assert {(row.op, row.nbytes) for row in found.rows} >= {
        (op, n) for op in collectives.OPS for n in (3_072_000, 6_144_000)
    }
    assert not any(row.wrong for row in found.rows)
    assert {row.who for row in found.rows if row.op == "all_reduce"} == {
        "ddpgrad",
        collectives.BUCKET,
        collectives.MEMCPY,
    }
    assert "3 ranks of 1 host, cpu, shm" in done.stdout
    few = bench("--from", str(tmp_path / "a"), "--predict", "hosts=2,link=1Gb")
    assert few.returncode == 2 and "holds collectives, not training" in few.stderr


def test_rates_of_collectives_are_those_of_the_median():
    found = collectives.Collectives(2, "cpu", "shm", 1e-5, [], ["a", "a"], {})
    rows = [
        collectives.Row("all_reduce", 4_000_000, who, [seconds, 1e-3, 9e-3], 0)
        for who, seconds in (("ddpgrad", 5e-4), (collectives.MEMCPY, 1e-4))
    ]
    line = results.collectives_table(found, rows).splitlines()[-1].split()
    assert line == ["all_reduce", "4000000", "ddpgrad", "1000", "(500-9000)", "4.00", "4.00", "1.00", "0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nothing"], "is none of tiny_mlp"),
        (["--model", "nothing.py:f"], "there is no file nothing.py"),
        (["--ranks", "1,two"], "give whole numbers of 1 or more"),
        (["--ranks", "2", "--strong", "--batch", "3"], "3 samples cannot be shared by 2 ranks"),
        (["--strong"], "--strong needs --batch"),
        (["--vs", "mpi"], "MPI trains nothing"),
        (["--vs", "torch", "--hosts", "a:1"], "--vs is for one host"),
        (["--hosts", "a:1"], "--ranks must be given with --hosts"),
        (["--rounds", "0"], "must be above 0"),
        (["--threads", "0"], "must be above 0"),
        (["--from", "."], "are for --predict"),
        (["--from", "nowhere", "--predict", "hosts=2,link=1Gb"], "there is no folder nowhere"),
        (["--from", ".", "--predict", "hosts=2,link=1Gb"], "give a folder that `ddprun bench` has written"),
        (["--predict", "hosts=2"], "hosts and link must be given"),
        (["--predict", "hosts=2,link=fast"], "must be a rate such as 200Gb or 25GB"),
        (["--predict", "hosts=2,link=1..5Gb"], "must be a rate such as 200Gb or 25GB"),
        (["--predict", "hosts=2,link=1Gb,speed=3"], "there is no 'speed'"),
        (["--predict", "hosts=0,link=1Gb"], "hosts=0 must be a whole number, 1 or more"),
        (["--predict", "hosts=2,link=1Gb,latency=3"], "must be a time such as"),
        (["--predict", "hosts=2,gpus=4,ranks=2,link=1Gb"], "give each part once"),
        (["--predict", "hosts=2,link=1Gb,intra="], "intra= must be a rate"),
        (["--seconds", "inf"], "must be above 0"),
        (["--hosts", "", "--ranks", "2"], "--hosts and --hostfile need a value"),
        (["--ranks", ""], "give whole numbers of 1 or more"),
        (["--kib", "8"], "--kib says nothing of training"),
        (["collectives", "--predict", "hosts=2,link=1Gb"], "--predict says nothing of collectives"),
        (["collectives", "--strong"], "--strong says nothing of collectives"),
        (["-o", "/dev/null/a"], "Not a directory: '/dev/null/a'"),
        (["collectives", "--ops", "sum"], "there is no 'sum'"),
        (["collectives", "--ranks", "1"], "give whole numbers of 2 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_at_once(bench, words, said):
    done = bench(*words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_job_gives_each_round_in_turn():
    assert list(jobs.in_turns("ab", 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


def run_of(sizes, arrived, computed, ranks=1):
    recording = {"gradients": [(f"g{i}", n, 4, "float32") for i, n in enumerate(sizes)], "arrived": arrived,
                 "computed": computed, "cap_bytes": 25 << 20}  # fmt: skip
    return Training(
        "ddpgrad", ranks, "cpu", 4, sum(sizes), 4 * sum(sizes), [computed + 0.3], [computed + 0.3],
        {"wait": 0.0, "forward": 0.2, "backward": computed, "optimizer": 0.1}, [1], ["a"], {"processor": "x"}, 0.0, [], recording,
    )  # fmt: skip


def test_a_rate_has_bits_or_bytes():
    parts = [
        cluster.parse(f"hosts=2,link={rate}").link
        for rate in ("8Gb", "8Gbit", "1GB", "1000MB", "1GBps", "8Gb/s")
    ]
    assert parts == [1e9] * 6
    assert cluster.parse("hosts=2,gpus=8,link=1GB,intra=nvlink4,latency=2s") == cluster.Cluster(
        2, 8, 1e9, 450e9, 2.0
    )


def test_one_bucket_that_comes_last_adds_its_whole_cost():
    """64 MB over 2 hosts of 1 GB/s (0.95 of it payload), each of which sends as many bytes as the bucket has."""
    run = run_of([16_000_000], [1.0], 1.0)
    wanted = cluster.parse("hosts=2,link=1GB,latency=1ms")
    alone, two = cluster.forecasts(wanted, run, Cost(0.0, 0.0, False), cluster.between(wanted, []))
    assert (alone.step, alone.efficiency, alone.exposed) == (pytest.approx(1.3), pytest.approx(1.0), 0.0)
    assert two.step == pytest.approx(1.3 + 2e-3 + 0.064 / 0.95, rel=1e-6)
    assert two.efficiency == pytest.approx(1.3 / two.step)


def test_a_prediction_begins_with_the_step_that_was_measured_without_sums():
    """Not with its parts, of which the recorded ones are of other steps."""
    run = replace(run_of([1000], [1.0], 1.0), unsynchronised=[1.7, 1.5, 1.6])
    wanted = cluster.parse("hosts=2,link=1GB,latency=1ms")
    alone, two = cluster.forecasts(wanted, run, Cost(0.0, 0.0, False), cluster.between(wanted, []))
    assert alone.step == pytest.approx(1.6)
    assert two.step == pytest.approx(1.6 + two.exposed) and two.exposed == pytest.approx(2e-3, rel=0.01)


def test_one_bucket_is_best_where_a_round_takes_long():
    run = run_of([1 << 20] * 20, [n / 20 for n in range(1, 21)], 1.0)
    wanted = cluster.parse("hosts=2,link=100GB,latency=1s")
    *_, two = cluster.forecasts(wanted, run, Cost(0.0, 0.0, False), cluster.between(wanted, []))
    assert (two.best_buckets, two.best_cap, two.buckets > 1) == (1, 80 << 20, True)


def test_what_was_measured_between_hosts_replaces_the_guess():
    rows = [
        collectives.Row("all_reduce", n, collectives.BUCKET, [4e-4 + 3e-9 * n], 0)
        for n in (4096, 1 << 20, 1 << 24)
    ]
    measured = collectives.Collectives(4, "cpu", "mpi", 1e-5, rows, ["a", "b", "c", "d"], {})
    wanted = cluster.parse("hosts=4,link=100GB")
    assert cluster.uses(wanted, [measured]) and not cluster.uses(wanted, [replace(measured, hosts=["a"] * 4)])
    assert cluster.uses(cluster.parse("hosts=2,ranks=4,link=1Gb"), [replace(measured, hosts=["a"] * 4)])
    assert cluster.between(wanted, []).measured == 0
    found = cluster.between(wanted, [measured])
    assert (found.measured, found.per_round, found.per_byte) == (4, pytest.approx(1e-4), pytest.approx(2e-9))
    cost = cluster.all_reduce(4, wanted, Cost(0.0, 0.0, False), found, "cpu")
    assert (cost.latency, cost.per_byte) == (pytest.approx(4e-4), pytest.approx(3e-9))


@given(
    st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 1)), min_size=1, max_size=20),
    st.integers(2, 10**4), st.floats(0.001, 100), st.sampled_from(["cpu", "cuda"]),
)  # fmt: skip
def test_more_hosts_are_never_faster_and_the_best_buckets_never_slower(gradients, hosts, gbit, device):
    arrived = sorted(when for _, when in gradients)
    run = replace(run_of([n for n, _ in gradients], arrived, 1.0), device=device)
    wanted = cluster.parse(f"hosts={hosts},link={gbit:.6f}Gb")
    found = list(cluster.forecasts(wanted, run, Cost(0.0, 0.0, False), cluster.between(wanted, [])))
    assert found[0].efficiency == pytest.approx(1.0) and found[-1].hosts == hosts
    for fewer, more in pairwise(found):
        assert more.step >= fewer.step * (1 - 1e-9)
    assert all(f.best_step <= f.step and f.exposed >= -1e-9 for f in found)


def test_a_damaged_file_is_named(tmp_path):
    for text in ("{", "[]", json.dumps({"kind": "training", "runs": [[{}]]})):
        (tmp_path / results.FILE).write_text(text)
        with pytest.raises(LaunchError, match=r"results\.json is not what `ddprun bench` writes"):
            results.read(Path(tmp_path), "training")
