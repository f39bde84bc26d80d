"""What runs where and in how many processes, devices by parameter, and a check that a test leaves no global state."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ddpgrad

HERE = Path(__file__).parent
sys.path += [str(HERE / "helpers"), str(HERE.parent / "cluster"), str(HERE / "fake_cuda")]

import browser  # noqa: E402
import fakecuda  # noqa: E402
import fakecuda.coverage  # noqa: E402
import namespaces  # noqa: E402

# Under `nohup ... &` it would be ignored here and, inherited, in the jobs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where this is set, as in many containers, every rank would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests here start processes and wait for them. They come first: what computes fills the rest.
SLOW = (
    "distributed", "examples", "faults", "launcher", "test_code_blocks.py", "test_tutorial.py", "utils",
)  # fmt: skip
# Before them come the files that take longest, so that no worker is left alone with one; and those whose tests share nothing
# that takes long to make are spread test by test.
SPREAD = (
    "faults/test_campaign.py", "parity/test_distributed_judge.py", "parity/test_fully_shard_parity.py",
    "parity/test_library_programs.py",
)  # fmt: skip
LONG = (*SPREAD, "parity/test_distributed_programs.py", "test_proof.py")


def _cuda_missing() -> str | None:
    """Why there is no CUDA device here, or None."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    return None if ddpgrad.cuda.is_available() else "no CUDA device"


# By mark: why its tests are left out unless `-m` names it; None where they can run.
WHY_NOT: dict[str, Callable[[], str | None]] = {
    "full": lambda: "minutes",
    "gpu": _cuda_missing,
    "fakegpu": lambda: fakecuda.why_not() or "minutes",
    "torch": lambda: "minutes, too",
    "slurm": lambda: None if shutil.which("salloc") else "no Slurm",
    "netns": namespaces.why_not,
    "chromium": lambda: None if browser.program() else "no Chromium",
    "mpi": lambda: "test_start_the_marked_tests runs them",
}
PARITY = HERE / "parity"
LEFT_OUT = pytest.StashKey[str]()
KERNELS = pytest.StashKey[str]()  # of the CUDA backend, run and not run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", type=float, default=10.0, metavar="S", help="seconds of random kills and restarts"
    )


def _asked(config: pytest.Config) -> set[str]:
    """The marks that the command line names; a path into tests/parity asks for PyTorch, too."""
    into_parity = any("parity" in argument for argument in config.args)
    return {*re.findall(r"\w+", config.option.markexpr), *(["torch"] if into_parity else [])}


def _on_stand_in(config: pytest.Config) -> bool:
    """Whether `-m fakegpu` is asked for, and can be had: then GPUs here are the CPU's threads."""
    return "fakegpu" in _asked(config) and fakecuda.why_not() is None


def pytest_configure(config: pytest.Config) -> None:
    """Before a test file imports CuPy, or Hypothesis, whose draws are always the same but for `-m full`."""
    if find_spec("hypothesis") is not None:
        from hypothesis import HealthCheck, settings

        # No time limits: what runs beside the tests would decide.
        lenient = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
        repeated = "full" not in _asked(config)
        settings.register_profile("tests", deadline=None, derandomize=repeated, suppress_health_check=lenient)
        settings.load_profile("tests")
    if _on_stand_in(config):
        fakecuda.activate()
        if not hasattr(config, "workerinput"):
            os.environ["FAKE_CUDA_LOG"] = tempfile.mkstemp(prefix="fake-cuda-", suffix=".log")[1]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A whole run on the stand-in launches every kernel of the CUDA backend."""
    config = session.config
    if not _on_stand_in(config):
        return
    fakecuda.log()
    if not hasattr(config, "workerinput"):
        log = Path(os.environ.pop("FAKE_CUDA_LOG"))
        config.stash[KERNELS], missing = fakecuda.coverage.report(log)
        log.unlink()
        if missing and config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _under_mpi(config: pytest.Config) -> bool:
    return config.getoption("only_mpi", False) or config.getoption("with_mpi", False)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread the files over pytest-xdist's workers, some more than cores, as tests wait much of their time.

    Not where `-n` says how many, nor for one file, a debugger, `-s`, or under mpiexec.
    """
    option = config.option
    if hasattr(config, "workerinput") or getattr(option, "numprocesses", 0) is not None:
        return
    one = len(config.args) == 1 and ".py" in config.args[0]
    if not (one or option.usepdb or option.trace or option.capture == "no" or _under_mpi(config)):
        asked = _asked(config)
        # On the stand-in a few files have nearly all tests.
        option.dist = "load" if "fakegpu" in asked else "loadfile"
        more = 3 if "full" in asked else 1 if asked & {"torch", "fakegpu"} else 2
        option.numprocesses = len(os.sched_getaffinity(0)) + more
        option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker gets a file at a time, and of those in SPREAD a test."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file.endswith(SPREAD) else file

    return Scheduling(config, log)


def _place(item: pytest.Item) -> int:
    """When a test's turn is: a smaller number comes first."""
    path = item.path.relative_to(HERE)
    return 0 if str(path) in LONG else 1 if path.parts[0] in SLOW else 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To import what compares with PyTorch takes half a minute."""
    wanted = "torch" in _asked(config) and find_spec("torch") is not None
    return True if collection_path == PARITY and not wanted else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot run here or takes long, unless its mark or a single test is asked for.

    What needs a GPU runs on the stand-in, too, when that is asked for.
    """
    for item in items:
        if "fakegpu" in _asked(config) and item.get_closest_marker("gpu"):
            item.add_marker("fakegpu")
    items.sort(key=_place)
    if _under_mpi(config) or any("::" in argument for argument in config.args):
        return
    asked = _asked(config) - ({"fakegpu"} if fakecuda.why_not() else set())
    why = {mark: reason for mark, ask in WHY_NOT.items() if mark not in asked and (reason := ask())}
    marks = [next((mark for mark in why if item.get_closest_marker(mark)), "") for item in items]
    config.hook.pytest_deselected(items=[item for item, mark in zip(items, marks, strict=True) if mark])
    items[:] = [item for item, mark in zip(items, marks, strict=True) if not mark]
    left = [f"{count} {mark} ({why[mark]})" for mark, count in Counter(marks).items() if mark]
    if "torch" in why:
        left.append("tests/parity")
    elif find_spec("torch") is None:
        left.append("tests/parity (PyTorch is not installed)")
    config.stash[LEFT_OUT] = ", ".join(left)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[LEFT_OUT]


def pytest_collection_finish() -> None:
    """Thousands of tests and what they import stay till the end: to look through them took most of the time of
    `gc.collect` and of captured steps, which look for tensors."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All workers leave out the same; what one of them says is shown."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(LEFT_OUT, ""):
        terminalreporter.write_line(f"left out: {left}; `pytest -m MARK` runs them")
    if kernels := config.stash.get(KERNELS, ""):
        terminalreporter.write_line(kernels)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device kind in turn; skips where there is none."""
    if request.param == "cuda" and (reason := _cuda_missing()):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def mpiexec() -> str:
    """MPICH's or Open MPI's mpiexec, whichever is installed."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip('no mpiexec: pip install "ddpgrad[mpich]"')
    return found


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test must leave grad mode, default dtype and process group as it found them."""
    ddpgrad.manual_seed(0)
    dtype = ddpgrad.get_default_dtype()
    program = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = program  # of which scripts that ran in this process have taken the place
    assert ddpgrad.is_grad_enabled(), "the test left grad mode off"
    assert ddpgrad.get_default_dtype() is dtype, "the test changed the default dtype"
    assert not ddpgrad.distributed.is_initialized(), "the test left a process group behind"
