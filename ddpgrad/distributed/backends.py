"""The backends of process groups, by PyTorch's names, and which of them this installation has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

# PyTorch's names of backends and ours, and the transport that each asks for (None: the fastest).
TRANSPORTS = {None: None, "gloo": None, "virtual": "virtual", "shm": "shm", "shm,mpi": "shm,mpi", "mpi": "mpi",
    "hierarchical": "hierarchical", "nccl": "nccl",
}  # fmt: skip

default_pg_timeout = timedelta(minutes=10)


class Backend(str):
    """The name of a backend, in lower case; ValueError for one that is unknown."""

    UNDEFINED = "undefined"
    GLOO, NCCL, MPI, UCC, XCCL = "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = tuple(name for name in TRANSPORTS if name)
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend: expected a name, got {name!r}")
        return super().__new__(cls, check("Backend", name))


def check(caller: str, backend: str | None) -> str | None:
    """`backend` in lower case, without device types ("cpu:gloo,cuda:nccl" is "nccl")."""
    name = backend.rpartition(":")[2].lower() if backend else None
    if name not in TRANSPORTS:
        known = ", ".join(Backend.backend_list)
        raise ValueError(f"{caller}: unknown backend {backend!r}; expected one of {known}, or None")
    return name


def transport(name: str | None, mpi: bool) -> str | None:
    """The transport that a backend asks for; None: the fastest, as for "gloo".

    mpi: whether MPI started the ranks. Where it did not, PyTorch's "mpi" stands for what carries the job.
    """
    return None if name == "mpi" and not mpi else TRANSPORTS[name]


def is_gloo_available() -> bool:
    """True: scripts that ask for Gloo get the transports of this package."""
    return True


def is_nccl_available() -> bool:
    """True when CuPy with NCCL is installed and there is a GPU."""
    from .transports import why_no_nccl

    return why_no_nccl() is None


def is_mpi_available() -> bool:
    """True when an MPI library can be loaded. Where it did not start the ranks, "mpi" stands for what carries the job."""
    from .transports import mpi_available

    return mpi_available()


def is_ucc_available() -> bool:
    """False: there is no transport by UCC."""
    return False


def is_xccl_available() -> bool:
    """False: there is no transport for Intel's GPUs."""
    return False


def is_backend_available(backend: str) -> bool:
    """True when `init_process_group(backend)` can be expected to work."""
    name = backend.lower()
    if name in ("nccl", "mpi"):
        return is_nccl_available() if name == "nccl" else is_mpi_available()
    return name in TRANSPORTS


def get_default_backend_for_device(device: Any) -> str:
    """The name that PyTorch's programs give for tensors of `device`: 'nccl' for GPUs, else 'gloo'."""
    kind = device if isinstance(device, str) else device.type
    return "nccl" if kind.partition(":")[0] == "cuda" else "gloo"
