"""What the steps of a job's protocol cost with more and more ranks.

    python examples/benchmarks/protocol_costs.py simulate --ranks 2 8 32 128 512
    python examples/benchmarks/protocol_costs.py simulate --ranks 2 10000 --steps barrier agreement
    python examples/benchmarks/protocol_costs.py heartbeats --ranks 2 512 10000
    python examples/benchmarks/protocol_costs.py measure --ranks 2 8 32 128 512

`simulate` runs the protocol's own code with each rank as a thread in virtual time (cluster/simulation.py): its figures
do not depend on this machine. `heartbeats` gives the launcher's own code the messages of as many ranks, through pipes. `measure`
runs logical ranks in two processes of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import log2
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of BLAS, which simulated ranks need not be asked for
sys.path.append(str(Path(__file__).parents[2] / "cluster"))

PROGRAM = """
import json, os, sys, time
began = float(os.environ["BEGAN"])
import ddpgrad as torch, ddpgrad.distributed as dist
from ddpgrad.launcher import Checkpointer
from ddpgrad.nn.parallel import DistributedDataParallel
at = time.perf_counter()
dist.init_process_group()
told = {"meeting": time.perf_counter() - at}
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
told["first step"] = time.time() - began

def timed(name, act, times):
    act()
    at = time.perf_counter()
    for _ in range(times):
        act()
    told[name] = (time.perf_counter() - at) / times

timed("barrier", dist.barrier, 20)
timed("agreement", lambda: dist.agree(True), 20)
checkpoints, step = Checkpointer(sys.argv[1]), iter(range(9))
timed("checkpoint", lambda: checkpoints.save(next(step), model=model, optimizer=optimizer), 3)
if dist.get_rank() == 0:
    print("told", json.dumps(told), flush=True)
"""


def measured(ranks: int) -> dict[str, float]:
    """Seconds of each step with so many logical ranks in two processes."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        words = ["-n", str(ranks), "--procs", "2", str(program), str(Path(folder) / "checkpoints")]
        ended = subprocess.run(
            [sys.executable, "-m", "ddpgrad.launcher", *words], capture_output=True, text=True, check=False,
            env={**os.environ, "BEGAN": str(time.time())},
        )  # fmt: skip
    if ended.returncode:
        sys.exit(ended.stderr)
    return json.loads(ended.stdout.partition("told ")[2].splitlines()[0])


def measure(counts: list[int], rounds: int) -> None:
    taken: dict[int, list[dict[str, float]]] = {ranks: [] for ranks in counts}
    for _ in range(rounds):  # in turns, so that what else the machine does hits all alike
        for ranks in counts:
            taken[ranks].append(measured(ranks))
    print(f"{'milliseconds':>14}" + "".join(f"{ranks:>24}" for ranks in counts) + f"{'a doubling':>12}")
    for step in taken[counts[0]][0]:
        row, medians = f"{step:>14}", {}
        for ranks in counts:
            times = [told[step] * 1e3 for told in taken[ranks]]
            medians[ranks] = median(times)
            row += f"{f'{medians[ranks]:.3g} ({min(times):.3g}-{max(times):.3g})':>24}"
        print(row + f"{growth(medians):>12}")


def growth(values: dict[int, float]) -> str:
    """By how much a doubling of the ranks multiplies the last of `values`."""
    *_, (before, low), (ranks, high) = sorted(values.items())
    return f"x {(high / low) ** (1 / log2(ranks / before)):.2f}"


def simulate(counts: list[int], steps: list[str]) -> None:
    import simulated_job

    print(
        f"{'step':>14}{'ranks':>8}{'ms':>10}{'messages':>10}{'KB':>12}{'rounds':>8}   (of the busiest process)"
    )
    for step in steps or list(simulated_job.STEPS):
        for ranks in counts:
            found = simulated_job.STEPS[step](ranks)
            print(
                f"{step:>14}{ranks:>8}{found.seconds * 1e3:>10.3f}{found.messages:>10}{found.nbytes / 1e3:>12.1f}"
                f"{found.rounds:>8}",
                flush=True,
            )


def heartbeats(counts: list[int]) -> None:
    """What one heartbeat of each rank costs the launcher, in processor time, and how much of a core that takes."""
    print(f"{'ranks':>8}{'us a message':>14}{'messages/s':>12}{'of a core':>11}")
    for ranks in counts:
        each, per_second = _of_heartbeats(ranks)
        print(f"{ranks:>8}{each * 1e6:>14.1f}{per_second:>12.0f}{each * per_second:>11.1%}", flush=True)


def _of_heartbeats(ranks: int) -> tuple[float, float]:
    from ddpgrad.distributed.failure import watchdog
    from ddpgrad.distributed.failure.channel import Sender, heartbeat_s
    from ddpgrad.launcher.job.plan import Plan
    from ddpgrad.launcher.job.processes import JobProcesses
    from ddpgrad.launcher.job.straggler import StragglerDetector

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    selector, stragglers, senders = selectors.DefaultSelector(), StragglerDetector(60.0), []
    processes = JobProcesses(Plan(ranks, ranks, "train.py", ()), selector, print)
    for rank in range(ranks):
        read, write = os.pipe()
        senders.append(Sender(f"fd:{write}"))
        processes.add(read, range(rank, rank + 1), os.getpid())
    times = []
    for turn in range(1, 6):
        for rank, sender in enumerate(senders):
            sender.heartbeat(
                rank, (10 * turn, turn, 0), [f"all_reduce(sum) of float32[1024] at train.py:{turn}"]
            )
        began = time.process_time()
        for key in _all_readable(selector, ranks):
            key.data(key.fd)
        watchdog.find(processes.running(), 60.0, time.monotonic())
        stragglers.update(processes.progress())
        times.append(time.process_time() - began)
    processes.close()
    for sender in senders:
        os.close(sender.fd)
    return median(times) / ranks, ranks / heartbeat_s(ranks)


def _all_readable(selector: selectors.BaseSelector, count: int) -> Iterator[selectors.SelectorKey]:
    while count > 0:
        for key, _ in selector.select(1.0):
            yield key
            count -= 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["simulate", "heartbeats", "measure"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32, 128, 512])
    parser.add_argument("--steps", nargs="+", default=[], help="of simulate: all by default")
    parser.add_argument("--rounds", type=int, default=3, help="of measure (default: %(default)s)")
    given = parser.parse_args()
    if given.what == "simulate":
        simulate(given.ranks, given.steps)
    elif given.what == "measure":
        measure(given.ranks, given.rounds)
    else:
        heartbeats(given.ranks)


if __name__ == "__main__":
    main()
