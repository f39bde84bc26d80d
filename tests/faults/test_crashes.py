"""A rank that dies, wherever it is: everything is gone in time, it is named, and a restart gives the same bits."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from running import Ddprun, Result

TRAIN = str(Path(__file__).parent / "train.py")
PHASES = ["import", "init", "forward", "backward", "mid-bucket", "optimizer", "save", "shutdown"]
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def result(run: Result) -> str:
    return [line for line in run.out.splitlines() if "result" in line][-1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    ddprun = Ddprun(tmp_path_factory.mktemp("undisturbed"))
    ddprun.environment["DDPGRAD_NUMBA"] = "0"
    run = ddprun.run("-n", "2", TRAIN)
    assert run.code == 0, run.err
    return result(run)


def who(phase: str) -> list[int]:
    """Each phase with one rank, chosen by its name; both ranks are in turn over the phases."""
    return [PHASES.index(phase) % 2]


@pytest.mark.parametrize(("phase", "rank"), [(phase, rank) for phase in PHASES for rank in who(phase)])
def test_a_killed_rank_is_named_and_a_restart_gives_the_same_bits(ddprun, undisturbed, phase, rank):
    run = ddprun.run("-n", "2", "--max-restarts", "1", TRAIN, phase, str(rank), KILL)
    assert run.code == 0, run.err
    assert f"ddprun: rank {rank} failed (killed by SIGKILL); all ranks were ended." in run.err
    assert run.err.count("restarting in") == 1
    assert result(run) == undisturbed


@pytest.mark.parametrize("rank", [0, 1])
def test_without_restarts_the_job_ends(ddprun, rank):
    run = ddprun.run("-n", "2", TRAIN, "mid-bucket", str(rank), KILL)
    assert run.code == 1
    assert run.said[-3] == f"ddprun: rank {rank} failed (killed by SIGKILL); all ranks were ended."


@pytest.mark.parametrize(
    ("action", "code", "reason"),
    [
        ("raise ValueError('boom')", 1, "exit code 1"),
        ("sys.exit(0)", 1, None),
        ("os._exit(0)", 1, "exit code 0"),
        ("dist.all_reduce(torch.ones(3))", 4, "exit code 1"),
        ("dist.all_reduce(torch.ones(2)) if dist.get_rank() else None", 4, "exit code 1"),
        (
            "open('checkpoints/step_00000001/model.safetensors', 'w').close(); checkpoints.read('model')",
            5,
            "exit code 1",
        ),
    ],
)
def test_other_ends_of_one_rank(ddprun, action, code, reason):
    run = ddprun.run("-n", "2", TRAIN, "step", "1", action)
    assert run.code == code, run.err
    headline = next(line for line in run.said if line.endswith("; all ranks were ended."))
    if reason is not None:
        assert headline == f"ddprun: rank 1 failed ({reason}); all ranks were ended."
    assert len(run.said) <= 25
    if action != "os._exit(0)":  # which leaves no time to say how far it had come
        assert any("had finished 4 optimizer steps" in line for line in run.said)


def test_a_slow_rank_is_no_fault(ddprun, undisturbed):
    run = ddprun.run("-n", "2", "--watchdog", "20", TRAIN, "step", "1", "time.sleep(3)")
    assert run.code == 0, run.err
    assert result(run) == undisturbed


@pytest.mark.parametrize("seed", [0])
def test_random_kills_and_restarts(ddprun, undisturbed, seed, request):
    """With --soak S: kill a rank of a job at a random moment, again and again for S seconds."""
    seconds = request.config.getoption("--soak")
    if not seconds:
        pytest.skip("takes long: pass --soak SECONDS")
    chance = random.Random(seed)
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        phase, rank = chance.choice(PHASES), chance.randrange(2)
        action = f"time.sleep({chance.random() / 10}); os.kill(os.getpid(), {int(signal.SIGKILL)})"
        run = ddprun.run("-n", "2", "--max-restarts", "1", TRAIN, phase, str(rank), action)
        assert run.code == 0 and result(run) == undisturbed, (phase, rank, action, run.err)
        shutil.rmtree(ddprun.folder / "checkpoints")
        rounds += 1
    assert rounds
