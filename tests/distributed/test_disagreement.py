"""Six ways in which one rank can differ, on every transport: one message that shows both sides, and never a wrong sum."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from matrices import thinned

PROGRAM = "disagreeing.py"


def line_of(text: str) -> str:
    """Where the program says `text`, as messages show it."""
    lines = Path(__file__).with_name(PROGRAM).read_text().splitlines()
    return rf"disagreeing\.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


WEIGHT = r"all_reduce\(sum\) of float32\[8\] at .*" + line_of("all_reduce(weight, op)")
# fault: what the last rank calls, and what the others call
SIDES = {
    "swapped order": (r"all_reduce\(sum\) of float32\[8\] at .*" + line_of("all_reduce(bias)"), WEIGHT),
    "shape": (r"all_reduce\(sum\) of float32\[2, 4\] at", WEIGHT),
    "dtype": (r"all_reduce\(sum\) of int32\[8\] at", WEIGHT),
    "op": (r"all_reduce\(max\) of float32\[8\] at", WEIGHT),
    "missing call": (r"all_reduce\(sum\) of float32\[8\] at .*", WEIGHT),
    "early exit": ("rank 3 has finished its program", WEIGHT),
}


@pytest.fixture
def outcome(request) -> Callable[[str, str], tuple[bool, str]]:
    """`outcome(transport, fault)` runs four ranks: whether the job failed, and all that it printed."""

    def run(transport: str, fault: str) -> tuple[bool, str]:
        if transport in ("virtual", "shm"):
            procs = 1 if transport == "virtual" else 4
            ended = request.getfixturevalue("start_job")(4, procs, PROGRAM, fault, "auto").ended()
            return any(process.code for process in ended), "".join(process.output for process in ended)
        hosts = ["2"] if transport == "hierarchical" else []
        ended = request.getfixturevalue("mpi_job")(4, 4, PROGRAM, fault, transport, *hosts)
        return ended.code != 0, ended.output

    return run


@pytest.mark.parametrize(
    ("transport", "fault"),
    thinned(
        product(["virtual", "shm", "mpi", "hierarchical"], SIDES),
        "virtual",
        ("shm", "swapped order"),
        ("mpi", "dtype"),
        ("hierarchical", "early exit"),
    ),
)
def test_both_sides_are_shown_and_nothing_is_summed(outcome, transport, fault):
    failed, output = outcome(transport, fault)
    assert failed
    assert "summed" not in output
    last, others = SIDES[fault]
    if fault == "early exit":
        told = rf"RankFailedError: {last}\. Others wait:\n  ranks? 0.*: {others}"
    else:
        told = (
            r"MismatchError: the ranks are about to do different things in collective number \d+; rank 3 is the first "
            rf"that differs .*\n  ranks 0-2: {others}\n  rank 3: {last}"
        )
    assert re.search(told, output), output


def test_mpi_itself_returns_wrong_sums_where_dtypes_differ(mpi_job):
    """Why all this is done: the same fault, told by nobody."""
    ended = mpi_job(2, 2, PROGRAM, "plain", "mpi")
    assert ended.code == 0, ended.output
    sums = re.findall(r"summed: \[([-\d.]+)", ended.output)
    assert len(sums) == 2
    assert any(float(total) != 2.0 for total in sums), ended.output
