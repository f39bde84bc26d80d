"""A few draws of the campaign, and that it leaves out no row of the documented table."""

import re
from itertools import product
from pathlib import Path

import pytest
from campaign import Campaign
from campaign_draws import Draw, Planted, draw
from campaign_table import FAULTS, TESTS
from matrices import thinned

ROOT = Path(__file__).parents[2]
SEED = 15
FULL = 60


def test_every_row_of_the_table_is_drawn():
    table = (ROOT / "docs" / "failures.md").read_text().partition("| fault |")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^\| (.*?) \| .*tests|^\| (.*?) \|.*`(?:launcher|faults)/", table)
    rows = [first or second for first, second in rows]
    assert len(rows) > 30
    drawn = {fault.row for fault in FAULTS.values()} | {*TESTS}
    assert [row for row in rows if not any(row.startswith(one) for one in drawn)] == []
    assert [one for one in drawn if not any(row.startswith(one) for row in rows)] == []


def test_a_lap_holds_every_fault_and_a_draw_is_always_the_same():
    lap = [draw(SEED, number) for number in range(len(FAULTS) + len(TESTS))]
    assert {planted.name for one in lap for planted in one.planted[:1]} == {*FAULTS}
    assert {one.test for one in lap} - {""} == {*TESTS.values()}
    assert lap == [draw(SEED, number) for number in range(len(lap))]


RUNS = [number for number in range(2 * FULL) if not draw(SEED, number).test][:FULL]


@pytest.mark.parametrize("numbers", thinned([(RUNS[2:4],), (RUNS,)], RUNS[2:4]), ids=len)
def test_draws_pass(tmp_path, mpiexec, numbers):
    wrong = [
        f"{number}: {draw(SEED, number)}\n{said}"
        for number, said in Campaign(SEED, tmp_path).all(numbers, 2)
        if said
    ]
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    return Campaign(SEED, tmp_path_factory.mktemp("campaign"))


STEP = ("forward", "backward", "mid-bucket", "optimizer", "save")
PHASES = ("import", "init", *STEP, "shutdown")
HOSTING = ("procs", "one process", "mpi")
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
CHOSEN = [  # mode, ranks, fault, phase, rank, restarts
    ("processes", 2, "SIGKILL", "import", 0, 1),
    ("processes", 2, "SIGKILL", "shutdown", 1, 0),
    ("processes", 2, "preempted by SIGUSR1", "optimizer", 1, 0),
    ("processes", 2, "SIGTERM, nothing saved", "init", 1, 0),
    ("processes", 2, "worker killed", "worker", 1, 0),
]
OTHERS = [
    ("processes", 2, "exit 0", "step", 1, 0),
    ("processes", 2, "exception", "step", 1, 0),
    ("processes", 2, "other op", "step", 1, 0),
    ("mpi", 3, "exception", "step", 1, 0),
    ("debug", 4, "other op", "step", 1, 0),
    ("debug", 4, "_exit 0", "step", 1, 0),
    # A rank that is killed: every pair of phase, rank and restarts, and every phase beside another way of hosting ranks.
    *(("processes", 2, "SIGKILL", phase, (i + r) % 2, r) for i, phase in enumerate(PHASES) for r in (0, 1)),
    *(
        (mode, 4, "SIGKILL", phase, 3, 1)
        for i, mode in enumerate(HOSTING)
        for phase in ("init", *STEP)[i % 2 :: 2]
    ),
    *product(["processes"], [2], ["_exit 0", "other shape"], ["step"], [1], [0]),
    *(("processes", 2, f"preempted by {SIGNALS[i % 3]}", phase, 0, 0) for i, phase in enumerate(STEP)),
    *product(
        ["processes", "procs", "mpi"],
        [4],
        ["exception", "exit 1", "_exit 0", "other op", "late"],
        ["step"],
        [1],
        [0],
    ),
    *product(["debug"], [4], ["exception", "exit 1"], ["step"], [1], [0]),
    ("processes", 2, "SIGTERM, nothing saved", "import", 1, 0),
    ("mpi", 3, "SIGINT twice", "step", 0, 0),
    ("processes", 2, "worker raises", "worker", 1, 0),
    ("processes", 2, "worker stalls", "worker", 1, 0),
    ("processes", 2, "goes on at last", "step", 1, 0),
]


@pytest.mark.parametrize(
    ("mode", "ranks", "name", "phase", "rank", "restarts"),
    thinned(dict.fromkeys((*CHOSEN, *OTHERS)), *CHOSEN),
)
def test_chosen_faults(campaign, tmp_path, request, mode, ranks, name, phase, rank, restarts):
    if mode == "mpi":
        request.getfixturevalue("mpiexec")
    planted = Planted(name, phase, 1 if phase == "worker" else 3, rank)
    drawn = Draw(mode, ranks, (planted,), restarts, workers=int(phase == "worker"))
    assert not (said := campaign.tried(drawn, tmp_path.name)), f"{drawn}\n{said}"
