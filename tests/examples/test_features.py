"""The short examples, each on some ranks; one job runs several of them."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FEATURES = Path(__file__).parents[2] / "examples" / "features"
SEVERAL = Path(__file__).parents[1] / "jobs" / "several.py"


@cache
def said(ranks: int, procs: int, *examples: str) -> str:
    command = [
        sys.executable,
        "-m",
        "ddpgrad.launcher",
        "-n",
        str(ranks),
        "--procs",
        str(procs),
        str(SEVERAL),
    ]
    paths = [str(FEATURES / f"{example}.py") for example in examples]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def line(output: str, words: str) -> str:
    """The one line with these words."""
    [found] = [line.removeprefix("[rank 0] ") for line in output.splitlines() if words in line]
    return found


SAYS = {
    "accumulate": "running statistics", "buckets": "the same bits with other buckets: True", "diloco": "meetings",
    "exact_evaluation": "on 66 samples", "exact_mean": ", weights", "fully_shard": ", norm",
    "hybrid": "the bits of plain DDP: True", "one_decision": "of which 1 was left out",
    "overlapped_zero": "numbers of AdamW's state",
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_example_runs(ranks):
    assert SAYS.keys() == {path.stem for path in FEATURES.glob("*.py")}
    told = said(ranks, 2, *SAYS)
    assert [example for example, words in SAYS.items() if words not in told] == []


@pytest.mark.full
def test_exact_mean():
    """The same bits on one, two and four processes, and the loss that one rank reaches."""
    outputs = {said(4, procs, "exact_mean") for procs in (1, 2, 4)}
    assert len(outputs) == 1
    loss = outputs.pop().partition("loss ")[2][:6]
    assert f"loss {loss}," in said(1, 1, "exact_mean")


def test_two_ranks():
    told = said(2, 2, "fully_shard", "one_decision")
    assert "rank 0 keeps 2277 of 4554 parameters" in told
    assert "of which 1 was left out" in told and "medians of" in told


def test_the_number_of_processes_and_of_ranks_makes_no_difference():
    one, two = (said(4, procs, "accumulate", "diloco", "exact_evaluation") for procs in (1, 2))
    assert sorted(one.splitlines()) == sorted(two.splitlines())
    assert float(line(one, "meetings").partition("%")[0]) > 95
    # Of all samples, and as one rank computes it of the answers.
    found = re.match(r"loss ([\d.]+) on 66 samples; .* (\S+)$", line(one, "samples"))
    assert found and abs(float(found[1]) - float(found[2])) < 1e-6
    # One rank has eight micro-batches, of which four have two each.
    alone = said(1, 1, "accumulate")
    assert line(alone, "running statistics") == line(one, "running statistics")
