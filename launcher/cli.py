"""The command line of ddprun: arguments in, exit code out."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import NoReturn

from ddpgrad.errors import LaunchError

from . import spawn, supervise
from .plan import Plan, usable_cores

EXIT_USER_ERROR = 2

_DESCRIPTION = """\
Run a script on N ranks of this host. Each rank sees its number and the number of ranks through
ddpgrad.distributed; a process hosts one rank or several, and the results are the same bits.
"""

_EPILOG = """\
examples:
  ddprun -n 4 train.py --epochs 3          four processes of one rank each
  ddprun -n 4 --procs 1 train.py           the same four ranks as threads of one process
  ddprun -n 4 --debug train.py             ... with pdb: breakpoint() stops one rank, the others wait
  ddprun -n 4 --as-torch train.py          ... an unchanged PyTorch script
  ddprun -n 4 --mpi train.py               started by the mpiexec of MPICH or Open MPI

output:
  Every line is prefixed with its rank. When ddprun's standard error is a terminal, rank 0 writes to
  that terminal directly and without a prefix, so that progress bars work (not with --mpi). Standard
  input is empty, except with --debug.

exit codes:
  0    every rank finished
  1    a rank failed: exception, sys.exit with another code than 0, os._exit, or a signal. All ranks
       are ended, and the traceback of the rank that failed first comes last on the screen
  2    the command line asks for something that cannot be done
  129  hung up (SIGHUP)   130  interrupted (Ctrl-C)   143  terminated (SIGTERM)
       The signal is passed on once and the ranks have 30 s to end; a second signal ends them at once
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
    add = parser.add_argument
    options = [
        add(
            "-n",
            "--nproc-per-node",
            metavar="RANKS",
            default="1",
            help="number of ranks, or 'auto' for one per usable core (default 1)",
        ),
        add("--procs", type=int, metavar="P", help="processes that host the ranks (default: one per rank)"),
        add("--debug", action="store_true", help="all ranks in one process on this terminal, no time limits"),
        add("--mpi", action="store_true", help="let mpiexec start the processes"),
        add("--mpiexec", metavar="PATH", help="the mpiexec to use with --mpi"),
        add(
            "--timeout", type=float, metavar="S", help="seconds a rank may wait for the others (default 600)"
        ),
        add(
            "--threads",
            type=int,
            metavar="K",
            help="BLAS and Numba threads per process (default: 1, or what OMP_NUM_THREADS etc. say)",
        ),
        add("--as-torch", action="store_true", help="answer the script's imports of torch with ddpgrad"),
        add("-m", "--module", action="store_true", help="the script is a module's name, as in python -m"),
    ]
    return parser, options


def parse(argv: Sequence[str]) -> Plan:
    """Turn ddprun's arguments into a checked plan; raises LaunchError for what cannot be done.

    Options are ddprun's up to the first argument that is none; that one is the script, and
    everything after it belongs to the script.
    """
    parser, options = _parser()
    cut = _first_positional(argv, options)
    chosen = parser.parse_args(argv[:cut])
    rest = list(argv[cut:])
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        raise LaunchError(f"no {'module' if chosen.module else 'script'} was given\n{parser.format_usage()}")
    ranks = _ranks(chosen.nproc_per_node)
    plan = Plan(
        world_size=ranks,
        procs=chosen.procs if chosen.procs is not None else (1 if chosen.debug else ranks),
        target=rest[0],
        arguments=tuple(rest[1:]),
        module=chosen.module,
        debug=chosen.debug,
        mpi=chosen.mpi,
        mpiexec=chosen.mpiexec,
        timeout=chosen.timeout,
        threads=chosen.threads,
        as_torch=chosen.as_torch,
    )
    plan.check()
    return plan


def _first_positional(argv: Sequence[str], options: Sequence[argparse.Action]) -> int:
    """Where the script stands in `argv`; an option that ddprun does not have is an error here.

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


def _ranks(text: str) -> int:
    if text == "auto":
        return usable_cores()
    try:
        return int(text)
    except ValueError:
        raise LaunchError(f"-n takes a number of ranks or 'auto', got {text!r}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run ddprun with `argv` (default: the process's own arguments) and return its exit code."""
    try:
        plan = parse(sys.argv[1:] if argv is None else argv)
        if plan.debug:
            spawn.replace_this_process(plan)
        return supervise.run(plan)
    except LaunchError as error:
        print(f"ddprun: error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
