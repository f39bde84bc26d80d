"""`ZeroRedundancyOptimizer`: each rank keeps the optimizer's state of its share of the parameters only.

Source: https://arxiv.org/abs/1910.02054 (stage 1); names and arguments are those of
https://pytorch.org/docs/stable/distributed.optim.html
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.tensor import Tensor
from ...ops.creation.data import as_tensor
from ...optim.optimizer import Optimizer, ParamsT
from ..process_group import ProcessGroup, resolve
from ..tensor_work import on_host
from .replica_check import broadcast, start_broadcast

if TYPE_CHECKING:
    from .join import OptimizerJoinHook

_log = logging.getLogger("ddpgrad.distributed")


class ZeroRedundancyOptimizer(Optimizer):
    """`optimizer_class(params, **defaults)` whose state is divided among the ranks.

    Each parameter is updated by one rank, which then gives it to the others; gradients must be
    equal on all ranks, as DistributedDataParallel leaves them. Parameters have the same bits as
    with the optimizer itself. parameters_as_bucket_view: accepted for PyTorch's sake.
    overlap_with_ddp: the updates happen within backward, by a hook of `algorithms.ddp_comm_hooks.ddp_zero_hook`, and `step`
    does nothing.
    """

    _join_config: Any = None  # since the first `Join`

    def __init__(
        self,
        params: ParamsT,
        optimizer_class: Callable[..., Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        self.overlap_with_ddp = overlap_with_ddp
        self._parts: dict[str, list[dict[str, Any]]] = {}  # of the groups, by bucket
        self.process_group = resolve(process_group)
        self._loads = [0] * self.process_group.size()  # elements that each rank updates
        self._owners: dict[Tensor, int] = {}
        self._whole: dict[str, Any] | None = None
        given: list[Any] = list(params)
        if not given:
            raise ValueError("ZeroRedundancyOptimizer: the optimizer got an empty parameter list")
        groups = [dict(g) for g in given] if given and isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            listed = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
            group["params"] = listed
            wrong = [p for p in listed if not isinstance(p[1] if isinstance(p, tuple) else p, Tensor)]
            if wrong:
                raise TypeError(
                    f"ZeroRedundancyOptimizer: params must be Tensors or groups of them, got {type(wrong[0]).__name__}"
                )
            self._deal([p[1] if isinstance(p, tuple) else p for p in listed])
        self.optim = optimizer_class([self._own(group) for group in groups], **defaults)
        super().__init__(groups, self.optim.defaults)
        self.state = self.optim.state

    def _deal(self, parameters: list[Tensor]) -> None:
        """Give each parameter, the largest first, to the rank that has least to do.

        Where buckets are updated one by one, neighbours go to one rank, so that few ranks share a bucket.
        """
        if self.overlap_with_ddp:
            whole, before = sum(p.numel() for p in parameters), 0
            for parameter in reversed(parameters):
                middle = 2 * before + parameter.numel()
                self._owners[parameter] = self.process_group.size() * middle // (2 * whole + 1)
                before += parameter.numel()
            return
        for parameter in sorted(parameters, key=lambda p: -p.numel()):
            owner = self._loads.index(min(self._loads))
            self._owners[parameter] = owner
            self._loads[owner] += parameter.numel()

    def _own(self, group: dict[str, Any]) -> dict[str, Any]:
        """`group` with this rank's parameters only."""
        rank = self.process_group.rank()
        mine = [p for p in group["params"] if self._owners[p[1] if isinstance(p, tuple) else p] == rank]
        return {**group, "params": mine}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, and deal them to the ranks."""
        late = "optim" in self.__dict__ and len(self.param_groups) >= len(self.optim.param_groups)
        if late:
            given = param_group["params"]
            param_group["params"] = [given] if isinstance(given, Tensor) else list(given)
            self._deal([p[1] if isinstance(p, tuple) else p for p in param_group["params"]])
            self.optim.add_param_group(self._own(param_group))
            self._parts.clear()
        super().add_param_group(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's parameters and take over the others' from their ranks. Collective."""
        if self._join_config is not None:
            from .join import Join  # here, as few programs join

            Join.notify_join_context(self)
        if self.overlap_with_ddp:
            _log.warning(
                "`step()` should not be included in the training loop when `overlap_with_ddp=True`: the hook of "
                "DistributedDataParallel updates parameters within backward"
            )
            return None
        return self.step_of_others(*([] if closure is None else [closure]))

    def step_of_others(self, *closure: Callable[[], Any]) -> Any:
        """As `step`, on a rank without a batch: see `Join`."""
        if self.overlap_with_ddp:
            return None  # the hook of the model has done it
        loss = self._update(self.optim.param_groups, *closure)
        for rank in range(self.process_group.size()):
            owned = [p for p, owner in self._owners.items() if owner == rank]
            broadcast(self.process_group.communicator, owned, f"parameters that rank {rank} updates", rank)
        return loss

    def start_step(self, parameters: list[Tensor], label: str) -> Callable[[], None]:
        """Update those of `parameters` that are this rank's, and begin to take over the others; what is returned waits for them.

        parameters: of one dtype, always the same for one `label`. Collective.
        """
        c, members = self.process_group.communicator, set(parameters)
        groups = self.optim.param_groups
        if label not in self._parts:
            own = [{**group, "params": [p for p in group["params"] if p in members]} for group in groups]
            self._parts[label] = own
        try:
            self._update(self._parts[label])
        finally:
            self.optim.param_groups = groups
        owners = sorted({self._owners[p] for p in members if p in self._owners})
        owned = [(rank, [p for p in parameters if self._owners.get(p) == rank]) for rank in owners]
        ends = [start_broadcast(c, part, f"rank {rank} updates {label}", rank) for rank, part in owned]

        def finish() -> None:
            for end in ends:
                end()

        return finish

    def join_hook(self, **kwargs: Any) -> OptimizerJoinHook:
        """What a rank without batches does in the steps of the others; see `Join`."""
        from .join import OptimizerJoinHook

        return OptimizerJoinHook(self)

    @property
    def join_device(self) -> Any:
        """Where the parameters are."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The ranks that have a part of the state."""
        return self.process_group

    def _update(self, groups: list[dict[str, Any]], *closure: Callable[[], Any]) -> Any:
        """Update this rank's parameters in `groups`, which are its optimizer's or parts of them."""
        for whole, mine in zip(self.param_groups, groups, strict=True):
            mine.update({k: v for k, v in whole.items() if k not in ("params", "param_names")})
        self.optim.param_groups = groups
        self._whole = None
        # Without the hooks around it: this step has them.
        return getattr(type(self.optim).step, "__wrapped__", type(self.optim).step)(self.optim, *closure)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the state of all ranks together on rank `to`, for its `state_dict`. Collective."""
        root = self.process_group.place(to, "consolidate_state_dict: to")
        c = self.process_group.communicator
        numbers = {p: n for n, p in enumerate(p for group in self.param_groups for p in group["params"])}
        state: dict[int, dict[str, Any]] = {}
        for src in range(c.size):
            mine = {numbers[p]: s for p, s in self.optim.state.items()} if c.rank == src else {}
            kept = [
                (n, name, ["tensor", list(v.shape), v.dtype.name] if isinstance(v, Tensor) else ["plain", v])
                for n, values in mine.items()
                for name, v in values.items()
            ]
            for n, name, (kind, *about) in c.broadcast_object(kept, src):
                if kind == "plain":
                    value = about[0]
                else:
                    tensor = mine[n][name] if c.rank == src else None
                    array = np.zeros(about[0], _numpy(about[1])) if tensor is None else on_host(tensor).copy()
                    c.broadcast(array, src, f"optimizer state {name}")
                    value = as_tensor(array)
                if c.rank == root:
                    state.setdefault(n, {})[name] = value
        if c.rank == root:
            packed = super().state_dict()
            packed["state"] = dict(sorted(state.items()))
            self._whole = packed

    def state_dict(self) -> dict[str, Any]:
        """What the optimizer alone would have, on the rank that `consolidate_state_dict` named."""
        if self._whole is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.process_group.rank()})` on all ranks beforehand if you meant to save the global state."
            )
        return self._whole

    def sharded_state_dict(self) -> dict[str, Any]:
        """This rank's part of the state: a nested dict, of which a Checkpointer joins those of all ranks."""
        numbers = {p: n for n, p in enumerate(p for group in self.param_groups for p in group["params"])}
        packed = super().state_dict()
        packed["state"] = {numbers[p]: state for p, state in self.optim.state.items()}
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options, and of the whole state this rank's share."""
        everyone = [p for group in self.param_groups for p in group["params"]]
        own = {p: n for n, p in enumerate(p for group in self.optim.param_groups for p in group["params"])}
        state = {own[everyone[n]]: s for n, s in state_dict["state"].items() if everyone[n] in own}
        groups = []
        for saved, mine in zip(state_dict["param_groups"], self.optim.param_groups, strict=True):
            groups.append({**saved, "params": [own[p] for p in mine["params"]]})
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        for whole, mine in zip(self.param_groups, self.optim.param_groups, strict=True):
            whole.update({k: v for k, v in mine.items() if k not in ("params", "param_names")})
        self.state = self.optim.state
        self._whole = None


def _numpy(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))
