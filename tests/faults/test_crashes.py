"""A rank that dies in any phase: the job ends in time, the rank is named, and a restart gives the same bits."""

from __future__ import annotations

from itertools import product

import pytest
from matrices import thinned
from patience import patience
from training import TRAIN, result, run_undisturbed

PHASES = ["import", "init", "forward", "backward", "mid-bucket", "optimizer", "save", "shutdown"]
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def undisturbed_4(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_undisturbed(tmp_path_factory.mktemp("undisturbed"), 4)


@pytest.mark.parametrize(
    ("phase", "rank"), thinned(product(PHASES, (0, 1)), ("import", 0), ("mid-bucket", 1))
)
def test_a_killed_rank_is_named_and_a_restart_gives_the_same_bits(ddprun, undisturbed, phase, rank):
    run = ddprun.run("-n", "2", "--max-restarts", "1", TRAIN, phase, str(rank), KILL)
    assert run.code == 0, run.err
    assert f"ddprun: rank {rank} failed (killed by SIGKILL); all ranks were ended." in run.err
    assert run.err.count("restarting in") == 1
    assert result(run) == undisturbed


@pytest.mark.parametrize(
    ("phase", "rank"), thinned(product(PHASES, (0, 1)), ("backward", 0), ("shutdown", 1))
)
def test_without_restarts_the_job_ends(ddprun, phase, rank):
    run = ddprun.run("-n", "2", TRAIN, phase, str(rank), KILL)
    assert run.code == 1
    assert run.said[-3] == f"ddprun: rank {rank} failed (killed by SIGKILL); all ranks were ended."


@pytest.mark.full
@pytest.mark.parametrize("way", [["--procs", "2"], ["--procs", "1"], ["--mpi"]], ids=" ".join)
@pytest.mark.parametrize("phase", PHASES[1:-1])
def test_the_same_where_processes_host_several_ranks_and_under_mpiexec(ddprun, undisturbed_4, way, phase):
    run = ddprun.run("-n", "4", *way, "--max-restarts", "1", TRAIN, phase, "3", KILL)
    assert run.code == 0, run.err
    assert run.err.count("restarting in") == 1
    assert result(run) == undisturbed_4


@pytest.mark.parametrize(
    ("action", "code", "reason"),
    thinned(
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
        "sys.exit(0)",
        "dist.all_reduce(torch.ones(3))",
    ),
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
    run = ddprun.run(
        "-n", "2", "--watchdog", str(5 * patience()), TRAIN, "step", "1", f"time.sleep({patience()})"
    )
    assert run.code == 0, run.err
    assert result(run) == undisturbed
