"""The options of ddprun, and their help."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ddpgrad import version
from ddpgrad.core.errors import LaunchError

_DESCRIPTION = """\
Run a script on N ranks, watch them, and end all when one fails. Each rank sees its number and the
number of ranks through ddpgrad.distributed; a process hosts one rank or several, and the results are
the same bits. Options have torchrun's names where torchrun has them.
"""

_EPILOG = """\
output:
  Every line is prefixed with its rank. When ddprun's standard error is a terminal, rank 0 writes to
  that terminal directly and without a prefix, so that progress bars work (not with --mpi or
  --log-dir). Standard input, from a file or typed at the terminal, is rank 0's and empty for the
  others (with --mpi for all). A failure ends the output with at most 25 lines, the cause last.

environment of a rank:
  RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, DDPRUN_RESTART_COUNT, and
  TORCHELASTIC_RESTART_COUNT with the same number

started by mpirun or srun:
  Several ddpruns that mpirun or srun has started run the script as their ranks; only --as-torch, -m,
  --threads, --timeout, --trace and --verify have a meaning there. With --nnodes N they are one on each host.

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
  ddprun doctor                check the parts of this machine that ddpgrad can use; with --gpu, its GPUs
  ddprun ckpt --help           look at checkpoints
  ddprun trace DIR             show the time of a run with --trace DIR
  ddprun report RUN_DIR ...    write an HTML page about runs: curves, steps, failures, settings
  ddprun bench --help          measure how training and collectives scale with ranks
  ddprun top [PID]             show the ranks of a job that runs: steps, memory, waits
  ddprun resize PID --procs P  let a job that runs go on in P processes
  ddprun examples              list programs to begin with; ddprun examples copy NAME

examples:
  ddprun --slurm --nnodes 2 -n 4 --time 2:00:00 --requeue train.py --resume   two hosts, when Slurm has them
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


def _add_group(parser: _Parser, title: str, rows: Sequence[Row]) -> list[argparse.Action]:
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


def _share_of_sums(text: str) -> int:
    """N of 'recompute=1/N'."""
    what, _, number = text.partition("=1/")
    if what != "recompute" or not number.isdecimal() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"expected recompute=1/N with a whole number N, got {text!r}")
    return int(number)


def row(*names: str, **how: Any) -> Row:
    return names, how


Row = tuple[tuple[str, ...], dict[str, Any]]
SUB_COMMANDS = ("doctor", "ckpt", "trace", "report", "bench", "examples", "resize", "top")
SLURM = "to submit to Slurm"
_FOR_TORCHRUN = "taken for torchrun's sake"

_OPTIONS: dict[str, Sequence[Row]] = {
    "ranks and processes": (
        row("-n", "-np", "--nproc-per-node", metavar="RANKS",
             help="number of ranks (default: 1, in a Slurm allocation its tasks); with --nnodes above 1, on each of them; "
             "'gpu': one per GPU, 'cpu': one per usable core, 'auto': the one or, without GPUs, the other"),
        row("--procs", type=int, metavar="P", help="processes that host the ranks (default: one per rank)"),
        row("--threads", type=int, metavar="K",
             help="BLAS and Numba threads per process (default: 1, or what OMP_NUM_THREADS etc. say)"),
        row("--as-torch", action="store_true", help="answer the script's imports of torch with ddpgrad"),
        row("-m", "--module", action="store_true", help="the script is a module's name, as in python -m"),
        row("--debug", action="store_true", help="all ranks in one process on this terminal, no time limits"),
        row("--only-rank", type=int, metavar="K", help="with --debug: breakpoint() stops rank K only"),
    ),
    "hosts": (
        row("--mpi", action="store_true", help="let mpiexec start the processes"),
        row("--mpiexec", metavar="PATH", help="the mpiexec to use with --mpi"),
        row("--hosts", metavar="A:4,B:4", help="let mpiexec start so many processes on each of these hosts"),
        row("--hostfile", metavar="FILE", help="the same from a file, with a line A:4 or A slots=4 for each"),
        row("--hosts-from", metavar="FILE",
             help="the same, and when the file changes the job goes on on the hosts that it names then, with the same ranks "
             "and bits, in as many processes as have slots (--min-procs at least); the program calls Checkpointer.step"),
        row("--nnodes", default="1", metavar="N",
             help="ddprun is started on each of N hosts, with the same --rdzv-endpoint (needs MPICH); in a Slurm "
             "allocation: once, for N of its hosts"),
        row("--node-rank", type=int, metavar="K",
             help="the number of this host; default: 0 where the endpoint is its own address, else any"),
        row("--rdzv-endpoint", metavar="HOST:PORT",
             help="where the first host is reached; scripts read it as MASTER_ADDR and MASTER_PORT"),
        row("--master-addr", metavar="HOST", help="the same, as two options (default: 127.0.0.1)"),
        row("--master-port", type=int, metavar="PORT", help="(default: 29500)"),
        row("--rdzv-id", metavar="ID", help="a name of the job; hosts that give another are refused"),
        row("--rdzv-backend", metavar="NAME", help=f"{_FOR_TORCHRUN}: c10d or static"),
        row("--standalone", action="store_true", help="use this host alone, in a Slurm allocation, too"),
    ),
    SLURM: (
        row("--slurm", action="store_true",
             help="submit the job, on --nnodes hosts with -n ranks each, and follow it to its end: Ctrl-C lets the ranks save "
             "and end, a second one cancels the job. The batch file and the output lie in --log-dir (default: here)"),
        row("--dry-run", action="store_true", help="print the batch file, and submit nothing"),
        row("--time", metavar="LIMIT", help="as sbatch takes it: minutes, H:M:S or D-H"),
        row("--partition", metavar="NAME", help="where to run"),
        row("--gpus-per-node", metavar="N", help="GPUs on each host, as in 4 or a100:4"),
        row("--array", metavar="SEEDS",
             help="submit a job for each number, as in 0-3 or 1,5%%2; {seed} in the script's arguments and in --log-dir "
             "stands for it"),
        row("--requeue", action="store_true",
             help="at the end of the time limit, and when Slurm preempts the job, save and wait in the queue again; "
             "without it the ranks save and end"),
        row("--sbatch", metavar="NAME=VALUE", action="append", default=[],
             help="another option of sbatch, as in account=physics; may be given several times"),
    ),
    "supervision": (
        row("--watchdog", type=float, metavar="S",
             help="seconds without a collective, an optimizer step or launcher.alive() after which a rank has "
             "stalled (default: no limit)"),
        row("--timeout", type=float, metavar="S", help="seconds a rank may wait for the others (default 600)"),
        row("--max-restarts", type=int, default=0, metavar="N",
             help="start all ranks again after a failure, up to N times, on the hosts that remain (default 0)"),
        row("--min-procs", type=int, metavar="P",
             help="let the same ranks go on with fewer processes, P at least: one fewer after each that was killed, and "
             "without those of a host that was lost (default: all of them, which needs slots on other hosts)"),
        row("--spares", type=int, default=0, metavar="N",
             help="after the first step start N processes that load what the ranks have loaded, and wait to take over "
             "at a restart (default 0; as many as processes: a restart starts none)"),
        row("--verify", type=_share_of_sums, default=0, metavar="recompute=1/N",
             help="let another process sum one in N buckets of gradients, too, and compare the bits: finds a processor or "
             "memory that errs (default: none)"),
    ),
    "output": (
        row("--log-dir", type=Path, metavar="DIR",
             help="keep all output in DIR/rank_K.log, and failure.json; the screen shows rank 0"),
        row("-t", "--tee", metavar="WHAT",
             help="with --log-dir, also show 1: output, 2: errors, 3: both; by rank as in 0:3,1:2"),
        row("-r", "--redirects", metavar="WHAT", help="with --log-dir, do not show 1: output, 2: errors, 3: both"),
        row("--local-ranks-filter", metavar="K,L,...", help="show only these ranks, counted on each host from 0"),
        row("--metrics", metavar="[HOST:]PORT",
             help="tell Prometheus of the job at http://HOST:PORT/metrics (default HOST: 127.0.0.1; PORT 0: any that is free)"),
        row("--trace", type=Path, metavar="DIR", help="record a timeline of each rank there; see ddprun trace"),
        row("--version", action="version", version=f"ddprun {version.__version__}", help="print the version, and end"),
    ),
}  # fmt: skip


def split(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """ddprun's own options, and the rest: the script with its arguments. LaunchError if a part is wrong or missing.

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
    return chosen, rest


def given(chosen: argparse.Namespace) -> dict[str, str]:
    """The options in `chosen` whose value is not the default, as they are spelt."""
    _, options = _parser()
    first = {action.dest: action.option_strings[0] for action in reversed(options)}
    defaults = {action.dest: action.default for action in options}
    return {name: first[name] for name, value in vars(chosen).items() if value != defaults[name]}


def given_of(chosen: argparse.Namespace, title: str) -> list[str]:
    """The options of a group among those that are `given`."""
    names = {name for names, _ in _OPTIONS[title] for name in names}
    return [option for option in given(chosen).values() if option in names]


def without(argv: Sequence[str], title: str) -> list[str]:
    """`argv` without the options of a group, for a ddprun that is not to do what they ask for."""
    _, options = _parser()
    names = {name for names, _ in _OPTIONS[title] for name in names}
    left: list[str] = []
    end = 0
    for name, begin, end in _own(argv, options):
        if name.replace("_", "-") not in names:
            left += argv[begin:end]
    return [*left, *argv[end:]]


def _first_positional(argv: Sequence[str], options: Sequence[argparse.Action]) -> int:
    """The place of the script in `argv`."""
    return max((end for _, _, end in _own(argv, options)), default=0)


def _own(argv: Sequence[str], options: Sequence[argparse.Action]) -> Iterator[tuple[str, int, int]]:
    """ddprun's own options in `argv`: the name of each, and where it and its value begin and end.

    LaunchError for an option that ddprun does not have: argparse would take the value of a misspelt one for the script.
    """
    with_value = {name: action.nargs != 0 for action in options for name in action.option_strings}
    with_value |= {"-h": False, "--help": False}
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "--":
        argument, begin = argv[position], position
        name, equals, _ = argument.partition("=")
        if name not in with_value and not name.startswith("--") and with_value.get(name[:2]):
            name, equals = name[:2], "attached"  # -n4
        if name not in with_value:
            # Not with torchrun's other spelling, which is taken but not documented.
            documented = [option for option in with_value if "_" not in option]
            near = difflib.get_close_matches(name, documented, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "ddprun --help lists the options."
            raise LaunchError(f"unknown option {name}; {hint} (Options of the script go after its name.)")
        position = min(position + (2 if with_value[name] and not equals else 1), len(argv))
        yield name, begin, position
