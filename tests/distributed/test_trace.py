"""Recording what ranks did when: what is in the timeline, how it adds up, and that nothing is left switched on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.core import spans
from ddpgrad.core.spans import COMMUNICATION, PROGRAM, Span
from ddpgrad.distributed.trace import recorder
from ddpgrad.distributed.trace import timeline as trace_files
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.profiler import record_function
from ddpgrad.utils.data import DataLoader, TensorDataset

STEPS = 4
_PROGRAM = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import test_trace
test_trace.train()
"""


def train() -> None:
    dist.init_process_group()
    layers = [nn.Linear(64, 64, bias=False) for _ in range(2)]
    model = DDP(nn.Sequential(*layers), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(STEPS * 2, 64)), batch_size=2):
        with record_function("my loss"):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def of(run: trace_files.Run, rank: int, kind: str, name: str = "") -> list[Span]:
    return [s for s in run.spans if s.rank == rank and s.kind == kind and name in s.name]


def check(run: trace_files.Run, ranks: int) -> None:
    assert list(run.hosts) == list(range(ranks)) and run.missing == []
    assert run.memory[0] and all(1 << 20 < taken < 1 << 40 for _, taken in run.memory[0])
    for rank in range(ranks):
        for kind in ("loader", "forward", "backward", "optimizer", "user"):
            assert len(of(run, rank, kind)) == STEPS, kind
        for bucket in (0, 1):
            assert len(of(run, rank, "ready", f"bucket {bucket}")) == STEPS
        averages = of(run, rank, "communication", "all_reduce(avg)")
        assert len(averages) == 2 * STEPS
        assert {s.details["what"] for s in averages if s.details} == {"1.weight", "0.weight"}
        backwards = of(run, rank, "backward")
        for ready in of(run, rank, "ready"):
            assert any(b.began <= ready.began <= b.ended for b in backwards)
        for average in averages:
            assert any(b.began <= average.began and average.ended <= b.ended for b in backwards)
        for step in trace_files.steps(run.spans, rank):
            parts = step.loader + step.forward + step.backward + step.optimizer + step.exposed
            assert 0 < parts <= step.whole + 1e-9
            assert step.own == pytest.approx(step.whole - step.exposed)


@pytest.mark.parametrize("procs", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_run_is_recorded_rank_by_rank(tmp_path: Path, procs: int):
    script = tmp_path / "script.py"
    script.write_text(_PROGRAM)
    ddprun = [sys.executable, "-m", "ddpgrad.launcher"]
    start = [*ddprun, "-n", "2", "--procs", str(procs), "--trace", str(tmp_path / "run"), str(script)]
    subprocess.run(start, check=True, capture_output=True, timeout=600)
    check(trace_files.read(tmp_path / "run"), ranks=2)
    shown = subprocess.run(
        [*ddprun, "trace", str(tmp_path / "run")], check=True, capture_output=True, text=True, timeout=600
    ).stdout
    assert "slowest: rank" in shown
    for word in ("step", "backward", "communication", "exposed"):
        assert word in shown
    timeline = json.loads((tmp_path / "run" / "trace.json").read_text())
    events = timeline["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i"}
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"}.__len__() == 2
    assert min(e["ts"] for e in events if "ts" in e) == 0


def test_from_python_and_off_again(tmp_path: Path):
    def program() -> None:
        with recorder.recording(tmp_path):
            train()

    dist.simulate(program, 3)
    check(trace_files.read(tmp_path), ranks=3)
    assert spans.recorders == ()
    before = (tmp_path / "timeline-0.jsonl").read_bytes()
    dist.simulate(train, 2)
    assert (tmp_path / "timeline-0.jsonl").read_bytes() == before


def test_a_recording_that_was_deleted_meanwhile_is_said_to_be_lost(tmp_path: Path):
    with (
        pytest.warns(RuntimeWarning, match=r"the recording of rank 0 is lost: .*deleted"),
        recorder.recording(tmp_path),
    ):
        (tmp_path / "timeline-0.jsonl").unlink()


def test_nothing_was_recorded(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "ddpgrad.launcher", "trace", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2
    assert "record with `ddprun --trace" in done.stderr


def test_a_killed_process_leaves_what_it_had_written(tmp_path: Path):
    head = {"job": "a", "attempt": 0, "procs": 2, "host": "h", "name": "one"}
    row = [0, 0, "forward", "forward", 1.0, 2.0, None]
    (tmp_path / "timeline-0.jsonl").write_text("\n".join(map(json.dumps, (head, row))) + '\n[0, 0, "back')
    run = trace_files.read(tmp_path)
    assert run.spans == [Span(0, PROGRAM, "forward", "forward", 1.0, 2.0)]
    assert (run.missing, run.cut) == ([1], [0])


@pytest.mark.parametrize(
    "head, row",
    [("[]", "{}"), ('{"attempt": 0}', "{}"), ("", "[0, 0]"), ("", '[0, 0, "forward", "f", 1, NaN, null]')],
)
def test_what_is_no_recording_is_named(tmp_path: Path, head: str, row: str):
    head = head or json.dumps({"job": "a", "attempt": 0, "procs": 1, "host": "h", "name": "one"})
    (tmp_path / "timeline-0.jsonl").write_text(f"{head}\n{row}\n")
    with pytest.raises(ValueError, match=r"timeline-0\.jsonl, line \d: n"):
        trace_files.read(tmp_path)


def test_clocks_of_other_machines_are_set_right(tmp_path: Path):
    for proc, (host, ahead) in enumerate([("a", 0.0), ("b", 100.0), ("a", 0.5)]):
        lines = [
            {"job": "j", "attempt": 0, "procs": 3, "host": host, "name": host},
            {"clock": ahead},
            [proc, 0, "forward", "forward", 10.0 + ahead, 11.0 + ahead, None],
        ]
        (tmp_path / f"timeline-{proc}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    began = {s.rank: s.began for s in trace_files.read(tmp_path).spans}
    # What is measured of one machine's own clock is only the noise of measuring.
    assert began == {0: 10.0, 1: 10.0, 2: 10.5}


def test_the_offset_of_a_clock_is_measured():
    def program() -> float:
        dist.init_process_group()
        group = dist.process_group.default_group()
        rank = dist.get_rank()
        found = recorder.clock_offset(group.communicator, clock=lambda: spans.now() + 1000.0 * rank)
        dist.destroy_process_group()
        return found

    assert dist.simulate(program, 3) == pytest.approx([0.0, 1000.0, 2000.0], abs=1.0)


def test_how_the_times_of_a_step_are_told_apart():
    rows = [
        ("optimizer", PROGRAM, 0, 1),
        ("loader", PROGRAM, 1, 2),
        ("forward", PROGRAM, 2, 4),
        ("backward", PROGRAM, 4, 9),
        ("communication", COMMUNICATION, 5, 8),
        ("communication", COMMUNICATION, 6, 9),
        ("waiting", PROGRAM, 7, 9),
        ("optimizer", PROGRAM, 9, 10),
    ]
    recorded = [Span(0, track, kind, "SGD", low, high) for kind, track, low, high in rows]
    (step,) = trace_files.steps(recorded, 0)
    assert step == trace_files.Step(
        whole=9, loader=1, forward=2, backward=3, optimizer=1, communication=4, exposed=2
    )
    assert step.own == 7


def test_recording_costs_little_when_off(monkeypatch: pytest.MonkeyPatch):
    def refused(*args: object) -> None:
        raise AssertionError("told a span, though nobody records")

    monkeypatch.setattr(spans, "tell", refused)
    dist.simulate(train, 2)
