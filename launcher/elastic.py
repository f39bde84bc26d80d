"""`torch.distributed.launcher.api`: a function on several ranks of this host, as notebooks start it.

What torchrun agrees on between hosts has no counterpart: `ddprun --hosts` starts jobs of several hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ddpgrad import multiprocessing
from ddpgrad.core import environment


@dataclasses.dataclass
class LaunchConfig:
    """What to start: `nproc_per_node` ranks on one host. The other fields are PyTorch's, kept and not used."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: Any = None
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

    def __post_init__(self) -> None:
        if self.max_nodes != 1:
            raise NotImplementedError(
                f"LaunchConfig(max_nodes={self.max_nodes}): ranks of one host are started here; `ddprun --hosts` starts "
                "jobs of several"
            )


class elastic_launch:
    """elastic_launch(config, entrypoint)(*args): `entrypoint(*args)` on each rank, in a process of its own.

    Returns {rank: result}. The function and its results must be such as can be pickled. What a rank raises ends all, and
    is raised as `multiprocessing.ProcessRaisedException`; nothing is started again.
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any]) -> None:
        self._ranks, self._entrypoint = config.nproc_per_node, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        results = multiprocessing.get_context("spawn").SimpleQueue()
        given = (self._ranks, self._entrypoint, args, results)
        started = multiprocessing.spawn(_run, given, self._ranks, join=False)
        assert started is not None
        found: dict[int, Any] = {}
        try:
            ended = False
            while not ended:
                ended = started.join(timeout=0.1)
                while not results.empty():
                    found.update([results.get()])
        except BaseException:
            started.stop()
            raise
        return dict(sorted(found.items()))


def _run(rank: int, ranks: int, entrypoint: Callable[..., Any], args: tuple[Any, ...], results: Any) -> None:
    me, all_ranks = str(rank), str(ranks)
    environment.export(RANK=me, LOCAL_RANK=me, WORLD_SIZE=all_ranks, LOCAL_WORLD_SIZE=all_ranks)
    results.put((rank, entrypoint(*args)))


__all__ = ["LaunchConfig", "elastic_launch"]
