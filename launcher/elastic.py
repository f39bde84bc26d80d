"""`torch.distributed.launcher.api`: a function or a command on several ranks of this host, as notebooks and tools start it.

What torchrun agrees on between hosts has no counterpart, but where the hosts are numbered: `ddprun --hosts` starts jobs of several.
"""

from __future__ import annotations

import dataclasses
import sys
import uuid
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

from ddpgrad.compat.torchrun_errors import ChildFailedError
from ddpgrad.core import environment

from .job.plan import free_port
from .start_processes import DefaultLogsSpecs, LogsSpecs, RunProcsResult, start_processes


@dataclasses.dataclass
class LaunchConfig:
    """What to start: `nproc_per_node` ranks on each of `max_nodes` hosts.

    rdzv_endpoint, rdzv_configs["rank"]: of several hosts, where the first is reached and the number of this one. max_restarts:
    how often all ranks are started again after a failure. Fields that say how torchrun's agents find and watch one another are
    kept and not used.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    local_addr: str | None = None
    event_log_handler: str = "null"
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        for name in ("duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"):
            if getattr(self, name):
                raise NotImplementedError(f"LaunchConfig({name}={getattr(self, name)!r}): leave it out")
        self.rdzv_configs.setdefault("timeout", 900)
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.logs_specs = self.logs_specs or DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(environment.mapping().get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        elif self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")


class elastic_launch:
    """elastic_launch(config, entrypoint)(*args): `entrypoint(*args)`, or the command, on each rank in a process of its own.

    Returns {rank: result}. A function, its arguments and results must be such as can be pickled. Where a rank fails all are
    ended, and started again as often as the config says; then ChildFailedError tells of the failures.
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(
    config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]
) -> dict[int, Any]:
    """As `elastic_launch`."""
    if entrypoint is None:
        raise ValueError("launch_agent: entrypoint is None: give a function or a command")
    config.run_id = config.run_id or str(uuid.uuid4().int)
    node, address, port = _place(config)
    first, ranks = node * config.nproc_per_node, config.max_nodes * config.nproc_per_node
    attempt = 0
    while True:
        master = address, str(port or free_port())
        result = _attempt(config, entrypoint, args, first, ranks, master, attempt)
        if not result.is_failed():
            return {first + local: value for local, value in result.return_values.items()}
        if attempt >= config.max_restarts:
            failures = {first + local: failure for local, failure in result.failures.items()}
            raise ChildFailedError(_get_entrypoint_name(entrypoint, args), failures)
        attempt += 1


def _attempt(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str,
    args: Sequence[Any],
    first: int,
    ranks: int,
    master: tuple[str, str],
    attempt: int,
) -> RunProcsResult:
    """Start all ranks of this host, and wait for their end."""
    local_ranks = range(config.nproc_per_node)
    common = {
        "GROUP_RANK": str(first // config.nproc_per_node),
        "ROLE_NAME": config.role,
        "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
        "WORLD_SIZE": str(ranks),
        "GROUP_WORLD_SIZE": str(config.max_nodes),
        "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": master[1],
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    envs = {
        k: {**common, "RANK": str(first + k), "ROLE_RANK": str(first + k), "LOCAL_RANK": str(k)}
        for k in local_ranks
    }
    template = config.log_line_prefix_template or ""
    prefixes = {
        k: Template(template).safe_substitute(role_name=config.role, rank=first + k, local_rank=k)
        for k in local_ranks
        if template
    }
    given = {
        k: tuple(str(a).replace("${local_rank}", str(k)) if isinstance(a, str) else a for a in args)
        for k in local_ranks
    }
    assert config.logs_specs is not None
    started = start_processes(
        config.role, entrypoint, given, envs, config.logs_specs, prefixes or None, config.start_method
    )
    try:
        result = started.wait(period=config.monitor_interval)
    finally:
        started.close(timeout=config.shutdown_timeout or 0)
    assert result is not None
    return result


def _place(config: LaunchConfig) -> tuple[int, str, int]:
    """The number of this host, and where the first is reached; port 0: any that is free."""
    host, _, port = config.rdzv_endpoint.strip().rpartition(":")
    if config.max_nodes == 1:
        return (
            0,
            host if config.rdzv_backend == "static" and host else "127.0.0.1",
            int(port or 0) if host else 0,
        )
    if (
        config.min_nodes != config.max_nodes
        or "rank" not in config.rdzv_configs
        or not (host and port.isdecimal())
    ):
        raise NotImplementedError(
            f"LaunchConfig(min_nodes={config.min_nodes}, max_nodes={config.max_nodes}): of several hosts each has a number, "
            'rdzv_configs={"rank": K}, and knows the first, rdzv_endpoint="HOST:PORT"; `ddprun --hosts` starts jobs of several'
        )
    return int(config.rdzv_configs["rank"]), host, int(port)


def _get_entrypoint_name(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> str:
    """What is started, as errors call it: of Python the script."""
    if callable(entrypoint):
        return entrypoint.__name__
    if entrypoint == sys.executable:
        return next((arg for arg in args if arg[0] != "-"), "")
    return entrypoint or ""


__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
