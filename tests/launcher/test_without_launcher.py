"""Ranks that nobody watches: the report of a failure is that of mpirun's ranks, and no rank is left."""

import sys
from pathlib import Path

import pytest
from matrices import thinned
from running import WITHOUT_DDPRUN

BY_HAND = Path(__file__).parents[1] / "helpers" / "started_by_hand.py"


@pytest.mark.parametrize("how", thinned(WITHOUT_DDPRUN, "killed"))
def test_ranks_started_by_hand_report_who_failed(ddprun, how):
    ddprun.check_without([sys.executable, str(BY_HAND), "3", "script.py"], how)
