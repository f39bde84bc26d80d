"""A few draws of the campaign, and that it leaves out no row of the documented table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaign import Campaign
from campaign_draws import draw
from campaign_table import FAULTS, TESTS

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


@pytest.mark.parametrize("count", [6, pytest.param(FULL, marks=pytest.mark.full)])
def test_draws_pass(tmp_path, count):
    numbers = [number for number in range(2 * FULL) if not draw(SEED, number).test][:count]
    wrong = [
        f"{number}: {draw(SEED, number)}\n{said}"
        for number, said in Campaign(SEED, tmp_path).all(numbers, 2)
        if said
    ]
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong)
