"""`torch.distributed.run`: torchrun for programs that call it, and for `python -m torch.distributed.run` under `--as-torch`."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ddpgrad
from ddpgrad.compat.torchrun_errors import record
from ddpgrad.core import environment
from ddpgrad.launcher.elastic import LaunchConfig, elastic_launch
from ddpgrad.launcher.start_processes import DefaultLogsSpecs, Std

_FLAGS = ("standalone", "module", "no_python", "run_path", "virtual_local_rank")
_VALUES: dict[str, tuple[Any, Any]] = {
    "nnodes": (str, "1:1"),
    "nproc_per_node": (str, "1"),
    "rdzv_backend": (str, "static"),
    "rdzv_endpoint": (str, ""),
    "rdzv_id": (str, "none"),
    "rdzv_conf": (str, ""),
    "max_restarts": (int, 0),
    "monitor_interval": (float, 0.1),
    "start_method": (str, "spawn"),
    "event_log_handler": (str, "null"),
    "role": (str, "default"),
    "log_dir": (str, None),
    "redirects": (str, "0"),
    "tee": (str, "0"),
    "local_ranks_filter": (str, ""),
    "node_rank": (int, 0),
    "master_addr": (str, "127.0.0.1"),
    "master_port": (int, None),
    "local_addr": (str, None),
    "logs_specs": (str, None),
    "numa_binding": (str, None),
    "signals_to_handle": (str, "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
    "shutdown_timeout": (int, None),
}
_SHORT = {"module": "-m", "redirects": "-r", "tee": "-t"}
_REFUSED = ("logs_specs", "numa_binding", "virtual_local_rank", "run_path")


def get_args_parser() -> argparse.ArgumentParser:
    """torchrun's options. A variable PET_NNODES and its like in the environment is the default of an option."""
    parser = argparse.ArgumentParser(prog="torchrun", description="Starts a script on several ranks.")
    given = environment.mapping()
    for name in (*_FLAGS, *_VALUES):
        spelt = [*([_SHORT[name]] if name in _SHORT else []), f"--{name.replace('_', '-')}"]
        if "_" in name:
            spelt.append(f"--{name}")
        told = given.get(f"PET_{name.upper()}")
        if name in _FLAGS:
            parser.add_argument(*spelt, dest=name, action="store_true", default=told == "1")
            continue
        kind, default = _VALUES[name]
        parser.add_argument(*spelt, dest=name, type=kind, default=default if told is None else told)
    parser.add_argument("--use-env", "--use_env", action="store_true", default=True, help=argparse.SUPPRESS)
    parser.add_argument("training_script", help="the script, or with -m the module")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """The options in `args`."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """The least and the greatest number of hosts, of "N" or "MIN:MAX"."""
    parts = nnodes.split(":")
    if len(parts) not in (1, 2):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of ranks on this host, of a number, "cpu", "gpu" or "auto"."""
    if str(nproc_per_node).isdecimal():
        return int(nproc_per_node)
    gpus = ddpgrad.cuda.device_count()
    if nproc_per_node == "gpu":
        if not gpus:
            raise ValueError("Cuda is not available.")
        return gpus
    if nproc_per_node in ("cpu", "auto"):
        return gpus if gpus and nproc_per_node == "auto" else os.cpu_count() or 1
    raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """What `elastic_launch` takes: the config, the command, and its arguments."""
    for name in _REFUSED:
        if getattr(args, name, None):
            raise NotImplementedError(
                f"torch.distributed.run: --{name.replace('_', '-')} is not supported: leave it out"
            )
    least, most = parse_min_max_nnodes(args.nnodes)
    if not 0 < least <= most:
        raise AssertionError(f"--nnodes {args.nnodes}: expected 0 < MIN <= MAX")
    if args.max_restarts < 0:
        raise AssertionError(f"--max-restarts must not be negative, got {args.max_restarts}")
    ranks = determine_local_world_size(args.nproc_per_node)
    if "OMP_NUM_THREADS" not in environment.mapping() and ranks > 1:
        environment.export(OMP_NUM_THREADS="1")
    conf = dict(one.split("=", 1) for one in args.rdzv_conf.split(",") if one)
    endpoint = args.rdzv_endpoint
    if args.rdzv_backend == "static":
        conf["rank"] = str(args.node_rank)
        endpoint = endpoint or f"{args.master_addr}:{args.master_port or 29500}"
    shown = (
        {int(rank) for rank in args.local_ranks_filter.split(",") if rank}
        if args.local_ranks_filter
        else None
    )
    config = LaunchConfig(
        min_nodes=least,
        max_nodes=most,
        nproc_per_node=ranks,
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=endpoint,
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=conf,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=environment.mapping().get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        logs_specs=DefaultLogsSpecs(
            args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), shown
        ),
        local_addr=args.local_addr,
        event_log_handler=args.event_log_handler,
        signals_to_handle=args.signals_to_handle,
        shutdown_timeout=args.shutdown_timeout,
    )
    script = [args.training_script, *args.training_script_args]
    if args.no_python:
        if args.module:
            raise ValueError(
                "Don't use both the '--no-python' flag and the '--module' flag at the same time."
            )
        return config, script[0], script[1:]
    python = environment.mapping().get("PYTHON_EXEC", sys.executable)
    return config, python, ["-u", *(["-m"] if args.module else []), *script]


def run(args: argparse.Namespace) -> None:
    """Start what `args` say, and wait for its end. ChildFailedError tells of the ranks that failed."""
    if args.standalone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    config, command, arguments = config_from_args(args)
    elastic_launch(config, command)(*arguments)


@record
def main(args: Sequence[str] | None = None) -> None:
    """torchrun with the arguments `args`, by default those of the command line."""
    run(parse_args(args))


launch = run

if __name__ == "__main__":
    main()
