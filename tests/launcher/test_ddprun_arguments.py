"""The command line: the effect of each option on the ranks, and the errors for wrong ones."""

import json
import os
import subprocess
import sys

import pytest
from matrices import thinned

import ddpgrad
from ddpgrad.core.errors import LaunchError
from ddpgrad.launcher.cli import joining, options
from ddpgrad.launcher.cli.ddprun import main, parse

REPORT = """
import json, os, sys
from ddpgrad import environment
from ddpgrad.distributed.ranks import host
me = host.current()
names = ["WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS",
    "MASTER_PORT", "DDPRUN_RESTART_COUNT"]
print(json.dumps({"rank": me.rank, "world": me.world_size, "argv": sys.argv, "name": __name__,
    "timeout": environment.timeout(), "debugger": environment.debugger(), "numpy": "numpy" in sys.modules,
    **{name: os.environ.get(name) for name in names}}))
"""


def reports(result) -> list[dict]:
    assert (result.code, result.err) == (0, "")
    found = [json.loads(line[line.index("{") :]) for line in result.out.splitlines()]
    return sorted(found, key=lambda report: report["rank"])


def test_ranks_know_their_place_and_the_scripts_arguments(ddprun):
    script = ddprun.script(REPORT, prelude="")
    first, second = reports(ddprun.run("-n2", "--timeout", "7.5", script, "--procs", "9", "-x"))
    assert first["argv"] == ["script.py", "--procs", "9", "-x"] and first["name"] == "__main__"
    assert (second["rank"], second["world"], second["timeout"]) == (1, 2, 7.5)
    assert (second["WORLD_SIZE"], second["RANK"], second["LOCAL_RANK"]) == ("2", "1", "1")
    assert (second["LOCAL_WORLD_SIZE"], second["MASTER_ADDR"]) == ("2", "127.0.0.1")
    assert second["OMP_NUM_THREADS"] == "1"


def test_torchruns_options_are_taken(ddprun):
    script = ddprun.script(REPORT, prelude="")
    options = ["--standalone", "--nnodes=1", "--rdzv_backend=c10d", "--rdzv-endpoint", "localhost:2950"]
    first = reports(ddprun.run(*options, "--nproc_per_node=2", "--threads", "3", script))[0]
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == ("localhost", "2950")
    assert (first["DDPRUN_RESTART_COUNT"], first["OMP_NUM_THREADS"]) == ("0", "3")


def test_torchruns_master_and_filter_are_taken(ddprun):
    options = ["-np", "2", "--master_addr", "localhost", "--master-port=2951", "--local-ranks-filter", "1"]
    ddprun.environment["OMP_NUM_THREADS"] = "2"  # the user's choice
    [shown] = reports(ddprun.run(*options, ddprun.script(REPORT, prelude="")))
    assert (shown["rank"], shown["world"], shown["OMP_NUM_THREADS"]) == (1, 2, "2")
    assert (shown["MASTER_ADDR"], shown["MASTER_PORT"]) == ("localhost", "2951")


def test_the_local_ranks_of_every_host_are_shown():
    plan = parse(["-n", "5", "--hosts", "a:2,b:3", "--local-ranks-filter", "0,2", __file__])
    assert plan.shown().only == {0, 2, 4}


def test_srun_may_start_one_ddprun_on_each_host_or_the_ranks(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    for arguments, joins in (
        (["--nnodes", "2", "--rdzv-endpoint", "h:1"], False),
        (["--nnodes", "1", "--timeout", "5"], True),
    ):
        assert joining.wanted(*options.split([*arguments, __file__])) == joins
    for arguments, words in (
        (["-n", "4", __file__], f"`srun -n 2 python {__file__}`"),
        (["--timeout", "-1", __file__], "--timeout -1: the seconds must be positive"),
        ([str(tmp_path / "absent.py")], "absent.py does not exist"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err


def test_auto_is_one_rank_per_gpu_or_core(monkeypatch):
    def ranks(text: str) -> int:
        return parse(["--nproc-per-node", text, __file__]).world_size

    monkeypatch.setattr("ddpgrad.cuda.device_count", lambda: 0)
    cores = len(os.sched_getaffinity(0))
    assert (ranks("auto"), ranks("cpu")) == (cores, cores)
    with pytest.raises(LaunchError, match="-n gpu: there is no GPU"):
        ranks("gpu")
    monkeypatch.setattr("ddpgrad.cuda.device_count", lambda: cores + 1)
    assert (ranks("auto"), ranks("cpu"), ranks("gpu")) == (cores + 1, cores, cores + 1)


def test_misspelt_variables_are_told_of(ddprun):
    ddprun.environment |= {"DDPGRAD_TIMOUT": "3", "DDPGRAD_OF_A_PROGRAM": "1"}
    result = ddprun.run(ddprun.script("pass", prelude=""))
    assert (result.code, result.err.count("\n")) == (0, 1)
    assert "DDPGRAD_TIMOUT has no meaning; did you mean DDPGRAD_TIMEOUT?" in result.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DDPGRAD_NUMBA", "-1"), ("DDPGRAD_MKL", "maybe"), ("DDPGRAD_VERIFY", "-1"),
        ("DDPGRAD_CHECK_REPLICAS", "maybe"), ("DDPGRAD_TRANSPORT", "maybe"),
    ],
)  # fmt: skip
def test_a_variable_that_means_nothing_is_named(ddprun, name, text):
    ddprun.environment[name] = text
    script = "import ddpgrad as d; d.distributed.init_process_group(); d.nn.parallel.DistributedDataParallel(d.nn.Linear(1, 1))"
    result = ddprun.run("-n", "1", ddprun.script(script, prelude=""))
    assert result.code == 1 and name in result.said[-1] and f"'{text}'" in result.said[-1], result.err


@pytest.mark.parametrize("text", ["0", "nan", "soon"])
def test_a_limit_of_no_time_is_refused(monkeypatch, text):
    monkeypatch.setenv("DDPGRAD_TIMEOUT", text)
    monkeypatch.delenv("DDPGRAD_DEBUGGER", raising=False)
    with pytest.raises(LaunchError, match=f"must be seconds, more than 0, got '{text}'"):
        ddpgrad.distributed.init_process_group()
    monkeypatch.delenv("DDPGRAD_TIMEOUT")
    monkeypatch.setenv("DDPGRAD_DEBUGGER", "1")  # which waits for ever, but for what can be meant
    if text != "soon":
        ddpgrad.distributed.init_process_group()  # a second group takes the first one's transport
        ddpgrad.distributed.destroy_process_group()
        with pytest.raises(ValueError, match=f"timeout must be more than 0 seconds, got {text}"):
            ddpgrad.distributed.init_process_group(timeout=float(text))


def test_the_version_is_printed(ddprun):
    result = ddprun.run("--version")
    assert (result.code, result.out, result.err) == (0, f"ddprun {ddpgrad.__version__}\n", "")


@pytest.mark.parametrize("procs", thinned(["1", "3"], "3"))
def test_a_module_runs_as_main(ddprun, procs):
    package = ddprun.folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "value.py").write_text("VALUE = 3\n")
    (package / "work.py").write_text("from .value import VALUE\n" + REPORT)
    command = ddprun.command()
    command[1:3] = ["-P", "-m", "ddpgrad.launcher"]
    found = reports(ddprun.run(command=[*command, "-n", "3", "--procs", procs, "-m", "package.work", "4"]))
    assert [(r["rank"], r["name"], r["argv"][1:]) for r in found] == [
        (i, "__main__", ["4"]) for i in range(3)
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "4", "--procs", "5", "s.py"], "--procs 5 is more than -n 4 ranks: every process must host"),
        (["-n", "0", "s.py"], "-n 0: at least one rank is needed"),
        (["-n", "9" * 20, "s.py"], f"-n {'9' * 20}: at most"),
        (["x" * 300], f"script {'x' * 300} does not exist"),
        (["ckpt", "verify", "x" * 300], "[Errno 36] File name too long: 'xxx"),
        (["-n", "two", "s.py"], "-n takes a number of ranks or 'auto', 'cpu' or 'gpu', got 'two'"),
        (["doctr"], "no sub-command doctr, and no script of that name; did you mean `ddprun doctor`?"),
        (["--local-ranks-filter", "x", "s.py"], "--local-ranks-filter takes ranks, as in 0,2; got 'x'"),
        (
            ["-n", "2", "--local-ranks-filter", "2,3", "s.py"],
            "--local-ranks-filter 2,3: no host has such a rank",
        ),
        (["-m", "s.py"], "-m takes a module's name: give s, or leave out -m"),
        (
            ["--master-addr", "a", "--rdzv-endpoint", "b:1", "s.py"],
            "--rdzv-endpoint b:1 and --master-addr, --master-port (a:29500) name two places",
        ),
        (["--prosc", "2", "s.py"], "unknown option --prosc; did you mean --procs?"),
        (["-n", "2"], "no script was given"),
        (["-n", "2", "absent.py"], "script absent.py does not exist (looked in "),
        (["."], "script . is not a file"),
        (["-m", "absent.module"], "no module named 'absent'"),
        (["-n", "2", "--procs", "2", "--debug", "s.py"], "--debug hosts all ranks in one process"),
        (["--timeout", "-1", "s.py"], "--timeout -1: the seconds must be positive"),
        (["--watchdog", "0", "s.py"], "--watchdog 0: the seconds must be positive"),
        (["--max-restart", "2", "s.py"], "unknown option --max-restart; did you mean --max-restarts?"),
        (["--restarts", "2", "s.py"], "unknown option --restarts; did you mean --max-restarts?"),
        (["--nnodes", "2", "s.py"], "--nnodes 2 needs --rdzv-endpoint HOST:PORT"),
        (["--nnodes", "1:4", "s.py"], "--nnodes 1:4: give a number of hosts. A range is not supported"),
        (["--nnodes", "2", "--node-rank", "2", "s.py"], "--node-rank 2 must be below --nnodes 2"),
        (["--nnodes", "2", "--hosts", "a,b", "s.py"], "--nnodes 2 is for a ddprun on each host"),
        (
            ["--nnodes", "2", "--rdzv-endpoint", "h:1", "--rdzv-backend", "etcd", "s.py"],
            "--rdzv-backend etcd: nodes meet",
        ),
        (["--tee", "3", "s.py"], "--tee needs --log-dir DIR"),
        (["--log-dir", "x", "--tee", "5", "s.py"], "--tee takes 0 (nothing), 1"),
        (["-n", "4", "--hosts", "a:2,b", "s.py"], "--hosts a:2,b:1 has room for 3 processes"),
        (["--hosts", "a:2,b:two", "s.py"], "--hosts takes HOST:PROCESSES,..., got 'a:2,b:two'"),
        (["--hosts", "", "s.py"], "--hosts takes HOST:PROCESSES,..., got ''"),
        (["--hostfile", "", "s.py"], "--hostfile : there is no such file"),
        (["--hostfile", "absent", "s.py"], "--hostfile absent: there is no such file"),
        (["--hostfile", "s.py", "s.py"], "--hostfile s.py names no host"),
        (["--rdzv-endpoint", "host:x", "s.py"], "--rdzv-endpoint takes HOST:PORT, got 'host:x'"),
        (["--mpi", "--mpiexec", "/absent/mpiexec", "s.py"], "--mpiexec /absent/mpiexec: there is no such"),
        (["--mpi", "--mpiexec", "/bin/true", "s.py"], "/bin/true is neither MPICH's nor Open MPI's"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").touch()
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"ddprun: error: {words}")


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_gone_is_named(tmp_path, monkeypatch, capsys, there):
    script, gone = tmp_path / "s.py" if there else "s.py", tmp_path / "gone"
    if there:
        script.touch()
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["-n", "1", str(script)]) == 2
    assert "the current folder does not exist any more: cd to one that does" in capsys.readouterr().err


def test_a_module_is_found_as_python_finds_it(tmp_path):
    """In an environment where this package is installed to be edited, from any folder."""
    words = [sys.executable, "-P", "-m", "ddpgrad.launcher", "-n", "1", "-m", "ddpgrad.launcher", "--help"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0 and "usage: ddprun" in ended.stdout, ended.stderr


def test_without_mpiexec_it_is_said_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (tmp_path / "s.py").touch()
    assert main(["--mpi", "s.py"]) == 2
    assert 'pip install "ddpgrad[mpich]"' in capsys.readouterr().err
