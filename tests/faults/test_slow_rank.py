"""A straggler, ten times as slow as the others: it is named, and the job goes on."""

import re

import pytest
from patience import patience

from ddpgrad.distributed.failure.watchdog import Progress
from ddpgrad.launcher.job.straggler import StragglerDetector

# It goes on until the sentence has been said: under load that takes longer.
SCRIPT = """
open(f"ready-{rank}", "w").close()
for step in range(int(200 / SECONDS)):
    time.sleep(SECONDS if rank == SLOW else SECONDS / 10)
    named = np.array([os.path.exists("named")], np.float32)
    me.communicator().all_reduce(named)
    if named[0]: break
print("done")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("slow", "seconds"),
    [(0, 0.4), (2, 0.05), (1, 0.025)],  # a share of the cores may come 10 ms late
)
def test_a_slow_rank_is_named_and_left_alone(ddprun, slow, seconds):
    seconds *= patience() / 4  # what others take of the cores is no news
    script = ddprun.script(SCRIPT.replace("SLOW", str(slow)).replace("SECONDS", str(seconds)))
    job = ddprun.start("-n", "3", "--watchdog", "10", script)
    said = []
    for line in job.stderr:
        said.append(line)
        if "is slow" in line:
            (ddprun.folder / "named").touch()
    result = ddprun.end(job)
    assert result.code == 0, said
    assert result.out.count("done") == 3
    named = [line for line in said if "is slow" in line]
    assert len(named) == 1 and named[0].startswith(
        f"ddprun: rank {slow} is slow: the others were waiting for it in "
    )
    assert re.search(r"it last began all_reduce\(\w+\) of float32\[1\] at ", named[0])


class Job:
    """Heartbeats of ranks that wait for `shares` of their time, in steps of `step` seconds."""

    def __init__(self, step: float) -> None:
        self.stragglers = StragglerDetector(10)
        self.step = step
        self.now = 0.0
        self.waited: dict[int, float] = {}

    def goes_on(self, seconds: float, *shares: float) -> list[str]:
        """The sentences about stragglers meanwhile."""
        said = []
        for _ in range(round(seconds * 5)):
            self.now += 0.2
            ranks = {}
            for rank, share in enumerate(shares):
                self.waited[rank] = self.waited.get(rank, 0.0) + 0.2 * share
                counters = (1 + int(self.now / self.step), 0, 0)
                ranks[rank] = Progress(rank, counters, heartbeat_at=self.now, waited=self.waited[rank])
            said += [text for _ in ranks if (text := self.stragglers.update(ranks))]
        return said


@pytest.mark.parametrize("step", [0.01, 0.3])
def test_who_others_wait_for_is_slow_and_said_to_be_so_once(step):
    job = Job(step)
    assert job.goes_on(4, 0.9, 0.02, 0.9) == []  # it has to last
    said = job.goes_on(60, 0.9, 0.02, 0.9)
    assert len(said) == 1 and said[0].startswith(
        "rank 1 is slow: the others were waiting for it in 90% of the last"
    )


@pytest.mark.parametrize(
    "shares",
    [(0.0, 0.0, 0.0), (0.6, 0.5, 0.6), (0.3, 0.02, 0.3), (0.9,)],
    ids=["nobody waits", "cores are shared", "a little slower", "alone"],
)
def test_nobody_is_called_slow_without_cause(shares):
    assert Job(0.01).goes_on(60, *shares) == []


def test_who_is_late_in_turns_or_once_is_not_slow():
    job = Job(0.01)
    for _ in range(10):
        assert job.goes_on(3, 0.9, 0.02) == []
        assert job.goes_on(3, 0.02, 0.9) == []
    once = Job(60.0)  # the others wait for a minute for what one prepares
    assert once.goes_on(59, 0.9, 0.0) == []
    once.step = 0.01
    assert once.goes_on(60, 0.0, 0.0) == []
