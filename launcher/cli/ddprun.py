"""ddprun: turns the command line into a plan, and carries it out."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ddpgrad import cuda
from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes

from ..job import hosts, run_config, screen, spawn
from ..job.plan import Plan, usable_cores
from ..job.screen import Screen
from . import joining, options

# Where torchrun meets by default.
_MASTER = ("127.0.0.1", 29500)


def parse(argv: Sequence[str]) -> Plan:
    """Turn ddprun's arguments into a checked plan; raises LaunchError if it cannot be carried out."""
    return _plan(argv, *options.split(argv))


def _plan(argv: Sequence[str], chosen: argparse.Namespace, rest: Sequence[str]) -> Plan:
    _check_word(rest[0], chosen.module)
    allocation = environment.slurm_allocation()
    slurm = chosen.slurm or (
        allocation is not None
        and not (chosen.standalone or chosen.debug or chosen.mpi or _names_hosts(chosen))
    )
    nnodes = _nnodes(chosen, slurm)
    tasks = nnodes if chosen.slurm else allocation.tasks if allocation and slurm else None
    ranks = _ranks(chosen.nproc_per_node, tasks)
    if allocation and slurm and chosen.local_ranks_filter and nnodes == 1 < allocation.nodes:
        raise LaunchError(
            "--local-ranks-filter: say over how many of this allocation's hosts to deal, with --nnodes N"
        )
    if slurm:
        ranks *= nnodes if chosen.nproc_per_node else 1
    if not chosen.slurm and (others := options.given_of(chosen, options.SLURM)):
        raise LaunchError(f"{others[0]} has a meaning only with --slurm")
    places = _hosts(chosen)
    most = chosen.procs if chosen.procs is not None else (1 if chosen.debug else ranks)
    waits_for_hosts = chosen.hosts_from and chosen.min_procs is not None
    plan = Plan(
        world_size=ranks,
        procs=max(chosen.min_procs, min(most, hosts.slots(places))) if waits_for_hosts else most,
        most_procs=most,
        hosts_from=chosen.hosts_from,
        target=rest[0],
        arguments=tuple(rest[1:]),
        module=chosen.module,
        debug=chosen.debug,
        only_rank=chosen.only_rank,
        mpi=chosen.mpi or slurm or _names_hosts(chosen),
        slurm=slurm,
        nnodes=nnodes,
        node_rank=chosen.node_rank,
        rdzv_id=chosen.rdzv_id or "",
        mpiexec=chosen.mpiexec,
        timeout=chosen.timeout,
        threads=chosen.threads,
        as_torch=chosen.as_torch,
        hosts=places,
        watchdog=chosen.watchdog,
        max_restarts=chosen.max_restarts,
        min_procs=chosen.min_procs,
        spares=chosen.spares,
        verify=chosen.verify,
        metrics=None if chosen.metrics is None else _metrics(chosen.metrics),
        log_dir=chosen.log_dir,
        trace=chosen.trace,
        screen=_screen(chosen),
        command_line=tuple(argv),
        options={name: getattr(chosen, name) for name in options.given(chosen)},
        **_endpoint(chosen),
    )
    plan.check()
    return plan


def _check_word(word: str, module: bool) -> None:
    """Raise LaunchError where `word`, which should be a script, is a sub-command with a slip of the pen."""
    near = [] if module or os.path.exists(word) else get_close_matches(word, options.SUB_COMMANDS, n=1)
    if near:
        raise LaunchError(
            f"no sub-command {word}, and no script of that name; did you mean `ddprun {near[0]}`?"
        )


def _warn_of_misspelt_variables() -> None:
    known = re.findall(r"\bDDPGRAD_([A-Z_]+)", environment.__doc__ or "")
    for name in environment.mapping():
        word = name.removeprefix("DDPGRAD_")
        if word != name and word not in known and (near := get_close_matches(word, known, n=1, cutoff=0.75)):
            print(
                f"ddprun: warning: the environment variable {name} has no meaning; did you mean DDPGRAD_{near[0]}?",
                file=sys.stderr,
            )


def _names_hosts(chosen: argparse.Namespace) -> bool:
    return (chosen.hosts, chosen.hostfile, chosen.hosts_from) != (None, None, None)


def _hosts(chosen: argparse.Namespace) -> tuple[hosts.Host, ...]:
    named = [
        f"--{name.replace('_', '-')}"
        for name in ("hosts", "hostfile", "hosts_from")
        if getattr(chosen, name) is not None
    ]
    if len(named) > 1:
        raise LaunchError(f"{' and '.join(named)} say where to run in several ways; give one of them")
    if chosen.hosts is not None:
        return hosts.parse(chosen.hosts)
    file = chosen.hosts_from if chosen.hostfile is None else chosen.hostfile
    return hosts.read(file, named[0]) if named else ()


def _screen(chosen: argparse.Namespace) -> Screen:
    for option in ("tee", "redirects"):
        if getattr(chosen, option) and chosen.log_dir is None:
            raise LaunchError(f"--{option} needs --log-dir DIR, where the output is to be kept")
    tee, redirects = screen.parse("--tee", chosen.tee), screen.parse("--redirects", chosen.redirects)
    return Screen(chosen.log_dir is not None, tee, redirects, screen.parse_filter(chosen.local_ranks_filter))


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
    if _names_hosts(chosen) or chosen.mpi or chosen.debug or chosen.standalone:
        raise LaunchError(
            f"--nnodes {nnodes} is for a ddprun on each host; with --hosts, --hostfile or --mpi one alone starts all "
            "ranks, and --standalone and --debug have one host"
        )
    if chosen.rdzv_endpoint is None and chosen.master_addr is None:
        raise LaunchError(
            f"--nnodes {nnodes} needs --rdzv-endpoint HOST:PORT (or --master-addr HOST), an address of the first node that all others reach. "
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
    parts = chosen.master_addr, chosen.master_port
    if parts != (None, None):
        as_one = f"{parts[0] or _MASTER[0]}:{_MASTER[1] if parts[1] is None else parts[1]}"
        if chosen.rdzv_endpoint not in (None, as_one):
            raise LaunchError(
                f"--rdzv-endpoint {chosen.rdzv_endpoint} and --master-addr, --master-port ({as_one}) name two places; "
                "leave one out"
            )
        chosen.rdzv_endpoint = as_one
    if chosen.rdzv_endpoint is None:
        return {}
    host, colon, port = chosen.rdzv_endpoint.rpartition(":")
    if not colon:
        return {"address": chosen.rdzv_endpoint}
    if not host or not port.isdecimal() or not int(port) < 65536:
        raise LaunchError(f"--rdzv-endpoint takes HOST:PORT, got {chosen.rdzv_endpoint!r}")
    return {"address": host, **({"port": int(port)} if int(port) else {})}


def _metrics(text: str) -> tuple[str, int]:
    """Where to listen: at PORT of this host alone, or at HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not int(port) < 65536:
        raise LaunchError(f"--metrics takes PORT or HOST:PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _ranks(text: str | None, otherwise: int | None) -> int:
    if text is None:
        return otherwise or 1
    gpus = cuda.device_count() if text in ("gpu", "auto") else 0
    if text == "gpu" and not gpus:
        raise LaunchError(
            "-n gpu: there is no GPU here that CuPy finds; `ddprun doctor` says more, -n cpu uses cores"
        )
    if text in ("gpu", "cpu", "auto"):
        return gpus or usable_cores()
    try:
        return int(text)
    except ValueError:
        raise LaunchError(f"-n takes a number of ranks or 'auto', 'cpu' or 'gpu', got {text!r}") from None


def _run(plan: Plan) -> int:
    """Carry out `plan`, alone or as one of several nodes."""
    if plan.debug:
        spawn.replace_this_process(run_config.described(plan))
    from ..job import nodes, supervise

    if not plan.awaits_nodes:
        return supervise.run(plan)

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


def _open_standard_streams() -> None:
    """Let standard streams that the caller has closed lead nowhere, else files that are opened next would get their numbers."""
    for number, name, mode in (0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode))  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Run ddprun with `argv` (default: the process's own arguments) and return its exit code."""
    _open_standard_streams()
    given = sys.argv[1:] if argv is None else argv
    try:
        if given and given[0] in options.SUB_COMMANDS:
            if isinstance(sys.stdout, io.TextIOWrapper):  # a name that its encoding has not ends no table
                sys.stdout.reconfigure(errors="replace")
            try:
                return import_module(f".{given[0]}", __package__).main(given[1:])
            except BrokenPipeError:  # as in `ddprun doctor | head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the interpreter, which flushes at its end
                return exit_codes.RANK_FAILED
            except OSError as error:  # of a path that was given, or where the output goes
                raise LaunchError(str(error)) from None
        chosen, rest = options.split(given)
        if chosen.slurm:
            from . import submit

            submit.check(chosen, rest)
            return submit.run(_plan(given, chosen, rest), chosen)
        alone = not joining.wanted(chosen, rest)
        if alone:
            _warn_of_misspelt_variables()
            return _run(_plan(given, chosen, rest))
    except LaunchError as error:
        print(f"ddprun: error: {error}", file=sys.stderr)
        return exit_codes.USER_ERROR
    # Its errors are the program's own.
    joining.run(chosen, rest)
    return exit_codes.FINISHED
