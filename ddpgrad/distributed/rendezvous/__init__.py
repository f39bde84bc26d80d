"""How ranks meet that neither ddprun nor an MPI launcher started: under torchrun, Kubeflow, `mp.Process`, SSH.

`place` finds out where, from the arguments of `init_process_group` or the environment; `gathering` lets the ranks
find each other there; ranks of one host then meet in shared memory under the random name that rank 0 has drawn, as
under ddprun, and those of several hosts begin MPI together (`mpi_world`, `process_manager`). A world that is named
and cannot be met is an error, never a world of one.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .handlers import register_rendezvous_handler as register_rendezvous_handler
from .handlers import rendezvous as rendezvous


class _Callable(ModuleType):
    """This module, which PyTorch's programs call, too: `torch.distributed.rendezvous` is the function there."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return rendezvous(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
