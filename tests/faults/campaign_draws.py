"""Draws: a fault of the table, where and when it comes, and how the job runs; a seed and a number make one."""

import random
import re
from dataclasses import dataclass, replace

from campaign_table import (
    AGAINST_RANK_0,
    FAULTS,
    LAST,
    MODES,
    PREEMPTED,
    STEPS,
    TELLING,
    TESTS,
    TOGETHER,
    Fault,
)

from ddpgrad.core.environment import ranks_of


@dataclass(frozen=True)
class Planted:
    """A fault in a place of the run: at `phase` of `step` of `attempt`, in rank `who`."""

    name: str
    phase: str
    step: int
    who: int
    attempt: int = 0

    @property
    def fault(self) -> Fault:
        return FAULTS[self.name]

    def steps(self, prepared: bool) -> int | None:
        """The optimizer steps that the rank had finished in this process, where it tells; None where it does not."""
        if self.phase not in STEPS or self.name not in TELLING:
            return None
        return self.step + (self.phase in STEPS[4:]) - 4 * prepared

    def words(self, patience: float) -> list[str]:
        """The three arguments of train.py."""
        who = {"one": str(self.who), "0": "0", "all": "all"}[self.fault.who]
        action = self.fault.action.replace("WHO", str(self.who)).replace("PATIENCE", str(patience))
        return [f"{self.phase}:{self.step}@{self.attempt}", who, action]


@dataclass(frozen=True)
class Draw:
    """A job of `ranks` ranks in a mode, and its faults; or, with `test`, a test that is one."""

    mode: str
    ranks: int
    planted: tuple[Planted, ...]
    restarts: int = 0
    prepared: bool = False
    workers: int = 0
    sharded: bool = False
    background: bool = False
    memory: bool = False
    by_timeout: bool = False
    test: str = ""

    def culprits(self, planted: Planted) -> set[int]:
        """The ranks that may be named: those of the process, where it ends or stops as a whole."""
        mode = MODES[self.mode]
        if mode.shared and (planted.fault.limit or re.search(r"kill|abort", planted.fault.action)):
            procs = min(2, self.ranks) if self.mode == "procs" else 1
            blocks = [ranks_of(proc, procs, self.ranks) for proc in range(procs)]
            return {*next(block for block in blocks if planted.who in block)}
        return {planted.who}

    def __str__(self) -> str:
        if self.test:
            return self.test
        faults = " and ".join(
            f"{p.name!r} of rank {p.who if p.fault.who != 'all' else f'{p.who} (in all)'} in {p.phase} of step {p.step}"
            + (f" of attempt {p.attempt}" if p.attempt else "")
            for p in self.planted
        )
        words = [
            f"{name}={value}"
            for name in ("restarts", "prepared", "workers", "sharded", "background", "memory", "by_timeout")
            if (value := getattr(self, name))
        ]
        return f"{self.mode}, {self.ranks} ranks: {faults}; {', '.join(words) or 'nothing else'}"


def draw(seed: int, number: int) -> Draw:
    """Draw `number` of `seed`. Any len(FAULTS) + len(TESTS) of them in a row hold every fault and every test once."""
    names = [*FAULTS, *TESTS]
    lap, place = divmod(number, len(names))
    random.Random(f"{seed} {lap}").shuffle(names)
    name, chance = names[place], random.Random(f"{seed} {number}")
    if name in TESTS:
        return Draw("", 0, (), test=TESTS[name])
    mode = chance.choice(FAULTS[name].modes)
    phases = [p for p in FAULTS[name].phases if not (p == "shutdown" and MODES[mode].shared)]
    ranks = chance.choice([2, 3, 4])
    first = planted(chance, name, chance.choice(phases), ranks)
    fault = first.fault
    prepared = chance.random() < 0.3 if fault.prepared is None else fault.prepared
    drawn = Draw(
        mode,
        ranks,
        (first,),
        # What a worker reads ahead when a run is over is no fault.
        prepared=prepared and (first.phase != "worker" or first.step == 0),
        workers=1 if first.phase == "worker" else int(chance.random() < 0.1),
        sharded=chance.random() < 0.2 and fault.who != "0",
        # A save in the background may be the last thing that a run waits for: there is nothing to preempt then.
        background=chance.random() < 0.2
        and fault.who != "0"
        and not (fault.end == PREEMPTED and first.phase == "save"),
        by_timeout=name == "late" and chance.random() < 0.5,
        memory=chance.random() < 0.3,
    )
    if name == "killed again":
        times = tuple(replace(planted(chance, name, first.phase, ranks), attempt=a) for a in (1, 2))
        return replace(drawn, restarts=3, planted=(first, *times))
    if name in TOGETHER and first.phase not in LAST and chance.random() < 0.3:
        drawn = replace(drawn, planted=(first, another(chance, drawn, 0)))
    if not MODES[mode].ddprun or mode == "debug" or fault.sent:
        return drawn
    if fault.mends and fault.end.code:
        drawn = replace(drawn, restarts=chance.choice([0, 1, 2]))
        if drawn.restarts == 2:
            return replace(drawn, planted=(*drawn.planted, another(chance, drawn, 1)))
    elif fault.end.code == 4:  # ranks that disagree are not started again
        drawn = replace(drawn, restarts=chance.choice([0, 1]))
    return drawn


def planted(chance: random.Random, name: str, phase: str, ranks: int) -> Planted:
    # A prepared run begins with step 4; checkpoints are saved after steps 5 and 7. From the first Checkpointer.step on,
    # which is after step 4 or before, signals ask the ranks to save. Numbers are checked at every second step.
    steps = {"write": [5, 7], "save": [5, 7], "worker": [0, 2]}.get(phase, [4, 5])
    if FAULTS[name].end == PREEMPTED:
        steps = [5]
    elif name in ("NaN", "flipped bit"):
        steps = [4]
    step = chance.choice(steps)
    who = 0 if FAULTS[name].who == "0" or phase == "write" else chance.randrange(ranks)
    if name in AGAINST_RANK_0 and (ranks == 2 or name in ("other model", "other option")):
        who = max(1, who)
    return Planted(name, phase, step, who)


def another(chance: random.Random, drawn: Draw, attempt: int) -> Planted:
    """A second death, of another rank at about the same time, or in a later attempt."""
    name = chance.choice([name for name in TOGETHER if drawn.mode in FAULTS[name].modes])
    second = planted(chance, name, chance.choice(STEPS), drawn.ranks)
    if not attempt and second.who == drawn.planted[0].who:
        second = replace(second, who=(second.who + 1) % drawn.ranks)
    return replace(second, attempt=attempt)
