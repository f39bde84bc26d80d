"""Communication hooks for `DistributedDataParallel.register_comm_hook`, and their names in one enumeration."""

from . import (
    ddp_zero_hook as ddp_zero_hook, debugging_hooks as debugging_hooks, default_hooks as default_hooks,
    post_localSGD_hook as post_localSGD_hook, powerSGD_hook as powerSGD_hook, quantization_hooks as quantization_hooks,
)
from .hook_types import DDPCommHookType as DDPCommHookType, register_ddp_comm_hook as register_ddp_comm_hook

# Other names of what is above.
debugging = debugging_hooks
default = default_hooks
powerSGD = powerSGD_hook
quantization = quantization_hooks
