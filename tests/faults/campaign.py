"""A campaign of faults drawn at random: each run must end in time, with the right code and culprit, and leave nothing.

    python tests/faults/campaign.py --seed S --draws N     the seed, each draw that fails, and the command that repeats it

A draw is a mode, a phase, a rank, a fault and its timing (campaign_table.py); rules judge its run (campaign_judge.py).
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "launcher"), str(HERE.parent / "helpers")]

from campaign_draws import Draw, draw  # noqa: E402
from campaign_judge import broken_rules  # noqa: E402
from campaign_runs import References, run  # noqa: E402
from patience import patience  # noqa: E402


class Campaign:
    """The draws of a seed, in a folder in which a draw that fails leaves what it wrote."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.references = References(folder)
        patience()  # before anything runs beside it

    def judge(self, number: int) -> str:
        """What is wrong with draw `number`; '' if nothing is."""
        drawn = draw(self.seed, number)
        return _tested(drawn.test) if drawn.test else self.tried(drawn, f"draw-{number}")

    def tried(self, drawn: Draw, name: str) -> str:
        """What is wrong with this draw, run in the folder `name`."""
        home = self.folder / name
        home.mkdir()
        done = run(drawn, home, self.references)
        wrong = broken_rules(done, self.references.of(drawn.ranks))
        if not wrong:
            shutil.rmtree(home)
            return ""
        said = "\n".join(f"    | {line}" for line in done.result.err.splitlines()[-40:])
        return "\n".join(
            [*(f"  {rule}" for rule in wrong), f"  exit code {done.result.code}, and said at last", said]
        )

    def all(self, numbers: Iterable[int], jobs: int) -> Iterator[tuple[int, str]]:
        """Judge draws, `jobs` at a time: pairs of a number and what is wrong with it."""
        pool = ThreadPoolExecutor(jobs)
        try:
            begun = {pool.submit(self.judge, number): number for number in numbers}
            for done in as_completed(begun):
                yield begun[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _tested(test: str) -> str:
    """Run a test, which judges itself."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(HERE.parent / test)],
        capture_output=True, text=True, cwd=HERE.parent.parent,
    )  # fmt: skip
    return done.stdout if done.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--only", type=int, help="this draw alone")
    parser.add_argument("--jobs", type=int, default=2, help="draws at a time")
    parser.add_argument("--list", action="store_true", help="say what is drawn, and run nothing")
    args = parser.parse_args()
    numbers = range(args.first, args.first + args.draws) if args.only is None else [args.only]
    if args.list:
        for number in numbers:
            print(f"{number}: {draw(args.seed, number)}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    print(f"seed {args.seed}, {len(numbers)} draws in {folder}", flush=True)
    began, passed, failed = time.monotonic(), 0, []
    try:
        for number, wrong in Campaign(args.seed, folder).all(numbers, args.jobs):
            passed += not wrong
            if wrong:
                failed.append(number)
                print(f"draw {number} failed: {draw(args.seed, number)}\n{wrong}")
                print(f"  repeat it: python {Path(__file__)} --seed {args.seed} --only {number}", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    if not failed:
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    print(f"{passed} of {passed + len(failed)} draws passed in {seconds:.0f} s (seed {args.seed})")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
