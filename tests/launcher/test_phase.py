"""The frames that tell the phase of a rank, and those of the machinery around a script."""

from pathlib import Path

import pytest

import ddpgrad
from ddpgrad.distributed.failure.phase import PHASES, TURNS, is_machinery, main_stack, phase_of, users_line
from ddpgrad.launcher.job import run_script

ROOT = Path(ddpgrad.__file__).parents[1]


@pytest.mark.parametrize("part", [part for part, _ in PHASES if not part.startswith(("<", "/"))] + [TURNS])
def test_the_paths_in_the_table_exist(part):
    assert (ROOT / part).is_dir() if part.endswith("/") else (ROOT / f"{part}.py").is_file()


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        (["nn/modules/linear.py", "nn/modules/module.py"], "forward"),
        (["autograd/walk.py", "autograd/engine.py"], "backward"),
        (["distributed/communicator/communicator.py", "distributed/ddp/reducer.py"], "collective"),
        (["distributed/ddp/reducer.py", "autograd/engine.py"], "backward, gradient exchange"),
        (["distributed/transports/shm/transport.py", "optim/sgd.py"], "optimizer, collective"),
        (["launcher/checkpoint/store.py", "launcher/checkpoint/checkpointer.py"], "checkpoint"),
        (["utils/data/iteration.py"], "data loading"),
        (["core/tensor.py"], ""),
    ],
)
def test_the_innermost_frame_that_is_known_decides(frames, phase):
    assert phase_of([(str(ROOT / "ddpgrad" / file), "f") for file in frames] + [("script.py", "f")]) == phase


@pytest.mark.parametrize(
    "part", ["launcher/job/run_script.py", "distributed/ranks/host.py", "nn/modules/module.py"]
)
def test_ddpgrad_is_machinery_also_behind_a_link(part):
    file = Path(ddpgrad.__file__).parent / part
    assert file.is_file()
    assert is_machinery(str(file)) and is_machinery(str(file.resolve()))


def test_the_launcher_is_no_users_code():
    places = [(str(Path(run_script.__file__).resolve()), 3), ("/home/user/launcher/job/run_script.py", 5)]
    assert users_line(places) == "/home/user/launcher/job/run_script.py:5"


def test_of_several_ranks_the_one_that_does_not_wait_for_its_turn_counts():
    def thread(number: int, *files: str) -> str:
        frames = "".join(f'  File "{file}", line {number} in f\n' for file in files)
        return f"Thread 0x{number:016x} (most recent call first):\n{frames}"

    waits = thread(1, str(ROOT / f"{TURNS}.py"), "/home/user/script.py")
    stack = main_stack(waits + thread(2, "/home/user/script.py"))
    assert stack is not None and stack.where == "/home/user/script.py:2"
    crash = thread(3, "/home/user/script.py").replace("Thread", "Current thread")
    stack = main_stack("Fatal Python error: Aborted\n\n" + thread(2, "/home/user/script.py") + crash)
    assert stack is not None and stack.where == "/home/user/script.py:3"
