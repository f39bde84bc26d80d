"""The log folder of a run keeps all output; the screen shows the selected part."""

import fcntl
import json
import os
import socket
import sys
import time

import pytest
from matrices import thinned

import ddpgrad
from ddpgrad.launcher.cli.ddprun import main

SPEAK = '\nprint("out")\nprint("err", file=sys.stderr)\n'


@pytest.mark.parametrize(
    ("options", "shown"),
    thinned(
        [
            ([], {"[rank 0] out", "[rank 0] err"}),
            (["--tee", "3"], {"[rank 0] out", "[rank 0] err", "[rank 1] out", "[rank 1] err"}),
            (["-r", "0:1,1:3"], {"[rank 0] err"}),
            (["-t", "1:2", "--redirects", "3"], {"[rank 1] err"}),
        ],
        ([],),
        (["-t", "1:2", "--redirects", "3"],),
    ),
)
def test_all_is_kept_and_some_is_shown(ddprun, options, shown):
    result = ddprun.run("-n", "2", "--log-dir", "run/logs", *options, ddprun.script(SPEAK))
    assert result.code == 0
    assert {*result.out.splitlines(), *result.err.splitlines()} == shown
    folder = ddprun.folder / "run" / "logs"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "rank_0.log", "rank_1.log"]
    for rank in range(2):
        assert sorted((folder / f"rank_{rank}.log").read_text().split()) == ["err", "out"]


def test_output_of_one_rank_alone_is_kept_too(ddprun):
    result = ddprun.run("--log-dir", "logs", ddprun.script(SPEAK))
    assert (result.code, result.out, result.err) == (0, "out\n", "err\n")
    assert sorted((ddprun.folder / "logs" / "rank_0.log").read_text().split()) == ["err", "out"]


def test_logs_that_are_deleted_while_the_job_runs_are_missed(ddprun):
    """What only they had is lost: the screen has that of rank 0."""
    script = """
import shutil
import ddpgrad.distributed as dist
dist.init_process_group()  # all have begun
if dist.get_rank() == 0: shutil.rmtree("logs")
print("out")
"""
    result = ddprun.run("-n", "2", "--log-dir", "logs", ddprun.script(script))
    said = "ddprun: the logs in logs are incomplete: rank_0.log, rank_1.log deleted while the job ran"
    assert (result.code, result.out, result.err.strip()) == (0, "[rank 0] out\n", said)


def test_a_run_folder_says_how_the_run_was_started(ddprun):
    script = ddprun.script("from ddpgrad import launcher\nlauncher.write_config('own', lr=0.5)\n")
    options = ["-n", "2", "--procs", "1", "--log-dir", "logs", "--trace", "trace"]
    assert ddprun.run(*options, script, "--x", "a b").code == 0
    logs, trace, own = (
        json.loads((ddprun.folder / name / "config.json").read_text()) for name in ("logs", "trace", "own")
    )
    assert logs == trace == {name: own[name] for name in logs} and own["settings"] == {"lr": 0.5}
    assert logs["command"] == f"ddprun {' '.join(options)} script.py --x 'a b'"
    assert logs["options"] == {"nproc_per_node": "2", "procs": 1, "log_dir": "logs", "trace": "trace"}
    assert logs["world"] == {"ranks": 2, "processes": 1, "started_by": "ddprun"}
    assert logs["hosts"] == {socket.gethostname(): "ranks 0-1"}
    assert logs["versions"]["ddpgrad"] == ddpgrad.__version__ and "numpy" in logs["versions"]
    assert ddprun.run(command=[sys.executable, script]).code == 0
    alone = json.loads((ddprun.folder / "own" / "config.json").read_text())
    assert alone.keys() == own.keys() and alone["world"]["started_by"] == "python"


def test_a_script_may_have_more_arguments_than_a_variable_holds(ddprun):
    files = [f"data/part-{number:06}.npz" for number in range(6000)]
    script = ddprun.script(
        "import sys\nprint(len(sys.argv))\nfrom ddpgrad import launcher\nlauncher.write_config('own')\n"
    )
    result = ddprun.run("-n", "1", "--log-dir", "logs", script, *files)
    assert (result.code, result.out) == (0, "6001\n"), result.err
    logs, own = (json.loads((ddprun.folder / name / "config.json").read_text()) for name in ("logs", "own"))
    assert logs["arguments"] == files and "6000 arguments of the script, too long" in own["command"]


@pytest.mark.parametrize("way", thinned(["--procs=1", "--mpi"], "--procs=1"))
def test_ranks_that_share_a_stream_have_files_of_their_own(ddprun, request, way):
    if way == "--mpi":
        request.getfixturevalue("mpiexec")
    result = ddprun.run("-n", "3", way, "--log-dir", "logs", "--tee", "2:1", "-r", "3", ddprun.script(SPEAK))
    assert result.code == 0
    assert (result.out.splitlines(), result.err) == (["[rank 2] out"], "")
    for rank in range(3):
        assert sorted((ddprun.folder / "logs" / f"rank_{rank}.log").read_text().split()) == ["err", "out"]


def test_what_ddprun_says_of_failures_and_restarts_is_kept(ddprun):
    script = ddprun.script(
        "if rank == 1 and os.environ['DDPRUN_RESTART_COUNT'] == '0': raise ValueError('boom')"
    )
    result = ddprun.run("-n", "2", "--log-dir", "logs", "--max-restarts", "1", script)
    assert result.code == 0
    events = [json.loads(line) for line in (ddprun.folder / "logs" / "events.jsonl").read_text().splitlines()]
    failed, restarted, ended = (event["text"] for event in events)
    assert failed in result.err and failed.endswith("ValueError: boom")
    assert restarted == "ddprun: restarting in 0.5 s from the newest whole checkpoint."
    assert ended == "ddprun: the job ended with exit code 0." and events[-1]["exit_code"] == 0
    assert all(time.strptime(event["time"], "%Y-%m-%dT%H:%M:%S%z") for event in events)


def test_the_failure_of_an_earlier_job_is_not_that_of_a_later_one(ddprun):
    script = ddprun.script("if len(sys.argv) > 1: raise ValueError\n")
    assert ddprun.run("--log-dir", "logs", script, "fail").code == 1
    failure = (ddprun.folder / "logs" / "failure.json").read_text()
    assert ddprun.run("--log-dir", "logs", script).code == 0
    assert not (ddprun.folder / "logs" / "failure.json").exists()
    assert (ddprun.folder / "logs" / "failure.earlier.json").read_text() == failure


def test_two_jobs_do_not_share_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").touch()
    (tmp_path / "run").mkdir()
    holder = os.open(tmp_path / "run" / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert main(["--log-dir", "run", "s.py"]) == 2
    finally:
        os.close(holder)
    assert "--log-dir run: another job writes there" in capsys.readouterr().err


def test_a_failure_is_at_most_25_lines(ddprun):
    script = ddprun.script("""
def deep(n):
    if n: deep_too(n - 1)
    else: raise ValueError("the cause")
def deep_too(n):
    if n: deep(n - 1)
    else: raise ValueError("the cause")
if rank == 1: deep(60)
wait()
""")
    result = ddprun.run("-n", "2", script)
    assert len(result.said) <= 25 and result.said[-1] == "ValueError: the cause"
    assert any("lines left out" in line for line in result.said)
