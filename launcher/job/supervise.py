"""Watches a running job from start to end: when a rank fails, or a signal comes, every rank is ended."""

from __future__ import annotations

import enum
import selectors
import signal
import time
from dataclasses import dataclass

from ddpgrad.distributed.failure import blame, exit_codes, leftovers, watchdog
from ddpgrad.distributed.failure.channel import BEAT_S, STACKS_SIGNAL, Failure
from ddpgrad.distributed.failure.logs import Logs
from ddpgrad.distributed.failure.watchdog import Stall

from . import mpi, slurm, spawn
from .cleanup import Guardian
from .members import Member, Members
from .plan import Plan
from .relay import Relay
from .restart import Restarts
from .signals import Signals
from .spawn import Process
from .straggler import Laggard

# Between the first failure and the end of all ranks: time for the others to say what they saw.
_SETTLE_S = 0.3
# While all that is known is that a rank lost a peer: time for the peer's own failure to show.
_SETTLE_VICTIM_S = 3.0
# Between asking for stacks and SIGTERM.
_STACKS_S = 1.0
# Between a signal to ddprun and SIGTERM: time for the ranks to write a checkpoint.
_SIGNAL_GRACE_S = 30.0
# Between SIGTERM and SIGKILL; and for mpiexec, which cleans up, after its ranks were killed.
_GRACE_S = 2.0
_GRACE_MPIEXEC_S = 0.5
# After all that: time for the agents of a host to show that it is still there.
_LAST_WORD_S = 5.0

_NEVER = float("inf")


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    code: int
    """ddprun's exit code."""
    failure: Failure | None = None
    """The first failure, unless the job ended otherwise."""
    steps: int = 0
    """The optimizer steps that the rank behind all others had finished."""
    lost: tuple[str, ...] = ()
    """The hosts that are not there any more."""


def run(plan: Plan) -> int:
    """Start `plan`'s processes, watch them until all have ended, and return ddprun's exit code.

    After a failure they are started again as often as `plan` allows and it makes sense (see restart.py).
    """
    # On Linux this is epoll, which reports events in the order in which they happened: the process
    # that died first is heard of first, even when mpiexec has killed the others in the meantime.
    with (
        selectors.DefaultSelector() as selector,
        Signals(selector) as signals,
        Logs(plan.log_dir) as logs,
    ):
        restarts = Restarts(plan)
        if plan.nodes is not None:
            plan.nodes.watch(selector, signals.pending.append)
        while True:
            outcome = _Supervisor(plan, selector, signals, logs).run()
            following = restarts.after(plan, outcome.failure, outcome.steps, outcome.lost)
            if following is None or not restarts.pause(selector, signals):
                return outcome.code
            plan = following


class _Stage(enum.IntEnum):
    """How far the job has been brought to its end."""

    RUNNING = 0
    ASKED = 1  # everybody got SIGTERM
    RANKS_KILLED = 2  # ... and the ranks SIGKILL
    ALL_KILLED = 3  # ... and mpiexec, too


class _Supervisor:
    def __init__(self, plan: Plan, selector: selectors.BaseSelector, signals: Signals, logs: Logs) -> None:
        self._plan = plan
        self._selector = selector
        self._signals = signals
        self._logs = logs
        self._relay = Relay(selector, logs, plan.screen)
        self._members = Members(plan, selector, self._on_failure)
        self._laggard = Laggard(plan.watchdog)
        if plan.procs == plan.world_size:
            self._members.on_beat = self._on_beat
        self._member_of: dict[Process, Member] = {}  # mpiexec is none
        self._processes: list[Process] = []
        self._running: list[Process] = []
        self._guardian: Guardian | None = None
        self._failures: list[Failure] = []
        self._lost: dict[str, range] = {}
        self._stopped_by: signal.Signals | None = None
        self._stall: Stall | None = None
        self._stage = _Stage.RUNNING
        self._asked_at = _NEVER
        self._next_stage_at = _NEVER

    def run(self) -> Outcome:
        code = exit_codes.RANK_FAILED
        try:
            self._start()
            while self._running:
                self._wait(min(self._next_stage_at, self._next_look()))
                self._look_for_a_stall()
                for process in self._running[:]:
                    self._look_after(process)
                self._act_on_signals()
                if self._relay.broken:
                    self._end_by(time.monotonic())  # as programs do whose reader has left
                while time.monotonic() >= self._next_stage_at:
                    self._enter(_Stage(self._stage + 1))
            if self._plan.mpi and self._stopped_by is None:
                self._judge_starter()
            code = self._conclude()
        finally:
            self._clean_up(code)
        # Only now: a reader may take for ever.
        while self._relay.waiting and not self._signals.pending:
            self._wait(_NEVER)
        failed = bool(self._failures) and self._stopped_by is None
        first = blame.first_failure(self._failures) if failed else None
        steps = min((place.steps for place in self._members.progress().values()), default=0)
        return Outcome(code, first, steps, tuple(self._lost))

    def _next_look(self) -> float:
        """When to look for a stall again."""
        if self._plan.watchdog is None or self._stage != _Stage.RUNNING:
            return _NEVER
        soon = time.monotonic() + BEAT_S
        return max(soon, watchdog.next_look(self._members.at_work(), self._plan.watchdog))

    def _look_for_a_stall(self) -> None:
        if self._plan.watchdog is not None and self._stage == _Stage.RUNNING and not self._failures:
            self._on_stall(watchdog.find(self._members.at_work(), self._plan.watchdog, time.monotonic()))

    def _on_stall(self, stall: Stall | None) -> None:
        """Ask all processes for their stacks, and end them when they had time to answer."""
        if stall is None or self._stall is not None or self._stopped_by is not None:
            return
        self._stall = stall
        self._members.send(STACKS_SIGNAL)
        self._end_by(time.monotonic() + _STACKS_S)

    def _on_beat(self, rank: int) -> None:
        if slow := self._laggard.heard(self._members.progress()):
            self._relay.say(f"ddprun: {slow}.\n")

    def _start(self) -> None:
        if self._plan.mpi:
            starter = slurm if self._plan.slurm else mpi
            self._processes = [starter.start(self._plan, self._members.listen())]
        else:
            self._processes = spawn.start(self._plan)
        self._running = self._processes[:]
        if not self._plan.mpi:  # there every process has an agent that does this
            self._guardian = Guardian(self._plan.job, [process.popen.pid for process in self._processes])
        for process in self._processes:
            self._relay.attach(process)
            if process.report is not None:
                self._member_of[process] = self._members.add(process.report, process.ranks, process.popen.pid)

    def _wait(self, until: float) -> None:
        """Sleep until something happens, but not beyond `until`; whoever is concerned deals with it."""
        until = min(until, self._relay.prepare())
        timeout = None if until == _NEVER else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data(key.fd)

    def _look_after(self, process: Process) -> None:
        """Judge `process` if it has ended."""
        status = process.ended()
        if status is None:
            return
        self._running.remove(process)
        self._relay.detach(process)
        member = self._member_of.get(process)
        if member is not None:
            self._members.ended(member, status)
        else:
            self._members.read_all()

    def _on_failure(self, failure: Failure) -> None:
        if failure.time > self._asked_at:
            return  # that is how a rank ends that was asked to
        self._failures.append(failure)
        if failure.cause == "stall" and failure.blames:
            self._on_stall(Stall(failure.blames, failure.error))
        if self._stopped_by is None:
            settle = _SETTLE_VICTIM_S if failure.victim else _SETTLE_S
            self._end_by(time.monotonic() + settle)

    def _act_on_signals(self) -> None:
        while self._signals.pending:
            number = self._signals.pending.pop(0)
            if self._stopped_by is not None or self._failures:
                for stage in _Stage.RANKS_KILLED, _Stage.ALL_KILLED:
                    self._enter(stage)
                return
            self._stopped_by = number
            # Before mpiexec's ranks have reported there is nobody to tell, and nothing to save.
            self._end_by(time.monotonic() + (_SIGNAL_GRACE_S if len(self._members) else 0.0))
            if number == signal.SIGINT:
                self._relay.say(
                    f"ddprun: interrupted; the ranks have {_SIGNAL_GRACE_S:.0f} s to end. "
                    "Ctrl-C again ends them at once.\n"
                )
            # Only the ranks are told: what they have started is theirs to end.
            self._members.send(signal.SIGTERM if number == signal.SIGHUP else number)

    def _judge_starter(self) -> None:
        """Judge mpiexec or srun, which has ended, and whether a host was lost: all the rest is a consequence of that.

        Agents that were ended with it may have something to say yet.
        """
        until = time.monotonic() + _LAST_WORD_S
        while time.monotonic() < until and not self._signals.pending:
            failed = self._failures or self._stall is not None
            if not (self._members.awaits_word() if failed else self._members.at_work()):
                break
            self._wait(until)
        [starter] = self._processes
        status = starter.ended()
        assert status is not None
        well = status == 0 and (self._members.all_done() or self._members.preempted() is not None)
        if not self._failures and not well:
            name = "srun" if self._plan.slurm else "mpiexec"
            self._on_failure(blame.starter_failed(name, status, len(self._members), self._plan.procs))
        if self._failures or self._stall is not None:
            self._lost = self._members.lost()

    def _end_by(self, when: float) -> None:
        """See to it that the ranks are asked to end at `when` (monotonic seconds), or before."""
        if self._stage == _Stage.RUNNING:
            self._next_stage_at = min(self._next_stage_at, when)

    def _enter(self, stage: _Stage) -> None:
        """Bring the job one step nearer to its end."""
        self._stage = stage
        now = time.monotonic()
        self._next_stage_at = _NEVER
        if stage == _Stage.ASKED:
            self._asked_at = now
            self._next_stage_at = now + _GRACE_S
            if self._plan.mpi and len(self._members):
                # Their agents end them, and clean up. mpiexec would be quicker, and leave files behind.
                self._members.send(signal.SIGTERM)
            else:
                for process in self._processes:
                    process.send_group(signal.SIGTERM)
            # One that is stopped hears both signals only now, and says where it stood before it ends.
            self._members.send(signal.SIGCONT)
        elif stage == _Stage.RANKS_KILLED:
            self._asked_at = min(self._asked_at, now)
            self._next_stage_at = now + _GRACE_MPIEXEC_S
            self._members.send(signal.SIGKILL)
        else:
            for process in self._processes:
                process.send_group(signal.SIGKILL)

    def _conclude(self) -> int:
        """Say how the job ended, last on the screen, and return the exit code."""
        if self._stall is not None and not self._members.all_done():
            told = self._members.progress(), self._members.crash_texts()
            self._failures.append(blame.stalled(self._stall, *told))
        if self._failures and self._lost:
            self._failures = blame.hosts_lost(self._lost, self._failures, self._members.progress())
        step = self._members.preempted()
        if step is not None:
            self._relay.say(f"ddprun: preempted after step {step}, whose checkpoint is saved.\n")
            return exit_codes.PREEMPTED
        if self._stopped_by is not None:
            self._relay.say(blame.describe_signal(self._stopped_by, self._failures))
            return 128 + self._stopped_by
        if self._failures:
            code = exit_codes.OF_CAUSE[blame.first_failure(self._failures).cause]
            known = self._members.progress(), self._members.crash_texts()
            self._logs.failure(self._failures, code, *known, self._plan.restart_count)
            self._relay.say(self._logs.complaint + blame.describe(self._failures, self._logs.folder))
            return code
        if self._relay.broken:
            self._relay.say("ddprun: nobody reads the output any more; all ranks were ended.\n")
            return exit_codes.RANK_FAILED
        return exit_codes.FINISHED

    def _clean_up(self, code: int) -> None:
        """Leave nothing of the job behind: no process, no shared memory."""
        for process in self._processes:
            if code != 0:  # what a rank started and left running when it failed
                process.send_group(signal.SIGKILL)
            process.reap()
        self._members.close()
        leftovers.remove(self._plan.job)
        if self._guardian is not None:
            self._guardian.dismiss()
