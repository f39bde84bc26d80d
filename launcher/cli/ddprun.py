"""The command line of ddprun: arguments in, exit code out."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

from ..job import hosts, screen, spawn, supervise
from ..job.plan import Plan, usable_cores
from ..job.screen import Screen

_DESCRIPTION = """\
Run a script on N ranks, watch them, and end all when one fails. Each rank sees its number and the
number of ranks through ddpgrad.distributed; a process hosts one rank or several, and the results are
the same bits. Options have torchrun's names where torchrun has them.
"""

_EPILOG = """\
output:
  Every line is prefixed with its rank. When ddprun's standard error is a terminal, rank 0 writes to
  that terminal directly and without a prefix, so that progress bars work (not with --mpi or
  --log-dir). Standard input is empty, except with --debug. A failure ends the output with at most 25
  lines, the cause last.

environment of a rank:
  RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, DDPRUN_RESTART_COUNT

exit codes:
  0    every rank finished
  1    a rank failed: exception, sys.exit with another code than 0, os._exit, or a signal
  2    the command line asks for something that cannot be done
  3    a rank stalled: see --watchdog and --timeout
  4    the ranks were about to do different things
  5    a checkpoint is damaged or does not fit
  75   preempted: asked to end by a signal, the ranks saved a checkpoint first; start again to go on
  129  hung up (SIGHUP)   130  interrupted (Ctrl-C)   138  SIGUSR1   143  terminated (SIGTERM)
       The signal is passed on once and the ranks have 30 s to end; a second signal ends them at once

sub-commands:
  ddprun doctor                check the parts of this machine that ddpgrad can use
  ddprun ckpt --help           look at checkpoints
  ddprun trace DIR             show the time of a run with --trace DIR

examples:
  ddprun -n 4 train.py --epochs 3                             four processes of one rank each
  ddprun -n 4 --debug train.py                                one process; breakpoint() stops one rank
  ddprun -n auto --watchdog 60 --max-restarts 3 --log-dir run train.py    overnight
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LaunchError(message)


def _parser() -> tuple[_Parser, list[argparse.Action]]:
    parser = _Parser(
        prog="ddprun",
        usage="ddprun [options] script.py [args ...]\n       ddprun [options] -m module [args ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser, [action for title, rows in _OPTIONS.items() for action in _add_group(parser, title, rows)]


def _add_group(parser: _Parser, title: str, rows: Sequence[_Row]) -> list[argparse.Action]:
    into = parser.add_argument_group(title)
    actions = []
    for names, how in rows:
        actions.append(into.add_argument(*names, **how))
        # torchrun takes underscores, too; the help need not say it all twice.
        spelt = ["--" + name[2:].replace("-", "_") for name in names if name.startswith("--")]
        hidden = [name for name in spelt if name not in names]
        if hidden:
            hides = {**how, "help": argparse.SUPPRESS, "dest": actions[-1].dest}
            actions.append(into.add_argument(*hidden, **hides))
    return actions


def _row(*names: str, **how: Any) -> _Row:
    return names, how


_Row = tuple[tuple[str, ...], dict[str, Any]]
_FOR_TORCHRUN = "taken for torchrun's sake"

_OPTIONS: dict[str, Sequence[_Row]] = {
    "ranks and processes": (
        _row("-n", "--nproc-per-node", metavar="RANKS",
             help="number of ranks, or 'auto' for one per usable core (default: 1, in a Slurm allocation its tasks); "
             "with --nnodes above 1, on each of them"),
        _row("--procs", type=int, metavar="P", help="processes that host the ranks (default: one per rank)"),
        _row("--threads", type=int, metavar="K",
             help="BLAS and Numba threads per process (default: 1, or what OMP_NUM_THREADS etc. say)"),
        _row("--as-torch", action="store_true", help="answer the script's imports of torch with ddpgrad"),
        _row("-m", "--module", action="store_true", help="the script is a module's name, as in python -m"),
        _row("--debug", action="store_true", help="all ranks in one process on this terminal, no time limits"),
        _row("--only-rank", type=int, metavar="K", help="with --debug: breakpoint() stops rank K only"),
    ),
    "hosts": (
        _row("--mpi", action="store_true", help="let mpiexec start the processes"),
        _row("--mpiexec", metavar="PATH", help="the mpiexec to use with --mpi"),
        _row("--hosts", metavar="A:4,B:4", help="let mpiexec start so many processes on each of these hosts"),
        _row("--hostfile", metavar="FILE", help="the same from a file, with a line A:4 or A slots=4 for each"),
        _row("--nnodes", default="1", metavar="N",
             help="ddprun is started on each of N hosts, with the same --rdzv-endpoint (needs MPICH); in a Slurm "
             "allocation: once, for N of its hosts"),
        _row("--node-rank", type=int, metavar="K",
             help="the number of this host; default: 0 where the endpoint is its own address, else any"),
        _row("--rdzv-endpoint", metavar="HOST:PORT",
             help="where the first host is reached; scripts read it as MASTER_ADDR and MASTER_PORT"),
        _row("--rdzv-id", metavar="ID", help="a word that only hosts of this job give"),
        _row("--rdzv-backend", metavar="NAME", help=f"{_FOR_TORCHRUN}: c10d or static"),
        _row("--standalone", action="store_true", help="use this host alone, in a Slurm allocation, too"),
    ),
    "supervision": (
        _row("--watchdog", type=float, metavar="S",
             help="seconds without a collective, an optimizer step or launcher.alive() after which a rank has "
             "stalled (default: no limit)"),
        _row("--timeout", type=float, metavar="S", help="seconds a rank may wait for the others (default 600)"),
        _row("--max-restarts", type=int, default=0, metavar="N",
             help="start all ranks again after a failure, up to N times, on the hosts that remain (default 0)"),
        _row("--min-procs", type=int, metavar="P",
             help="let the same ranks go on with fewer processes, P at least: one fewer after each that was killed, and "
             "without those of a host that was lost (default: all of them, which needs slots on other hosts)"),
    ),
    "output": (
        _row("--log-dir", type=Path, metavar="DIR",
             help="keep all output in DIR/rank_K.log, and failure.json; the screen shows rank 0"),
        _row("-t", "--tee", metavar="WHAT",
             help="with --log-dir, also show 1: output, 2: errors, 3: both; by rank as in 0:3,1:2"),
        _row("-r", "--redirects", metavar="WHAT", help="with --log-dir, do not show 1: output, 2: errors, 3: both"),
        _row("--trace", type=Path, metavar="DIR", help="record a timeline of each rank there; see ddprun trace"),
    ),
}  # fmt: skip


def parse(argv: Sequence[str]) -> Plan:
    """Turn ddprun's arguments into a checked plan; raises LaunchError if it cannot be carried out.

    Options are ddprun's up to the first argument that is no option: the script. All arguments after it
    belong to the script.
    """
    parser, options = _parser()
    cut = _first_positional(argv, options)
    chosen = parser.parse_args(argv[:cut])
    rest = list(argv[cut:])
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        raise LaunchError(f"no {'module' if chosen.module else 'script'} was given\n{parser.format_usage()}")
    allocation = environment.slurm_allocation()
    slurm = allocation is not None and not (
        chosen.standalone or chosen.debug or chosen.mpi or chosen.hosts or chosen.hostfile
    )
    nnodes = _nnodes(chosen, slurm)
    ranks = _ranks(chosen.nproc_per_node, allocation.tasks if allocation and slurm else None)
    if slurm:
        ranks *= nnodes if chosen.nproc_per_node else 1
    plan = Plan(
        world_size=ranks,
        procs=chosen.procs if chosen.procs is not None else (1 if chosen.debug else ranks),
        target=rest[0],
        arguments=tuple(rest[1:]),
        module=chosen.module,
        debug=chosen.debug,
        only_rank=chosen.only_rank,
        mpi=chosen.mpi or slurm or bool(chosen.hosts or chosen.hostfile),
        slurm=slurm,
        nnodes=nnodes,
        node_rank=chosen.node_rank,
        rdzv_id=chosen.rdzv_id or "",
        mpiexec=chosen.mpiexec,
        timeout=chosen.timeout,
        threads=chosen.threads,
        as_torch=chosen.as_torch,
        hosts=_hosts(chosen),
        watchdog=chosen.watchdog,
        max_restarts=chosen.max_restarts,
        min_procs=chosen.min_procs,
        log_dir=chosen.log_dir,
        trace=chosen.trace,
        screen=_screen(chosen),
        **_endpoint(chosen),
    )
    plan.check()
    return plan


def _hosts(chosen: argparse.Namespace) -> tuple[hosts.Host, ...]:
    if chosen.hosts and chosen.hostfile:
        raise LaunchError("--hosts and --hostfile say the same in two ways; give one of them")
    if chosen.hosts:
        return hosts.parse(chosen.hosts)
    return hosts.read(chosen.hostfile) if chosen.hostfile else ()


def _screen(chosen: argparse.Namespace) -> Screen:
    for option in ("tee", "redirects"):
        if getattr(chosen, option) and chosen.log_dir is None:
            raise LaunchError(f"--{option} needs --log-dir DIR, where the output is to be kept")
    tee, redirects = screen.parse("--tee", chosen.tee), screen.parse("--redirects", chosen.redirects)
    return Screen(chosen.log_dir is not None, tee, redirects)


def _nnodes(chosen: argparse.Namespace, slurm: bool) -> int:
    """The number of hosts with a ddprun or, in Slurm, with ranks; LaunchError for options that do not fit together."""
    least, _, most = chosen.nnodes.partition(":")
    if not least.isdecimal() or int(least) < 1 or most not in ("", least):
        raise LaunchError(
            f"--nnodes {chosen.nnodes}: give a number of hosts. A range is not supported: a job keeps its ranks, and after "
            "a failure goes on with fewer processes (--max-restarts, --min-procs)"
        )
    nnodes = int(least)
    if chosen.node_rank is not None and not 0 <= chosen.node_rank < nnodes:
        raise LaunchError(f"--node-rank {chosen.node_rank} must be below --nnodes {nnodes}")
    if nnodes == 1 or slurm:
        return nnodes
    if chosen.hosts or chosen.hostfile or chosen.mpi or chosen.debug or chosen.standalone:
        raise LaunchError(
            f"--nnodes {nnodes} is for a ddprun on each host; with --hosts, --hostfile or --mpi one alone starts all "
            "ranks, and --standalone and --debug have one host"
        )
    if chosen.rdzv_endpoint is None:
        raise LaunchError(
            f"--nnodes {nnodes} needs --rdzv-endpoint HOST:PORT, an address of the first node that all others reach. "
            "Where one host can start processes on the others, `ddprun --hosts A:4,B:4` needs no more"
        )
    if chosen.procs is not None:
        raise LaunchError(f"--procs is for jobs that one ddprun starts, not for --nnodes {nnodes}")
    if chosen.rdzv_backend not in (None, "c10d", "static"):
        raise LaunchError(
            f"--rdzv-backend {chosen.rdzv_backend}: nodes meet at the endpoint itself; leave it out"
        )
    return nnodes


def _endpoint(chosen: argparse.Namespace) -> dict[str, Any]:
    """MASTER_ADDR and MASTER_PORT for scripts written for torchrun; ddpgrad itself needs no address."""
    if chosen.rdzv_endpoint is None:
        return {}
    host, colon, port = chosen.rdzv_endpoint.rpartition(":")
    if not colon:
        return {"address": chosen.rdzv_endpoint}
    if not host or not port.isdecimal() or not int(port) < 65536:
        raise LaunchError(f"--rdzv-endpoint takes HOST:PORT, got {chosen.rdzv_endpoint!r}")
    return {"address": host, **({"port": int(port)} if int(port) else {})}


def _first_positional(argv: Sequence[str], options: Sequence[argparse.Action]) -> int:
    """The place of the script in `argv`; LaunchError for an option that ddprun does not have.

    argparse would take the value of a misspelt option for the script.
    """
    with_value = {name: action.nargs != 0 for action in options for name in action.option_strings}
    with_value |= {"-h": False, "--help": False}
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "--":
        argument = argv[position]
        name, equals, _ = argument.partition("=")
        if name not in with_value and not name.startswith("--") and with_value.get(name[:2]):
            name, equals = name[:2], "attached"  # -n4
        if name not in with_value:
            near = difflib.get_close_matches(name, with_value, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "ddprun --help lists the options."
            raise LaunchError(f"unknown option {name}; {hint} (Options of the script go after its name.)")
        position += 2 if with_value[name] and not equals else 1
    return min(position, len(argv))


def _ranks(text: str | None, otherwise: int | None) -> int:
    if text is None:
        return otherwise or 1
    if text == "auto":
        return usable_cores()
    try:
        return int(text)
    except ValueError:
        raise LaunchError(f"-n takes a number of ranks or 'auto', got {text!r}") from None


def _run(plan: Plan) -> int:
    """Carry out `plan`, alone or as one of several nodes."""
    if plan.debug:
        spawn.replace_this_process(plan)
    if not plan.awaits_nodes:
        return supervise.run(plan)
    from ..job import nodes

    endpoint, wait = (plan.address, plan.port), plan.timeout or environment.timeout()
    if not nodes.is_first(endpoint, plan.node_rank):
        return nodes.join(endpoint, plan.nnodes, plan.node_rank, plan.procs, plan.rdzv_id, wait)
    others = nodes.Nodes(endpoint, plan.nnodes, plan.procs, plan.rdzv_id)
    code = exit_codes.USER_ERROR
    try:
        others.gather(wait)
        code = supervise.run(others.plan(plan))
    finally:
        others.end(code)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run ddprun with `argv` (default: the process's own arguments) and return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    try:
        if given[:1] == ["doctor"]:
            from . import doctor

            return doctor.main(given[1:])
        if given[:1] == ["ckpt"]:
            from . import ckpt

            return ckpt.main(given[1:])
        if given[:1] == ["trace"]:
            from . import trace

            return trace.main(given[1:])
        plan = parse(given)
        return _run(plan)
    except LaunchError as error:
        print(f"ddprun: error: {error}", file=sys.stderr)
        return exit_codes.USER_ERROR
