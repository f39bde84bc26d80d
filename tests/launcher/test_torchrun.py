"""Functions and commands that programs start by the names of torchrun's library."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddpgrad.distributed.elastic.multiprocessing import (  # pyright: ignore[reportMissingImports]
    DefaultLogsSpecs,
    Std,
    start_processes,
    to_map,
)
from ddpgrad.distributed.elastic.multiprocessing.errors import (  # pyright: ignore[reportMissingImports]
    ChildFailedError,
)
from ddpgrad.distributed.launcher.api import (  # pyright: ignore[reportMissingImports]
    LaunchConfig,
    elastic_launch,
)
from ddpgrad.launcher import torchrun

SCRIPT = """\
import os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(f"{dist.get_rank()} of {int(total.item())}, {attempt}, {sys.argv[1:]}, {'ddpgrad' in torch.__version__}\\n")
dist.barrier()
if sys.argv[1:] == ["fails", attempt] and dist.get_rank() == 1:
    raise ValueError("on purpose")
"""


def config(**options: Any) -> LaunchConfig:
    return LaunchConfig(
        **{
            "min_nodes": 1,
            "max_nodes": 1,
            "nproc_per_node": 2,
            "rdzv_backend": "c10d",
            "max_restarts": 0,
            **options,
        }
    )


def told(word: int) -> tuple[int, str]:
    if word < 0:
        raise ValueError("below zero")
    return word + int(os.environ["RANK"]), os.environ["WORLD_SIZE"]


def at_the_second_start() -> str:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "0":
        raise SystemExit(3)
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


def killed() -> None:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def large() -> bytes:
    return bytes(3_000_000)


@pytest.fixture
def found_by_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of this file are, as `pytest` alone does not have its folder on Python's path."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def test_a_function_is_run_by_each_rank(found_by_ranks: None):
    assert elastic_launch(config(), told)(5) == {0: (5, "2"), 1: (6, "2")}
    assert elastic_launch(config(max_restarts=1, start_method="fork"), at_the_second_start)() == {
        0: "1",
        1: "1",
    }
    assert elastic_launch(config(), large)() == dict.fromkeys((0, 1), bytes(3_000_000))


def test_failures_tell_of_the_rank(found_by_ranks: None):
    with pytest.raises(ChildFailedError, match="told FAILED") as caught:
        elastic_launch(config(nproc_per_node=1), told)(-1)
    assert caught.value.failures[0].message["message"] == "ValueError: below zero"
    begun = time.monotonic()
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(config(), killed)()
    assert {rank: one.exitcode for rank, one in caught.value.failures.items()} == {1: -signal.SIGKILL}
    assert time.monotonic() - begun < 300  # the other rank was ended


def test_a_rank_that_has_ended_the_others_before_itself_is_to_blame():
    words: dict[int, tuple[Any, ...]] = {0: ("-c", "kill -TERM $$"), 1: ("-c", "sleep 0.3; exit 7")}
    result = start_processes("worker", "sh", words, {0: {}, 1: {}}, DefaultLogsSpecs(os.devnull)).wait(600)
    assert result is not None
    assert {r: one.exitcode for r, one in result.failures.items()} == {0: -signal.SIGTERM, 1: 7}
    assert ChildFailedError("worker", result.failures).get_first_failure()[0] == 1


def test_streams_go_to_files_and_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    logs = DefaultLogsSpecs(str(tmp_path), redirects={0: Std.OUT}, tee={1: Std.OUT})
    args: dict[int, tuple[Any, ...]] = {0: ("first",), 1: ("second",)}
    started = start_processes("worker", "echo", args, {0: {}, 1: {}}, logs)
    result = started.wait(600)
    assert result is not None and result.return_values == {0: None, 1: None} and not result.is_failed()
    assert [Path(path).read_text() for path in result.stdouts.values()] == ["first\n", "second\n"]
    assert result.stderrs == {0: "", 1: ""} and capfd.readouterr().out == "[worker1]:second\n"
    waiting = start_processes("worker", "sleep", {0: ("60",)}, {0: {}}, DefaultLogsSpecs(os.devnull))
    assert waiting.wait(0.1) is None
    waiting.close()
    with pytest.raises(ProcessLookupError):
        os.kill(waiting.pids()[0], 0)
    with pytest.raises(RuntimeError, match="envs, local rank mapping mismatch"):
        start_processes("worker", "true", {0: ()}, {}, logs)
    assert Std.from_str("0:1,1:2") == {0: Std.OUT, 1: Std.ERR} and to_map(Std.ALL, 1) == {0: Std.ALL}


def test_options_are_torchruns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PET_NNODES", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["--nproc_per_node", "2", "--node-rank", "1", "--master-addr", "a", "-m", "mod", "--nnodes", "x"]
    made, command, arguments = torchrun.config_from_args(torchrun.parse_args(words))
    assert (made.max_nodes, made.rdzv_endpoint, made.rdzv_configs["rank"]) == (2, "a:29500", "1")
    assert arguments == ["-u", "-m", "mod", "--nnodes", "x"] and os.path.basename(str(command)).startswith(
        "python"
    )
    # accelerate's notebook_launcher asks for it where the field is there.
    assert "numa_options" not in LaunchConfig.__dataclass_fields__
    with pytest.raises(NotImplementedError, match="of several hosts each has a number"):
        elastic_launch(LaunchConfig(1, 2, 1), "true")()
    with pytest.raises(NotImplementedError, match="--numa-binding is not supported"):
        torchrun.config_from_args(torchrun.parse_args(["--numa-binding", "node", "x.py"]))


def test_torchrun_starts_scripts_that_import_torch(ddprun):
    ddprun.script(SCRIPT, prelude="")
    run = ("--as-torch", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    result = ddprun.run(*run, "--max-restarts", "1", "script.py", "fails", "0")
    assert result.code == 0, result.err
    lines = [f"{rank} of 2, {attempt}, ['fails', '0'], True" for rank in (0, 1) for attempt in (0, 1)]
    assert sorted(result.out.splitlines()) == lines
    failed = ddprun.run(*run, "script.py", "fails", "0")
    assert (
        failed.code == 1
        and "ChildFailedError" in failed.err
        and "rank      : 1 (local_rank: 1)" in failed.err
    )
