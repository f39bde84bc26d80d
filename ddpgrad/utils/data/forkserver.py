"""Modules that the fork server of the workers imports before the first worker starts.

A program imported by a worker must not take itself for a rank: what the launcher said is removed from the
environment, but for RANK and its like, which say whose worker it is; and an import of mpi4py does not start MPI a
second time.
"""

from __future__ import annotations

import importlib.util

from ...core import environment
from . import worker  # and with it NumPy: shared by all workers

__all__ = ["worker"]

environment.be_worker(**environment.ranks())
if importlib.util.find_spec("mpi4py") is not None:
    import mpi4py

    mpi4py.rc.initialize = False
