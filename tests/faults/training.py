"""Starts the training run of train.py, and reads its result."""

from pathlib import Path

from running import Ddprun, Result

TRAIN = str(Path(__file__).parent / "train.py")


def result(run: Result) -> str:
    """The line with the losses, the order of samples and the parameters' digest."""
    return [line for line in run.out.splitlines() if "result" in line][-1]


def run_undisturbed(folder: Path, ranks: int) -> str:
    """The result of a run in which nothing goes wrong."""
    run = Ddprun(folder).run("-n", str(ranks), TRAIN)
    assert run.code == 0, run.err
    return result(run)
