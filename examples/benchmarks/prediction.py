"""What `ddprun bench --predict` says of a step on several hosts, against what it takes (as root, with MPICH: pip install mpich).

    python examples/benchmarks/prediction.py
    python examples/benchmarks/prediction.py --models mnist_cnn --hosts 2 4 --rates 50mbit 200mbit 1gbit none
    python examples/benchmarks/prediction.py --rates 1gbit --delays 0ms 1ms 5ms

The hosts are network namespaces of this machine, with one rank each. The prediction knows how as many ranks of one host
compute, which share this machine's cores as the hosts do, what sums of some sizes take over hosts whose links nothing limits
(`ddprun bench collectives`), and what each link lets through. No training over the hosts is part of it.
"""

import argparse
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ddpgrad.launcher.bench import cluster, jobs
from ddpgrad.launcher.bench.collectives import Collectives
from ddpgrad.launcher.bench.training import MARK, Training

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

import namespaces


def on_hosts(job: jobs.Job, rate: str | None, delay: str | None = None) -> dict[str, Any]:
    """What the job says with one rank on each of as many hosts."""
    with namespaces.hosts(job.ranks, rate, timeout=900, delay=delay) as run:
        ended = run(1, [sys.executable, "-m", f"ddpgrad.launcher.bench.{job.module}", *job.arguments])
    if ended.returncode:
        sys.exit(ended.stderr)
    [told] = [line.partition(MARK)[2] for line in ended.stdout.splitlines() if MARK in line]
    return json.loads(told)


def sums(hosts: int) -> Collectives:
    """All-reduces over hosts with links that nothing limits."""
    words = "--ops all_reduce --sizes 4096 65536 1048576 4194304 --rounds 5 --device cpu"
    told = on_hosts(jobs.Job("ddpgrad", hosts, "collectives", tuple(words.split())), None)
    return Collectives.of(**told | {"hosts": [str(n) for n in range(hosts)]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["mnist_cnn", "gpt"])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument(
        "--rates", nargs="+", default=["50mbit", "200mbit", "1gbit", "none"], help="as tc writes them"
    )
    parser.add_argument("--unlimited", default="100gbit", help="what stands for none (default: %(default)s)")
    parser.add_argument("--delays", nargs="+", default=["0ms"], help="of each packet, as tc writes them")
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    if reason := namespaces.why_not(next((rate for rate in given.rates if rate != "none"), None)):
        sys.exit(f"prediction.py {reason}")
    errors = []
    print(
        f"{'model':>12}{'hosts':>7}{'link':>10}{'delay':>8}{'predicted ms':>14}{'measured ms':>13}{'error':>8}"
    )
    for model in given.models:
        for hosts in given.hosts:
            words = f"--stack ddpgrad --model {model} --device cpu --workers 0 --threads 1 --seconds {given.seconds}"
            job = jobs.Job("ddpgrad", hosts, "training", tuple(words.split()), ("--threads", "1"))
            here, measured_sums = Training(**jobs.run(job)), [sums(hosts)]
            for rate, delay in itertools.product(given.rates, given.delays):
                link = given.unlimited if rate == "none" else rate
                wanted = cluster.parse(f"hosts={hosts},link={link},latency={delay}")
                inside = cluster.within(wanted, "cpu", [])
                assert inside is not None and wanted.latency is not None
                # A round takes what it takes without a delay, and three times the way: MPI asks before it sends what is large.
                between = cluster.between(replace(wanted, latency=None), measured_sums)
                between = replace(between, per_round=between.per_round + 3 * wanted.latency)
                *_, forecast = cluster.forecasts(wanted, here, inside, between)
                told = on_hosts(job, None if rate == "none" else rate, delay if wanted.latency else None)
                measured = median(told["steps"])
                errors.append(forecast.step / measured - 1)
                print(
                    f"{model:>12}{hosts:>7}{rate:>10}{delay:>8}{forecast.step * 1e3:14.1f}{measured * 1e3:13.1f}{errors[-1]:8.1%}",
                    flush=True,
                )
    print(f"median of the absolute errors: {median(map(abs, errors)):.1%}")


if __name__ == "__main__":
    main()
