"""The rules by which a run of the campaign is judged: time, exit code, culprit, what is left, and the bits of a restart."""

import re
from collections.abc import Iterator

from campaign_draws import Planted
from campaign_runs import Run, limit
from campaign_table import BEFORE, FINE, LAST, MISSED, MODES, End
from patience import patience
from running import Result
from training import result

HEADLINE = re.compile(r"(?m)^dd(?:prun|pgrad): ranks? ([\d, .]+) failed \((.*)\); all ranks were ended\.$")
PLACE = r"\S*fault\.py:\d+"
SIGNAL_GRACE_S = 30  # seconds that ddprun gives ranks that a signal has come to, such as those in MPI's start
NOT_MPIEXEC_S = 20  # seconds that ranks without a launcher may take to end each other


def broken_rules(run: Run, undisturbed: str) -> list[str]:
    """The rules that a run broke, in words; none if all is well."""
    return [*_of_the_end(run, undisturbed), *(f"left over: {what}" for what in run.left)]


def _of_the_end(run: Run, undisturbed: str) -> Iterator[str]:
    draw, end = run.draw, run.result
    attempts = {planted.attempt for number, planted in enumerate(draw.planted) if number in run.fired}
    if end.code == 124:
        yield "it did not end"
    if 0 not in attempts:
        yield "no fault came: the draw tries nothing"
        return
    ddprun = MODES[draw.mode].ddprun
    wanted = [
        # Before they have met nobody but a launcher knows how a rank ended: the others say that it did not come.
        MISSED
        if not ddprun and planted.phase in BEFORE
        else (None if ddprun else planted.fault.alone)
        or planted.fault.ends.get(planted.phase, planted.fault.end)
        for number, planted in enumerate(draw.planted)
        if number in run.fired and planted.attempt == 0
    ]
    mended = draw.restarts and draw.planted[0].fault.mends
    if mended or wanted == [FINE]:
        yield from _undisturbed(end, undisturbed)
        restarts = len(attempts) if mended and wanted != [FINE] else 0
        if end.err.count("restarting in") != restarts:
            yield f"{end.err.count('restarting in')} restarts instead of {restarts}"
    else:
        named = [planted for number, planted in enumerate(draw.planted) if number in run.fired]
        wrong = [list(_failed(run, planted, one)) for planted, one in zip(named, wanted, strict=True)]
        # Of faults that come together, one is the first.
        yield from min(wrong, key=len)
        if "restarting in" in end.err:
            yield "it was started again"
        yield from _in_time(run)
    if run.again is not None:
        yield from (f"the run after it: {rule}" for rule in _undisturbed(run.again, undisturbed))


def _undisturbed(end: Result, undisturbed: str) -> Iterator[str]:
    if end.code:
        yield f"exit code {end.code} instead of 0"
    elif "result" not in end.out:
        yield "exit code 0 without a result"
    elif _bits(result(end)) != _bits(undisturbed):
        yield "other bits than those of an undisturbed run"


def _bits(line: str) -> str:
    return line[line.index("result") :]


def _failed(run: Run, planted: Planted, wanted: End) -> Iterator[str]:
    """Whether the job failed as `wanted` of this fault."""
    mode, end = MODES[run.draw.mode], run.result
    code = wanted.code
    if mode.ddprun:
        if end.code != code:
            yield f"exit code {end.code} instead of {code}"
    elif end.code == 0:
        yield "exit code 0 of a job that failed"
    elif not {"kill", "abort"} & {*re.findall(r"\w+", planted.fault.action)} and wanted != MISSED:
        code = 1 if run.draw.mode == "by hand" else code
        if end.code != code:
            yield f"exit code {end.code} instead of {code}"
    elif run.draw.mode == "mpirun" or planted.phase in LAST:
        return  # mpiexec kills the others before they can speak; by hand, they have no need of it any more
    elif wanted == MISSED:
        if not re.search(rf"[Rr]anks? (\d+, )*{planted.who}\b", end.err):
            yield f"{planted.who}, which did not come, is not named"
        return
    if run.draw.planted[0].fault.sent:
        if not re.search(wanted.text, end.err):
            yield f"{wanted.text!r} is not in what was said"
        return
    said = HEADLINE.findall(end.err)
    if not said:
        yield "no rank was named"
        return
    ranks, reason = said[-1]
    culprits = run.draw.culprits(planted)
    if wanted.reason is not None:
        if not {int(rank) for rank in re.findall(r"\d+", ranks)} <= culprits:
            yield f"rank {ranks} is named instead of {planted.who}"
        if not re.search(wanted.reason, reason):
            yield f"the reason is {reason!r} instead of {wanted.reason!r}"
    text = wanted.text.replace("WHO", str(planted.who)).replace("PLACE", PLACE)
    if not re.search(text, end.err):
        yield f"{text!r} is not in what was said"
    steps = planted.steps(run.draw.prepared)
    if mode.ddprun and steps is not None and f"had finished {steps} optimizer step" not in end.err:
        yield f"it is not said that {steps} optimizer steps were finished"
    if len(end.said) > 25 + end.err.count("ddprun: no restart") and mode.ddprun:
        yield f"{len(end.said)} lines instead of 25 at most"


def _in_time(run: Run) -> Iterator[str]:
    most = 5 + 3 * patience()
    if not MODES[run.draw.mode].ddprun:
        most += NOT_MPIEXEC_S
    if run.draw.planted[0].fault.sent:
        most += SIGNAL_GRACE_S
    if any(planted.fault.limit or planted.phase in BEFORE for planted in run.draw.planted):
        most += 2 * limit()
    if run.seconds > most:
        yield f"it took {run.seconds:.1f} s to end, more than {most:.1f} s"
