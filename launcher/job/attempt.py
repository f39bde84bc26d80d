"""One attempt of a job, from start to end: when a rank fails, or a signal comes, it ends every rank."""

from __future__ import annotations

import enum
import functools
import selectors
import signal
import time
from dataclasses import dataclass, replace

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import blame, exit_codes, summary, watchdog
from ddpgrad.distributed.failure.channel import HEARTBEAT_S, Failure
from ddpgrad.distributed.failure.phase import is_busy
from ddpgrad.distributed.failure.stacks_signal import STACKS_SIGNAL
from ddpgrad.distributed.failure.watchdog import Stall

from . import job_files, mpi, slurm, spawn
from .cleanup import CleanupProcess
from .host_changes import HostChanges
from .hosts import spelt
from .logs import Logs
from .plan import Plan
from .processes import JobProcess, JobProcesses
from .relay import Relay
from .signals import Signals, handle_events
from .spares import Spares
from .spawn import Child
from .straggler import StragglerDetector
from .typed_input import TypedInput

# Between the first failure and the end of all ranks: time for the others to report.
_SETTLE_S = 0.3
# While only secondary failures are known: time for the first failure to be reported.
_SETTLE_SECONDARY_S = 3.0
# Between asking for stacks and SIGTERM.
_STACKS_S = 1.0
# Between a signal to ddprun and SIGTERM: time for the ranks to write a checkpoint.
_SIGNAL_GRACE_S = 30.0
# Between SIGTERM and SIGKILL; and for mpiexec, which cleans up, after its ranks were killed.
_GRACE_S = 2.0
_GRACE_MPIEXEC_S = 0.5
# After all that: time for the agents of a host to report, and to show that it is still there.
_AGENTS_S = 5.0

_NEVER = float("inf")


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    code: int
    """ddprun's exit code."""
    failure: Failure | None = None
    """The first failure, unless the job ended otherwise."""
    steps: int = 0
    """The optimizer steps that every rank had finished."""
    lost: tuple[str, ...] = ()
    """The hosts that were lost."""
    following: Plan | None = None
    """With other processes or hosts, if the job is to go on so from what it has saved."""


class _Stage(enum.IntEnum):
    """The stages of ending a job."""

    RUNNING = 0
    ASKED = 1  # all processes got SIGTERM
    RANKS_KILLED = 2  # ... and the ranks SIGKILL
    ALL_KILLED = 3  # ... and mpiexec, too


class Attempt:
    def __init__(
        self,
        plan: Plan,
        selector: selectors.BaseSelector,
        signals: Signals,
        logs: Logs,
        spares: Spares,
        changes: HostChanges,
    ) -> None:
        self._plan = plan
        self._spares = spares
        self._changes = changes
        self._selector = selector
        self._signals = signals
        self._logs = logs
        self._relay = Relay(selector, logs, plan.shown())
        self.processes = JobProcesses(plan, selector, self._on_failure)
        self.processes.on_loaded = functools.partial(spares.prepare, plan)
        self._stragglers = StragglerDetector(plan.watchdog)
        self._watches_stragglers = plan.procs == plan.world_size
        self._process_of: dict[Child, JobProcess] = {}  # mpiexec has none
        self._typed = TypedInput(selector, None)
        self._children: list[Child] = []
        self._running: list[Child] = []
        self._cleanup_process: CleanupProcess | None = None
        self._failures: list[Failure] = []
        self._lost: dict[str, range] = {}
        self._stopped_by: signal.Signals | None = None
        self._following: Plan | None = None  # to go on as
        self._stall: Stall | None = None
        self._judge_stall_at = _NEVER
        self._check_at = 0.0
        self._busy_stacks: dict[int, str] = {}
        self._stage = _Stage.RUNNING
        self._asked_at = _NEVER
        self._next_stage_at = _NEVER

    def run(self) -> Outcome:
        code = exit_codes.RANK_FAILED
        try:
            self._start()
            while self._running:
                self._wait(min(self._next_stage_at, self._judge_stall_at, self._next_check()))
                self._check_for_a_stall()
                self._follow_hosts()
                for child in self._running[:]:
                    self._look_after(child)
                self._act_on_signals()
                if self._relay.broken:
                    self._end_by(time.monotonic())  # as any program ends that cannot write
                while time.monotonic() >= self._next_stage_at:
                    self._enter(_Stage(self._stage + 1))
            if self._plan.mpi and self._stopped_by is None:
                self._judge_starter()
            code = self._conclude()
        finally:
            self._clean_up(code)
        # Only now: a slow reader may take any time.
        while self._relay.waiting and not self._signals.pending:
            self._wait(_NEVER)
        failed = bool(self._failures) and self._stopped_by is None
        first = blame.first_failure(self._failures) if failed else None
        steps = min((one.steps for one in self.processes.progress().values()), default=0)
        goes_on = code == exit_codes.PREEMPTED and self._stopped_by is None
        return Outcome(code, first, steps, tuple(self._lost), self._following if goes_on else None)

    def resize(self, procs: int) -> str:
        """Let the ranks save their work and end, to go on in `procs` processes; why that cannot be, or ''."""
        if self._plan.nodes is not None or self._plan.slurm:
            return "a job over --nnodes, or in a Slurm allocation, cannot be resized"
        refused = self._go_on_as(replace(self._plan, procs=procs))
        if not refused:
            self._changes.resized(procs)
        return refused

    def _follow_hosts(self) -> None:
        if self._stage == _Stage.RUNNING and (moved := self._changes.due(self._plan, self._say)):
            self._go_on_as(moved)  # or, if that cannot be yet, when it is due again

    def _go_on_as(self, following: Plan) -> str:
        if self._ending or self._failures or self._following is not None:
            return "the job is ending, or being resized"
        try:
            following.check()
        except LaunchError as error:
            return str(error)
        if not self.processes.all_save():
            return "not all ranks have called Checkpointer.step yet, which saves their work: try again after the first step"
        self._following = following
        self.processes.send(signal.SIGUSR1)
        return ""

    @property
    def _ending(self) -> bool:
        return self._stage != _Stage.RUNNING or self._stopped_by is not None

    def _say(self, text: str) -> None:
        self._relay.say(f"ddprun: {text}.\n")

    def _next_check(self) -> float:
        """When to check for a stall again."""
        return self._check_at if self._stage == _Stage.RUNNING else _NEVER

    def _check_for_a_stall(self) -> None:
        # Not at each of the messages that all ranks send: it looks at all ranks.
        if self._stage == _Stage.RUNNING and (now := time.monotonic()) >= self._check_at:
            self._check_at = now + HEARTBEAT_S
            if not self._failures:
                self._on_stall(self.processes.late(now))
            if not self._failures and self._plan.watchdog is not None:
                self._on_stall(watchdog.find(self.processes.running(), self._plan.watchdog, now))
                self._on_stall(self.processes.lingering(self._plan.watchdog, now))
            if self._watches_stragglers and (slow := self._stragglers.update(self.processes.progress())):
                self._say(str(slow))
        if time.monotonic() >= self._judge_stall_at:
            self._judge_stall_at = _NEVER
            if self._works_after_all():
                self._stall = None
            else:
                self._end_by(time.monotonic())

    def _on_stall(self, stall: Stall | None) -> None:
        """Ask all processes for their stacks, and judge the stall after the time for an answer."""
        if stall is None or self._stall is not None or self._stopped_by is not None:
            return
        self._stall = stall
        self.processes.forget_stacks()
        self.processes.send(STACKS_SIGNAL)
        self._judge_stall_at = time.monotonic() + _STACKS_S

    def _works_after_all(self) -> bool:
        """Whether the rank that the others wait for has gone on meanwhile, or works on what counts no steps."""
        now, ranks = time.monotonic(), self.processes.running()
        if self._stall is None or self._failures or self.processes.late(now) is not None:
            return False
        if self._plan.watchdog is None:
            return True
        if self.processes.lingering(self._plan.watchdog, now) is not None:
            return False
        if watchdog.find(ranks, self._plan.watchdog, now) is None:
            return True
        known = self.processes.progress()
        rank, stack = blame.suspect(self._stall, known, self.processes.crash_texts())
        # A compiler or an import that is stuck has the same stack again.
        if stack is None or not is_busy(stack.frames) or self._busy_stacks.get(rank) == stack.text:
            return False
        self._busy_stacks[rank] = stack.text
        known[rank].changed_at = known[rank].heartbeat_at = now
        return True

    def _start(self) -> None:
        if self._plan.mpi:
            starter = slurm if self._plan.slurm else mpi
            self._children = [starter.start(self._plan, self.processes.listen())]
        else:
            self._children = spawn.start(self._plan, self._spares.take)
        self._typed = TypedInput(self._selector, self._children[0].popen.stdin)
        self._running = self._children[:]
        if not self._plan.mpi:  # there the agent of each process does this
            self._cleanup_process = CleanupProcess(
                self._plan.job, [child.popen.pid for child in self._children]
            )
        for child in self._children:
            self._relay.attach(child)
            if child.report is not None:
                self._process_of[child] = self.processes.add(child.report, child.ranks, child.popen.pid)

    def _wait(self, until: float) -> None:
        """Sleep until an event, but not beyond `until`, and call its handler."""
        until = min(until, self._relay.prepare(), self._typed.prepare(time.monotonic()))
        timeout = None if until == _NEVER else max(0.0, until - time.monotonic())
        handle_events(self._selector, timeout)

    def _look_after(self, child: Child) -> None:
        """Judge `child` if it has ended."""
        status = child.ended()
        if status is None:
            return
        self._running.remove(child)
        self._relay.detach(child)
        process = self._process_of.get(child)
        if process is not None:
            self.processes.ended(process, status)
        else:
            self.processes.read_all()

    def _on_failure(self, failure: Failure) -> None:
        if failure.time > self._asked_at:
            return  # the rank was asked to end
        self._failures.append(failure)
        if failure.cause == "stall" and failure.blames:
            self._on_stall(Stall(failure.blames, failure.error))
        if self._stopped_by is None:
            settle = _SETTLE_SECONDARY_S if failure.secondary else _SETTLE_S
            self._end_by(time.monotonic() + settle)

    def _act_on_signals(self) -> None:
        while self._signals.pending:
            number = self._signals.pending.pop(0)
            if self._stopped_by is not None or self._failures:
                # The agents of killed ranks clean up; the signal after that does not wait for them.
                killed = self._stage >= _Stage.RANKS_KILLED or not len(self.processes)
                self._enter(_Stage.ALL_KILLED if killed else _Stage.RANKS_KILLED)
                return
            self._stopped_by = number
            # Before mpiexec's processes have connected there is nobody to signal, and nothing to save.
            self._end_by(time.monotonic() + (_SIGNAL_GRACE_S if len(self.processes) else 0.0))
            if number == signal.SIGINT:
                self._relay.say(
                    f"ddprun: interrupted; the ranks have {_SIGNAL_GRACE_S:.0f} s to end. "
                    "Ctrl-C again ends them at once.\n"
                )
            # Only the ranks get the signal; they end their own children.
            self.processes.send(signal.SIGTERM if number == signal.SIGHUP else number)

    def _judge_starter(self) -> None:
        """Judge mpiexec or srun, which has ended, and whether a host was lost: that explains all other failures.

        Agents that were ended with it may still report.
        """
        until = time.monotonic() + _AGENTS_S
        while time.monotonic() < until and not self._signals.pending:
            failed = self._failures or self._stall is not None
            if not (self.processes.awaits_agents() if failed else self.processes.running()):
                break
            self._wait(until)
        [starter] = self._children
        status = starter.ended()
        assert status is not None
        well = status == 0 and (self.processes.all_done() or self.processes.preempted() is not None)
        if not self._failures and not well:
            name = "srun" if self._plan.slurm else "mpiexec"
            self._on_failure(blame.starter_failed(name, status, len(self.processes), self._plan.procs))
        if self._failures or self._stall is not None:
            self._lost = self.processes.lost_hosts()

    def _end_by(self, when: float) -> None:
        """Ask the ranks to end at `when` (monotonic seconds), or before."""
        if self._stage == _Stage.RUNNING:
            self._next_stage_at = min(self._next_stage_at, when)

    def _enter(self, stage: _Stage) -> None:
        """Begin a stage of ending the job."""
        self._stage = stage
        now = time.monotonic()
        self._next_stage_at = _NEVER
        if stage == _Stage.ASKED:
            self._asked_at = now
            self._next_stage_at = now + _GRACE_S
            if self._plan.mpi and len(self.processes):
                # The agents end them, and clean up. mpiexec would be quicker, but leave files behind.
                self.processes.send(signal.SIGTERM)
            else:
                for child in self._children:
                    child.send_group(signal.SIGTERM)
            # A stopped process handles both signals only now, and reports its stack before it ends.
            self.processes.send(signal.SIGCONT)
        elif stage == _Stage.RANKS_KILLED:
            self._asked_at = min(self._asked_at, now)
            self._next_stage_at = now + _GRACE_MPIEXEC_S
            self.processes.send(signal.SIGKILL)
        else:
            for child in self._children:
                child.send_group(signal.SIGKILL)

    def _conclude(self) -> int:
        """Print how the job ended, last of all, and return the exit code."""
        step = self.processes.preempted()
        if self._stall is not None and (step is not None or not self.processes.all_done()):
            step = None  # a rank that had stalled may go on to a checkpoint when it is to end
            known = self.processes.progress(), self.processes.crash_texts()
            self._failures.append(blame.stalled(self._stall, *known, self._failures))
        if self._failures and self._lost:
            self._failures = blame.hosts_lost(self._lost, self._failures, self.processes.progress())
        if step is not None:
            on = ""
            if self._following is not None and self._stopped_by is None:
                on = f"; going on in {self._following.procs} processes"
                on += f" on {spelt(self._following.hosts)}" if self._following.hosts else ""
            self._relay.say(f"ddprun: preempted after step {step}, whose checkpoint is saved{on}.\n")
            return exit_codes.PREEMPTED
        # Of a program that saves when it is asked to, a signal ends nothing that has finished meanwhile.
        finished = self.processes.all_save() and self.processes.all_done()
        if self._stopped_by is not None and not finished:
            self._relay.say(summary.describe_signal(self._stopped_by, self._failures))
            return 128 + self._stopped_by
        if self._failures:
            code = exit_codes.OF_CAUSE[blame.first_failure(self._failures).cause]
            known = self.processes.progress(), self.processes.crash_texts()
            self._logs.failure(self._failures, code, *known, self._plan.restart_count)
            self._relay.say(self._logs.problem + summary.describe(self._failures, self._logs.folder))
            return code
        if self._relay.broken:
            self._relay.say(f"ddprun: {self._relay.broken}; all ranks were ended.\n")
            return exit_codes.RANK_FAILED
        if self._logs.problem:
            self._relay.say(self._logs.problem)
        return exit_codes.FINISHED

    def _clean_up(self, code: int) -> None:
        """Leave nothing of the job behind: no process, no shared memory."""
        self._typed.close()
        for child in self._children:
            if code != 0:  # descendants of a rank that it left running when it failed
                child.send_group(signal.SIGKILL)
            child.reap()
        self.processes.close()
        job_files.remove(self._plan.job)
        if self._cleanup_process is not None:
            self._cleanup_process.dismiss()
