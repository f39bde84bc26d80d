"""Communication hooks for `DistributedDataParallel.register_comm_hook`, and their names in one enumeration."""

from . import (
    debugging_hooks as debugging_hooks, default_hooks as default_hooks, post_localSGD_hook as post_localSGD_hook,
    powerSGD_hook as powerSGD_hook,
)
from .hook_types import DDPCommHookType as DDPCommHookType, register_ddp_comm_hook as register_ddp_comm_hook
