"""`ddprun doctor`: checks the parts of this machine that ddpgrad can use, and advises on the rest."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import ddpgrad
from ddpgrad.backend.cpu import mkl
from ddpgrad.core import environment
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed import mpi_shared_memory
from ddpgrad.distributed.failure import exit_codes

from ..job import mpi
from ..job.plan import usable_cores
from . import fabric

_GIB = 1 << 30
# Gradients, parameters and scratch of a few ranks of a middling model.
_ENOUGH_SHM = _GIB // 2
# Names that this package and MPI libraries give to segments.
_SEGMENTS = ("ddpgrad-*", *(f"{prefix}*" for prefix in mpi_shared_memory.PREFIXES))


class Finding(NamedTuple):
    """One line of the report. `todo`: an advice; '' where all is well."""

    subject: str
    what: str
    todo: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        mark = "ok     " if not self.todo else "FAILED " if self.fatal else "warning"
        return f"{mark}  {self.subject:<12} {self.what}" + (f"\n{'':23}{self.todo}" if self.todo else "")


def main(argv: Sequence[str]) -> int:
    """Run `ddprun doctor`; its exit code is 1 where ranks cannot work together here, or a GPU computes what is wrong."""
    description = "Check the parts of this machine that ddpgrad can use, and advise on the rest."
    parser = argparse.ArgumentParser(prog="ddprun doctor", description=description)
    parser.add_argument(
        "--clean",
        action="store_true",
        help="first remove shared memory of yours that killed jobs have left, where no process that is seen from "
        "here maps it (in a container, others may use it unseen)",
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="check the GPUs instead: every kernel of the CUDA backend against the CPU, exchanges, rates",
    )
    chosen = parser.parse_args(argv)
    if chosen.clean:
        for path in abandoned():
            path.unlink(missing_ok=True)
            print(f"removed {path}")
    if chosen.gpu:
        from . import gpu

        return gpu.main()
    code = exit_codes.FINISHED
    for finding in findings():
        print(finding, flush=True)
        if finding.fatal and finding.todo:
            code = exit_codes.RANK_FAILED
    return code


def findings() -> Iterator[Finding]:
    """All findings, one after the other; the last ones start processes."""
    for look in _LOOKS:
        yield look()


def _versions() -> Finding:
    names = ("numpy", "scipy", "numba", "ml_dtypes", "mpi4py")
    found = ", ".join(f"{name} {metadata.version(name)}" for name in names if find_spec(name))
    return Finding(
        "versions", f"ddpgrad {metadata.version('ddpgrad')}, Python {sys.version.split()[0]}, {found}"
    )


def _cores() -> Finding:
    cores = usable_cores()
    todo = "" if cores > 1 else "ranks will share one core: expect no speed-up from more than one"
    return Finding("cores", f"{cores} usable of {os.cpu_count()}", todo)


def _blas() -> Finding:
    import numpy.linalg  # noqa: F401 - which loads it
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return Finding(
            "BLAS", "none found", "NumPy multiplies matrices slowly without one: install its PyPI wheel"
        )
    words = ", ".join(
        f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in pools
    )
    words += " (ddprun gives each process one; --threads changes that)"
    if version := mkl.chosen():
        words += f"; large products by MKL {version}"
    return Finding("BLAS", words)


def _shared_memory() -> Finding:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Finding("/dev/shm", "missing", "ranks of one host meet there: mount it as tmpfs", fatal=True)
    free = shutil.disk_usage(folder).free
    todo = ""
    if free < _ENOUGH_SHM:
        todo = (
            "gradients of all ranks lie there: docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm"
        )
    return Finding("/dev/shm", f"{free / _GIB:.2f} GiB free", todo)


def abandoned() -> list[Path]:
    """This user's segments of shared memory, of jobs and MPI libraries, that no process has mapped for a minute."""
    mine = []
    for path in (path for pattern in _SEGMENTS for path in Path("/dev/shm").glob(pattern)):
        with contextlib.suppress(FileNotFoundError):  # its job has just removed it
            if (found := path.stat()).st_uid == os.getuid() and time.time() > found.st_mtime + 60:
                mine.append(path)
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if mine else ():
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            mapped |= {
                word for word in maps.read_text(errors="replace").split() if word.startswith("/dev/shm/")
            }
    return sorted(path for path in mine if str(path) not in mapped)


def _left_over() -> Finding:
    found = abandoned()
    size = sum(path.stat().st_size for path in found) / _GIB
    if not found:
        return Finding("left over", "no shared memory of killed jobs")
    what = f"{len(found)} segments of shared memory ({size:.1f} GiB), such as {found[0]}"
    return Finding("left over", what, "`ddprun doctor --clean` removes them")


# Functions of MPICH and of Open MPI tell whether the library takes addresses of GPU memory.
_LIBRARY = """
import ctypes, re
from mpi4py import MPI
print(MPI.Get_library_version())
found = re.search(r"/\\S*libmpi\\S*\\.so\\S*", open("/proc/self/maps").read())
library = ctypes.CDLL(found.group() if found else None)
answer = ctypes.c_int(-1)
if hasattr(library, "MPIX_GPU_query_support"):
    library.MPIX_GPU_query_support(0, ctypes.byref(answer))
elif hasattr(library, "MPIX_Query_cuda_support"):
    answer.value = library.MPIX_Query_cuda_support()
print(answer.value)
"""
_CUDA = {
    -1: "whether CUDA-aware is not known",
    0: "not CUDA-aware: GPU arrays go through host memory",
    1: "CUDA-aware",
}


def _mpi() -> Finding:
    if find_spec("mpi4py") is None:
        return Finding(
            "MPI", "mpi4py is not installed", "needed between hosts: pip install mpi4py and an MPI library"
        )
    # In a process of its own: a library that cannot start ends the process that loads it.
    asked = run([sys.executable, "-c", _LIBRARY])
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"]
        return Finding(
            "MPI",
            lines[-1][:120],
            'needed between hosts: pip install "ddpgrad[mpich]", or load the MPI module',
        )
    first, *_, cuda = asked.stdout.strip().splitlines()
    library = " ".join(first.split()) + f" ({_CUDA[int(cuda)]})"
    try:
        mpiexec = mpi.find()
        flavour = mpi.flavour(mpiexec)
    except LaunchError as error:
        return Finding("MPI", library, str(error))
    same = ("open mpi" in library.lower()) == (flavour == "openmpi")
    todo = (
        ""
        if same
        else "mpiexec and the library are of different kinds: each process would be alone; mend PATH"
    )
    return Finding("MPI", f"{library}; {mpiexec} ({flavour})", todo)


def _settings() -> Finding:
    return Finding("MPI settings", *fabric.settings(environment.mapping()))


def _network() -> Finding:
    return Finding("network", *fabric.network())


def _gpus() -> Finding:
    if find_spec("cupy") is None:
        there = shutil.which("nvidia-smi") is not None
        todo = 'pip install "ddpgrad[gpu]" to use it' if there else ""
        return Finding(
            "GPUs", "nvidia-smi is here, CuPy is not" if there else "none (CuPy is not installed)", todo
        )
    if not ddpgrad.cuda.is_available():
        return Finding("GPUs", "CuPy finds none", "look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    names = [ddpgrad.cuda.get_device_name(i) for i in range(ddpgrad.cuda.device_count())]
    return Finding("GPUs", ", ".join(names))


def _nccl() -> Finding:
    here = find_spec("cupy") is not None and ddpgrad.cuda.is_available()
    return Finding(
        "NCCL", "not used: gradients of GPUs travel through host memory" if here else "no GPU to use it with"
    )


_RANKS = """
import time
import numpy as np
from ddpgrad.distributed.ranks import host
me = host.current()
c = me.communicator()
a = c.allocate(4 << 20, np.float32)
times = []
for _ in range(8):
    a[...] = me.rank + 1
    c.barrier()
    began = time.perf_counter()
    c.all_reduce(a, label="doctor").wait()
    times.append(time.perf_counter() - began)
    assert a[0] == a[-1] == 3
if me.rank == 0:
    print(f"{a.nbytes / min(times) / 1e9:.1f}")
"""


def _two_ranks() -> Finding:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "ranks.py")
        script.write_text(_RANKS)
        done = run([sys.executable, "-P", "-m", "ddpgrad.launcher", "-n", "2", str(script)])
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return Finding("all-reduce", f"two ranks: exit code {done.returncode}", lines[-1], fatal=True)
    rate = done.stdout.split()[-1]
    return Finding("all-reduce", f"two ranks, 16 MiB of float32: {rate} GB/s")


def run(command: Sequence[str], seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with its output; `subprocess.TimeoutExpired` where it takes longer."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)


_LOOKS: tuple[Callable[[], Finding], ...] = (
    _versions, _cores, _blas, _shared_memory, _left_over, _mpi, _settings, _network, _gpus, _nccl, _two_ranks,
)  # fmt: skip
