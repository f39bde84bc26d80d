"""Which of the processes of `mp.spawn` is named when several fail, and what processes share."""

import multiprocessing as mp
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import ddpgrad as torch
import ddpgrad.multiprocessing as spawning
from ddpgrad import nn


class Failed:
    """A process with exit code 1, which is seen to run the first `looks` times."""

    pid = 1

    def __init__(self, looks: int, *told: Any) -> None:
        self.looks = looks
        self.sentinel, ended = mp.Pipe(duplex=False)
        self.report, report = mp.Pipe(duplex=False)
        ended.send(None)
        if told:
            report.send(told)
        else:
            report.close()

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


def test_a_process_that_ends_without_a_word_is_reported_with_its_exit_code():
    process: Any = Failed(0)
    context = spawning.ProcessContext([process], [process.report])
    with pytest.raises(spawning.ProcessExitedException, match="exit code 1") as caught:
        context.join()
    assert caught.value.exit_code == 1


@pytest.fixture
def importable(monkeypatch):
    """Spawned processes import this file."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def kill_the_last(i: int) -> None:
    if i == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("importable")
def test_a_process_that_is_killed_is_named_with_the_signal():
    with pytest.raises(spawning.ProcessExitedException, match="process 1 terminated with signal SIGKILL"):
        spawning.spawn(kill_the_last, nprocs=2)


def train(i: int, model: nn.Module, part: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    part.fill_(7)


@pytest.mark.usefixtures("importable")
def test_spawned_processes_share_what_lies_in_shared_memory():
    model, base = nn.Linear(2, 1).share_memory(), torch.zeros(4).share_memory_()
    before = [p.detach().clone() for p in model.parameters()]
    part = base[1:3]
    assert part.is_shared() and not part.clone().is_shared()
    spawning.spawn(train, (model, part))
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old - 0.5)
    assert base.tolist() == [0.0, 7.0, 7.0, 0.0]
    with pytest.raises(RuntimeError, match="non-leaf"):
        mp.reduction.ForkingPickler.dumps(torch.ones(1, requires_grad=True) * 2)  # type: ignore[attr-defined]
