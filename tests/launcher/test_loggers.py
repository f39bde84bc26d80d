"""`launcher.loggers`: what each library is told, where rows of metrics.jsonl stay, and errors before any work."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.launcher import loggers

# In place of a library: each call becomes a line of the file calls-NAME-RANK.
FAKE = """
import json, os
def note(*what):
    with open(f"calls-{__name__}-{os.environ['RANK']}", "a") as file: file.write(json.dumps(what, default=str) + "\\n")
class Run:
    def log(self, values, step): note("log", values, step)
    def finish(self, **how): note("finish", how)
class Info: run_id = "id of a run"
Run.info = Info()
def init(*project, **how):
    note("init", project, how)
    return Run()
def start_run(**how):
    note("start_run", how)
    return Run()
def log_params(values, run_id): note("log_params", values, run_id)
def log_metrics(values, step, run_id): note("log_metrics", values, step, run_id)
def end_run(status): note("end_run", status)
def set_experiment(name): note("set_experiment", name)
def get_tracking_uri(): return os.environ.get("MLFLOW_TRACKING_URI", "file:mlruns")
"""
PROGRAM = """
import contextlib, sys
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.launcher import loggers
dist.init_process_group()
before = int(sys.argv[1]) if sys.argv[1:] else None
for library in LIBRARIES:
    ranks = ":all" if before else ""
    with contextlib.suppress(ValueError):
        with loggers.start(library + "/run", library + ranks, step=before, project="p", settings={"lr": 0.5}) as log:
            for step in range((before or 0) + 1, 4):
                log.log(step, {"loss": torch.tensor(1.5) * step, "lr": 0.5})
                if dist.get_rank() == 0 and step == 3: raise ValueError("boom")
"""
LIBRARIES = ("wandb", "mlflow", "trackio")


def calls(folder: Path, library: str, rank: int) -> list[list]:
    """The calls since this was last asked."""
    path = folder / f"calls-{library}-{rank}"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return rows


def test_a_library_is_told_of_the_run_its_rows_its_end_and_where_it_goes_on(ddprun):
    for library in LIBRARIES:
        (ddprun.folder / f"{library}.py").write_text(FAKE)
    script = ddprun.script(PROGRAM.replace("LIBRARIES", str(LIBRARIES)), prelude="")
    ended = ddprun.run("-n", "2", script)
    assert ended.code == 0, ended.err
    beginnings = {}
    for library in LIBRARIES:
        assert calls(ddprun.folder, library, 1) == []
        began, *logged, ended = calls(ddprun.folder, library, 0)
        beginnings[library] = began
        if library == "mlflow":
            assert [began, *logged[:2]] == [
                ["set_experiment", "p"],
                ["start_run", {"run_name": "run", "tags": None}],
                ["log_params", {"lr": 0.5}, "id of a run"],
            ]
            rows = [
                ["log_metrics", {"loss": 1.5 * step, "lr": 0.5}, step, "id of a run"] for step in (1, 2, 3)
            ]
            assert logged[2:] == rows and ended == ["end_run", "FAILED"]
        else:
            assert began[0] == "init" and began[2]["name"] == "run" and began[2]["group"] is None
            assert logged == [["log", {"loss": 1.5 * step, "lr": 0.5}, step] for step in (1, 2, 3)]
            assert ended == ["finish", {"exit_code": 1} if library == "wandb" else {}]

    ended = ddprun.run("-n", "2", script, "1")
    assert ended.code == 0, ended.err
    for library, began in beginnings.items():
        first = calls(ddprun.folder, library, 0)
        again = [row for row in first if row[0].startswith("log")]
        assert [row[2] for row in again] == [2, 3], "it goes on after step 1, and its settings are there"
        if library == "mlflow":
            assert ["start_run", {"run_id": "id of a run"}] in first
        else:
            assert first[0][2]["resume"] == "allow" and first[0][2].get("id") == began[2].get("id")
        beginning = json.dumps(calls(ddprun.folder, library, 1)[:2])
        assert '"run-rank1"' in beginning and '"group": "run"' in beginning


def test_a_server_that_is_not_there_is_an_error_at_once(tmp_path, monkeypatch):
    """MLflow itself asks again for four minutes."""
    mlflow = ModuleType("mlflow")
    exec(FAKE, mlflow.__dict__)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    mlflow.__spec__ = ModuleSpec("mlflow", None, origin="here")  # by which it is found to be installed
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(
        ConnectionError, match=rf"no server answers at {address} .*name another in MLFLOW_TRACKING_URI"
    ):
        loggers.start(tmp_path / "run", "mlflow")


def test_metrics_jsonl_goes_on_from_the_step_that_stands(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    with loggers.start(tmp_path / "run") as log:
        for step in (1, 2, 3):
            log.log(step, {"loss": torch.tensor(0.1 * step, dtype=torch.float64)})
    path.write_text(path.read_text() + '{"step": 4, "lo')  # the run was killed
    with loggers.start(tmp_path / "run", step=2) as log:
        log.log(3, {"loss": 7})
        with pytest.raises(TypeError, match="log: name must be a number or a tensor of one element, got 'x'"):
            log.log(4, {"name": "x"})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"step": 1, "loss": 0.1}, {"step": 2, "loss": 0.2}, {"step": 3, "loss": 7}]
    earlier = path.read_text()
    with pytest.warns(UserWarning, match=r"rows of an earlier run; they are kept in .*metrics\.jsonl\.1"):
        log = loggers.start(tmp_path / "run")
    assert path.read_text() == "", "a run that begins anew has no rows of another"
    assert path.with_name("metrics.jsonl.1").read_text() == earlier
    log.log(1, {"loss": 1})
    log.close()
    with pytest.warns(UserWarning, match=r"metrics\.jsonl\.2"):
        loggers.start(tmp_path / "run").close()


def test_another_job_cannot_take_the_folder_of_a_run(tmp_path):
    """It would replace the rows that are there and the file that the first one writes to."""
    program = "from ddpgrad.launcher import loggers, write_config; write_config('run'); loggers.start('run').close()"
    other = [sys.executable, "-c", program]
    with loggers.start(tmp_path / "run") as log:
        log.log(1, {"loss": 1})
        refused = subprocess.run(other, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert refused.returncode != 0
        assert "run: another job writes there; choose another folder, or wait for its end" in refused.stderr
        assert not (tmp_path / "run" / "config.json").exists()
        log.log(2, {"loss": 1})
        until, end = os.pipe()
        child = os.fork()  # as a loader's worker, which may outlive the job
        if not child:
            os.close(end)
            os.read(until, 1)
            os._exit(0)
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2
    subprocess.run(other, cwd=tmp_path, check=True, timeout=600)
    os.close(end)
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("step", "values", "error", "says"),
    [
        (1, {"step": 7}, ValueError, "names, which are texts other than 'step'"),
        (1, {2: 7}, ValueError, "names, which are texts other than 'step', got 2"),
        (1, {"loss": 10**400}, ValueError, "loss has 1329 bits"),
        (1.5, {"loss": 1}, TypeError, "the step must be a whole number, got 1.5"),
        (None, {"loss": 1}, TypeError, "the step must be a whole number, got None"),
    ],
)
def test_a_row_that_no_reader_could_take_is_refused_before_any_logger_has_it(
    tmp_path, step, values, error, says
):
    with loggers.start(tmp_path, "tensorboard") as log:
        with pytest.raises(error, match=says):
            log.log(step, values)
        log.log(np.int64(3), {"loss": np.float32(2)})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 3, "loss": 2.0}\n'


def test_all_loggers_are_closed_once_and_for_all(tmp_path):
    class Fails:
        def log(self, step: int, values: Mapping[str, float]) -> None: ...

        def close(self, failed: bool) -> None:
            closed.append(self)
            raise OSError("the disk is full")

    closed: list[Fails] = []
    log = loggers.start(tmp_path)
    log.all += [Fails(), Fails()]
    with pytest.raises(OSError, match="the disk is full"):
        log.close()
    assert len(closed) == 2
    log.close()
    with pytest.raises(ValueError, match=r"step 2 comes after close\(\)"):
        log.log(2, {"loss": 1})


def test_what_cannot_be_logged_to_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match=r'package wandb: pip install "ddpgrad\[wandb\]"'):
        loggers.start(tmp_path / "run", "tensorboard,wandb")
    (tmp_path / "mlflow").mkdir()  # a folder of runs, in which Python sees a package without a file
    with monkeypatch.context() as only_here:
        only_here.delitem(sys.modules, "mlflow", raising=False)
        only_here.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(ModuleNotFoundError, match=r"ddpgrad\[mlflow\]"):
            loggers.chosen("mlflow")
    with pytest.raises(ValueError, match="'tensorbord' is no logger; did you mean tensorboard"):
        loggers.chosen("tensorbord")
    with pytest.raises(ValueError, match="NAME:all for all ranks"):
        loggers.chosen("jsonl:some")
    assert not (tmp_path / "run").exists()


# With the packages themselves, where they are installed: they write to this machine alone.


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_the_numbers(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(
        mlflow.tracking._tracking_service.utils, "_tracking_uri", f"file:{tmp_path / 'store'}"
    )
    _two_parts(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(f"file:{tmp_path / 'store'}")
    [run] = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")] == [
        (1, 1.5),
        (2, 3),
        (3, 4.5),
    ]
    assert run.data.params == {"lr": "0.5"} and run.info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")
def test_trackio_has_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    pytest.importorskip("trackio")
    _two_parts(tmp_path / "run", "trackio")
    with sqlite3.connect(tmp_path / "store" / "p.db") as base:
        rows = base.execute("select step, metrics from metrics order by step").fetchall()
    assert [(step, json.loads(text)["loss"]) for step, text in rows] == [(1, 1.5), (2, 3), (3, 4.5)]


@pytest.mark.filterwarnings("ignore")
def test_wandb_takes_the_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    pytest.importorskip("wandb")
    _two_parts(tmp_path / "run", "wandb")
    ident = (tmp_path / "run" / "wandb.id").read_text()
    sizes = [path.stat().st_size for path in tmp_path.glob(f"run/wandb/offline-*/run-{ident}.wandb")]
    assert sizes and min(sizes) > 500


def _two_parts(folder: Path, library: str) -> None:
    """Two steps, and another from where they end."""
    for begin, end in ((None, 2), (2, 3)):
        with loggers.start(folder, library, step=begin, project="p", settings={"lr": 0.5}) as log:
            for step in range((begin or 0) + 1, end + 1):
                log.log(step, {"loss": 1.5 * step})
