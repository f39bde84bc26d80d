"""DataParallel: PyTorch's wrapper for several GPUs in one process; here it holds a module on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module


class DataParallel(Module):
    """Calls `module`; its state_dict has the prefix "module.", as in PyTorch.

    device_ids: one device at most, to which the module moves. Several are an error: ranks do that work
    here, each with a device of its own (`DistributedDataParallel`). Without device_ids the module stays
    where it is. output_device, dim: accepted for PyTorch's sake.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                f"DataParallel: {len(device_ids)} devices in one process are not supported; use "
                "nn.parallel.DistributedDataParallel, with one rank a device: ddprun -n "
                f"{len(device_ids)} train.py"
            )
        self.dim, self.device_ids, self.output_device = dim, list(device_ids or ()), output_device
        self.module = module.to(device_ids[0]) if device_ids else module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """`module` called with `inputs`, a tensor or a tuple of arguments; devices as in `DataParallel`."""
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*args, **(module_kwargs or {}))
