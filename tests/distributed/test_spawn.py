"""Which of the processes of `mp.spawn` is named when several fail."""

import multiprocessing as mp
from typing import Any

import pytest

import ddpgrad.multiprocessing as spawning


class Failed:
    """A process with exit code 1, which is seen to run the first `looks` times."""

    pid = 1

    def __init__(self, looks: int, *told: Any) -> None:
        self.looks = looks
        self.sentinel, ended = mp.Pipe(duplex=False)
        self.report, report = mp.Pipe(duplex=False)
        ended.send(None)
        report.send(told)

    @property
    def exitcode(self) -> int | None:
        self.looks -= 1
        return 1 if self.looks < 0 else None

    def join(self, timeout: float | None = None) -> None:
        pass

    terminate = kill = join


@pytest.mark.parametrize("looks", range(8))
def test_the_cause_is_named_though_it_ends_while_one_looks(looks):
    processes: list[Any] = [Failed(0, True, "rank 1 failed"), Failed(looks, False, "on purpose")]
    context = spawning.ProcessContext(processes, [process.report for process in processes])
    with pytest.raises(spawning.ProcessRaisedException, match="on purpose") as caught:
        context.join()
    assert caught.value.error_index == 1


@pytest.mark.parametrize("looks", range(8))
def test_a_failure_is_seen_whenever_it_happens(looks):
    process: Any = Failed(looks, False, "on purpose")
    context = spawning.ProcessContext([process], [process.report])
    with pytest.raises(spawning.ProcessRaisedException, match="on purpose"):
        while not context.join():
            pass
