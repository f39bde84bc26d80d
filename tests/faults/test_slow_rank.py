"""A rank that is ten times as slow as the others, but alive: nothing is ended, and it is named."""

from __future__ import annotations

import pytest

from launcher.laggard import Laggard
from launcher.watchdog import Progress

SCRIPT = """
for step in range(20):
    time.sleep(0.8 if rank == SLOW else 0.08)
    wait()
print("done")
"""


@pytest.mark.parametrize("slow", [0, 2])
def test_a_slow_rank_is_named_and_left_alone(ddprun, slow):
    result = ddprun.run("-n", "3", "--watchdog", "10", ddprun.script(SCRIPT.replace("SLOW", str(slow))))
    assert result.code == 0, result.err
    assert result.out.count("done") == 3
    named = [line for line in result.said if "is slow" in line]
    assert len(named) == 1 and named[0].startswith(
        f"ddprun: rank {slow} is slow: the others were waiting for it in "
    )
    assert "barrier at" in named[0]


def progress(*collectives: int) -> dict[int, Progress]:
    return {rank: Progress(rank, (count, 0, 0)) for rank, count in enumerate(collectives)}


def heard(beats: list[dict[int, Progress]]) -> list[str]:
    """What is said, when the last beat of all comes after the window has passed."""
    laggard = Laggard(None)
    said = []
    for number, ranks in enumerate(beats):
        if number == len(beats) - 1:
            laggard._since -= 100
        said += [text for rank in ranks if (text := laggard.heard(rank, ranks))]
    return said


def test_who_is_behind_in_most_beats_is_slow():
    behind = [progress(n + 1, n, n + 1) for n in range(20)]
    assert len(heard(behind)) == 1 and "rank 1 is slow" in heard(behind)[0]
    assert heard([progress(n, n, n) for n in range(20)]) == []
    assert heard([progress(n + n % 2, n + 1 - n % 2) for n in range(20)]) == []  # in turns
    assert heard([progress(n) for n in range(20)]) == []
