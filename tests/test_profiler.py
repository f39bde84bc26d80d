"""The profiler: what is recorded, how it adds up, what is written, and that nothing is left switched on."""

import gzip
import json
import subprocess
import sys
import threading
from typing import Any, cast

import pytest
from matrices import thinned

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.autograd import profiler as autograd_profiler
from ddpgrad.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from ddpgrad.profiler import tensorboard_trace_handler as to_folder
from ddpgrad.utils.data import DataLoader, TensorDataset


def train() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(4, 8)), batch_size=2):
        with record_function("my loss"):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()


def test_a_step_is_recorded_in_its_parts():
    with profile(record_shapes=True, profile_memory=True, with_flops=True, with_stack=True) as recorded:
        train()
    rows = {row.key: row for row in recorded.key_averages()}
    assert {key: rows[key].count for key in ("aten::linear", "aten::relu", "my loss", "AddmmBackward0")} == {
        "aten::linear": 4, "aten::relu": 2, "my loss": 2, "AddmmBackward0": 4,
    }  # fmt: skip
    assert rows["Optimizer.step#SGD.step"].count == 2 and rows["enumerate(DataLoader)#__next__"].count >= 2
    assert rows["aten::linear"].flops == 2 * 2 * 2 * (8 * 16 + 16)
    assert rows["aten::relu"].self_cpu_memory_usage == 2 * 2 * 16 * 4
    linear = next(event for event in recorded.events() if event.name == "aten::linear")
    assert linear.input_shapes == [[2, 8], [16, 8], [16]] and "test_profiler.py" in linear.stack[0]
    labelled = linear.cpu_parent
    assert labelled.name == "my loss" and [child.name for child in labelled.cpu_children] == [
        "aten::linear", "aten::relu", "aten::linear", "aten::sum",
    ]  # fmt: skip
    inside = sum(child.cpu_time_total for child in labelled.cpu_children)
    assert labelled.self_cpu_time_total == pytest.approx(labelled.cpu_time_total - inside)
    assert labelled.cpu_memory_usage == sum(child.cpu_memory_usage for child in labelled.cpu_children) > 0
    by_shape = recorded.key_averages(group_by_input_shape=True)
    assert sorted(row.count for row in by_shape if row.key == "aten::linear") == [2, 2]
    assert recorded.events().total_average().self_cpu_time_total == pytest.approx(
        recorded.events().self_cpu_time_total
    )


def test_the_table_is_sorted_cut_and_says_its_sum():
    with autograd_profiler.profile(profile_memory=True) as recorded:
        train()
    lines = recorded.key_averages().table(sort_by="cpu_time_total", row_limit=3, header="mine").splitlines()
    assert lines[1] == "mine" and lines[3].split("  ")[0].strip() in ("", "Name")
    assert len([line for line in lines if "%" in line and "Self CPU" not in line]) == 3
    assert lines[-1].startswith("Self CPU time total: ")
    assert str(recorded) == recorded.table() and "aten::linear" in str(recorded)
    with pytest.raises(ValueError, match=r"sort_by='fastest'.*cpu_time_total"):
        recorded.table(sort_by="fastest")


# Read off torch.profiler.schedule of PyTorch 2.13.0, steps 0 to 11: None, Warmup, Record, Save.
@pytest.mark.parametrize(
    ("options", "actions"),
    [
        ({"wait": 1, "warmup": 1, "active": 2}, "NWRSNWRSNWRS"),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2}, "NWRSNWRSNNNN"),
        ({"wait": 0, "warmup": 1, "active": 1, "repeat": 1, "skip_first": 2}, "NNWSNNNNNNNN"),
        ({"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1}, "NWSNNWSNNWSN"),
    ],
)
def test_a_schedule_is_pytorchs(options, actions):
    letters = dict(zip(ProfilerAction, "NWRS", strict=True))
    assert "".join(letters[schedule(**options)(step)] for step in range(12)) == actions


def test_a_schedule_chooses_steps_and_each_cycle_is_handed_over(tmp_path):
    seen = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append((p.step_num, p.events()))) as recorded:
        for step in range(9):
            _ = torch.ones(2) + step
            recorded.step()
    assert [step for step, _ in seen] == [4, 8]
    steps = [[e.name for e in events if e.name.startswith("ProfilerStep")] for _, events in seen]
    assert steps == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    assert [sum(e.name == "aten::add" for e in events) for _, events in seen] == [2, 2]
    for packed in (False, True):
        with profile(on_trace_ready=to_folder(tmp_path, "me", use_gzip=packed)) as recorded:
            recorded.add_metadata_json("sizes", "[1, 2]")
            with record_function("mine"):
                _ = torch.ones(2) * 2
    plain, zipped = sorted(tmp_path.iterdir(), key=lambda path: path.suffix != ".json")
    assert plain.name.startswith("me.") and plain.name.endswith(".pt.trace.json")
    for text in (plain.read_text(), gzip.decompress(zipped.read_bytes())):
        trace = json.loads(text)
        spans = {event["name"]: event for event in trace["traceEvents"] if event["ph"] == "X"}
        outer, inner = spans["mine"], spans["aten::mul"]
        assert outer["ts"] <= inner["ts"] and inner["dur"] <= outer["dur"] and outer["tid"] == inner["tid"]
        assert trace["sizes"] == [1, 2] and outer["cat"] == "user_annotation"


def test_gradients_and_values_are_those_without_it():
    x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()

    def run() -> list[Any]:
        x.grad = None
        y = (x * 2).add_(1)
        (y.pow(3).sum() + y[0].clone().mul_(2).mean()).backward()
        return [y.detach(), x.grad]

    plain = run()
    with profile():
        profiled = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, profiled, strict=True))
    with profile() as recorded:
        pass
    run()
    assert len(recorded.events()) == 0


def test_two_at_once_and_what_other_threads_do():
    with profile() as outer:
        with profile() as inner:
            thread = threading.Thread(target=lambda: torch.ones(2) + 1)
            thread.start()
            thread.join()
        _ = torch.ones(2) * 2
    assert [event.name for event in inner.events()] == ["aten::add"]
    assert sorted(event.name for event in outer.events()) == ["aten::add", "aten::mul"]


def test_a_profiler_that_runs_can_be_ended_from_elsewhere():
    assert torch.profiler.kineto_available() and not torch.autograd._profiler_enabled()
    with profile() as recorded:
        _ = torch.ones(2) * 2
        assert torch.autograd._profiler_enabled()
        torch.autograd._disable_profiler()
        assert not torch.autograd._profiler_enabled()
        _ = torch.ones(2) + 2
    assert [event.name for event in recorded.events()] == ["aten::mul"]
    recorded = torch.profiler.profile()
    recorded.schedule = torch.profiler.profiler._default_schedule_fn
    assert recorded.schedule(3) is torch.profiler.ProfilerAction.RECORD


RANKS = """
import ddpgrad as torch, ddpgrad.distributed as dist
from ddpgrad.profiler import profile
dist.init_process_group()
with profile() as recorded:
    x = torch.ones(3)
    for _ in range(dist.get_rank() + 1): x = x + 1
    dist.all_reduce(x)
    dist.all_reduce_coalesced([torch.ones(n, dtype=torch.complex64) for n in (3, 2)], async_op=True).wait()
told = [(e.name, e.is_async, e.input_shapes) for e in recorded.events() if "reduce" in e.name]
assert told == [(dist.get_backend() + ":all_reduce", True, [[3]]),
                (dist.get_backend() + ":all_reduce_coalesced", True, [[3, 2], [2, 2]])], told
adds = [e for e in recorded.events() if e.name == "aten::add"]
assert len(adds) == dist.get_rank() + 1, (dist.get_rank(), recorded.events())
recorded.export_chrome_trace(f"trace.{dist.get_rank()}.json")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("procs", thinned(["1", "2"], "1"))
def test_each_rank_records_its_own(tmp_path, procs):
    (tmp_path / "script.py").write_text(RANKS)
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", "2", "--procs", procs, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"trace.{rank}.json").read_text())["distributedInfo"] for rank in (0, 1)]
    assert told == [{"rank": rank, "world_size": 2} for rank in (0, 1)]


def test_what_cannot_be_recorded_is_said():
    with pytest.warns(UserWarning, match="CUDA"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.raises(TypeError, match="ProfilerActivity"):
        profile(activities=cast(Any, ["cpu"]))
    with pytest.raises(RuntimeError, match="nothing has been recorded yet"):
        profile().key_averages()
    with pytest.raises(AssertionError, match="active=0"):
        schedule(wait=0, warmup=1, active=0)
