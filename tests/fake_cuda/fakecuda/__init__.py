"""A CUDA made of threads of the CPU, under the real CuPy: see README.md beside this package.

import fakecuda
fakecuda.activate()  # before CuPy is imported; then CuPy and this process's children have GPUs
"""

import atexit
import ctypes
import json
import os
import platform
import sys
from pathlib import Path

from . import build

_COUNTERS = (
    "launches", "synchronisations", "allocations", "to_device", "to_host", "between_devices", "products",
    "graph_launches",
)  # fmt: skip
_HERE = Path(__file__).parent.parent


def why_not() -> str | None:
    """Why the stand-in cannot be used here, or None."""
    from .under_cupy import RELEASE

    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "needs Linux on x86-64"
    if build.compiler() is None:
        return "no g++"
    found = build.installed()
    if found is None:
        return f"needs cupy-cuda12x or cupy-cuda13x {RELEASE}, which are not installed"
    if not found[1].startswith(f"{RELEASE}."):
        return f"needs cupy-cuda{found[0]}x {RELEASE}, not {found[1]}"
    if build.cuda_headers() is None:
        return f"no CUDA headers: pip install '{build.runtime_wheel()}'"
    return None


def activate() -> None:
    """Let CuPy find the stand-in when it is imported, here and in processes that are started from here."""
    from .under_cupy import Finder

    if "cupy" in sys.modules:
        raise RuntimeError("fakecuda.activate() comes too late: CuPy is imported already")
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(_HERE) not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(_HERE), *filter(None, paths)])
        atexit.register(log)


def active() -> bool:
    """Whether CuPy is on the stand-in in this process."""
    from .under_cupy import Loaded

    return Loaded.machine is not None


def counters() -> dict[str, int]:
    """What this process did so far: launches, synchronisations, allocations, copies by direction, products of cuBLAS."""
    counted = (ctypes.c_long * len(_COUNTERS))()
    _machine().fakecuda_counters(counted)
    return dict(zip(_COUNTERS, counted, strict=True))


def launched() -> dict[str, int]:
    """How often each kernel was launched in this process, by its name."""
    found: dict[str, int] = {}

    def note(name: bytes, count: int) -> None:
        found[name.decode()] = count

    _machine().fakecuda_launched(ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_long)(note))
    return found


def refusal() -> str:
    """Why the machine last refused a call; '' where it did not."""
    return _machine().fakecuda_refusal().decode()


def _machine() -> ctypes.CDLL:
    from .under_cupy import Loaded

    if Loaded.machine is None:
        raise RuntimeError("the stand-in is not in use: CuPy was not imported after fakecuda.activate()")
    return Loaded.machine


def log() -> None:
    """Append what this process launched to the file FAKE_CUDA_LOG; done at its end, if not before."""
    path = os.environ.get("FAKE_CUDA_LOG")
    if path and active():
        with Path(path).open("a") as file:
            file.write(json.dumps(launched()) + "\n")
