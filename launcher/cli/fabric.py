"""What `ddprun doctor` says of the network between hosts: settings of MPI's libraries, and network devices. Reads only."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path

# Settings of mpi4py, and of what MPI libraries send by.
_PREFIXES = (
    "MPI4PY_LIBMPI", "MPI4PY_MPIABI", "UCX_", "FI_", "OMPI_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_",
    "PSM2_", "PSM3_", "MV2_",
)  # fmt: skip
_OWN_VALUE = 60
_DEVICES = Path("/sys/class/infiniband")


def settings(environment: Mapping[str, str], devices: Path = _DEVICES) -> tuple[str, str]:
    """The settings of MPI's libraries in `environment`, and an advice, '' where none is needed."""
    found = {name: environment[name] for name in sorted(environment) if name.startswith(_PREFIXES)}
    words = ", ".join(f"{name}={value[:_OWN_VALUE]}" for name, value in found.items())
    library = found.get("MPI4PY_LIBMPI", "")
    if "/" in library and not Path(library).exists():
        return words, f"MPI4PY_LIBMPI names a file that does not exist: {library}"
    kinds = {kind for kind, _ in _devices(devices)}
    for variable, wanted, reached in (
        ("UCX_TLS", kinds & {"InfiniBand", "RoCE"}, ("all", "rc", "ud", "dc", "ib")),
        ("FI_PROVIDER", kinds & {"EFA"}, ("efa",)),
    ):
        chosen = found.get(variable, "")
        # A list may also say, after a ^, what not to take.
        if (
            wanted
            and chosen
            and not chosen.startswith("^")
            and not any(one.startswith(reached) for one in chosen.split(","))
        ):
            out = " and ".join(sorted(wanted))
            return words, f"{variable}={chosen} leaves {out} out; unset it, or add {reached[-1]}"
    return words or "none: the MPI library chooses the network", ""


def network(devices: Path = _DEVICES, nodes: Path = Path("/dev/infiniband")) -> tuple[str, str]:
    """The devices for fast networks, and an advice, '' where none is needed. nodes: the files that programs open."""
    found = _devices(devices)
    if not found:
        return "no InfiniBand, RoCE or EFA device: TCP between hosts", ""
    words = ", ".join(text for _, text in found)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY:
        words += f"; memory lock limit {locked // 1024} KiB"
    if not nodes.exists():
        return words, f"{nodes} is not there, as in a container: start it with --device {nodes}"
    if locked != resource.RLIM_INFINITY:
        return words, (
            "these devices need locked memory: ulimit -l unlimited (Slurm: PropagateResourceLimitsExcept=MEMLOCK; "
            "docker run --ulimit memlock=-1)"
        )
    if "ACTIVE" not in words:
        return words, "no port is active: look at ibstat, and at the cable or the subnet manager"
    return words, ""


def _devices(folder: Path) -> list[tuple[str, str]]:
    """The kind of each device, and its name with rate and state of its ports."""
    found = []
    for device in sorted(folder.iterdir()) if folder.is_dir() else ():
        efa = (device / "device" / "driver").resolve().name == "efa"
        for port in sorted((device / "ports").glob("*")):
            layer = "RoCE" if _read(port / "link_layer") == "Ethernet" else "InfiniBand"
            kind = "EFA" if efa else layer
            rate, state = _read(port / "rate"), _read(port / "state").rpartition(" ")[2]
            found.append((kind, f"{device.name} {kind} {rate} {state}".replace("  ", " ")))
    return found


def _read(file: Path) -> str:
    """The line of a file of the kernel's; '' where a driver has none, or gives none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
