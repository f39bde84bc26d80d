"""Functions that change how a module runs, and leave it the module that it is: `checkpoint`, `replicate`, `fully_shard`."""

from .checkpoint_activation import checkpoint as checkpoint
from .contract import _get_registry as _get_registry
from .contract import contract as contract
from .replicate import replicate as replicate
