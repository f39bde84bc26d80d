"""g++, the folder of what it made, and the headers that it needs."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


def cache() -> Path:
    """Where everything built is kept, by content: FAKE_CUDA_CACHE, or a folder for temporary files."""
    folder = Path(
        os.environ.get("FAKE_CUDA_CACHE") or Path(tempfile.gettempdir()) / f"fake-cuda-{os.getuid()}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def installed() -> tuple[int, str] | None:
    """CUDA's release that CuPy's wheel is made for, 12 or 13, and CuPy's own; None without such a wheel."""
    for release in (12, 13):
        with contextlib.suppress(PackageNotFoundError):
            return release, version(f"cupy-cuda{release}x")
    return None


def cuda() -> int:
    """CUDA's release here."""
    return (installed() or (12, ""))[0]


def runtime_wheel() -> str:
    """The wheel that has CUDA's headers for CuPy's."""
    return "nvidia-cuda-runtime-cu12==12.9.*" if cuda() == 12 else "nvidia-cuda-runtime==13.0.*"


def cuda_headers() -> Path | None:
    """CUDA's headers of the release that CuPy is for: FAKE_CUDA_INCLUDE, or those of `runtime_wheel`."""
    if told := os.environ.get("FAKE_CUDA_INCLUDE"):
        return Path(told)
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(folder) / ("cuda_runtime" if cuda() == 12 else "cu13") / "include"
        if (found / "cuda_runtime_api.h").exists():
            return found
    return None


def compiler() -> str | None:
    return shutil.which("g++")


def digest(*parts: str | bytes) -> str:
    """A name for what these parts make."""
    told = hashlib.sha1()
    for part in parts:
        told.update(part.encode() if isinstance(part, str) else part)
        told.update(b"\0")
    return told.hexdigest()[:20]


class CompileError(RuntimeError):
    """What g++ said, and the command."""


def of_this_thread(path: Path, suffix: str = ".part") -> Path:
    """A neighbour of a file that no other process and no other thread writes."""
    return path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}{suffix}")


def run(arguments: Sequence[str | Path], made: Path) -> Path:
    """Let g++ make the file `made`, which appears when it is whole: other processes may build it, too."""
    rough = of_this_thread(made)
    command = [compiler() or "g++", *map(str, arguments), "-o", str(rough)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise CompileError("\n".join(["g++ failed:", *errors[:20], " ".join(command)]))
    rough.replace(made)
    return made


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Other processes that build the same wait until this one has."""
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def machine() -> Path:
    """The driver and the runtime, as one shared library."""
    headers = cuda_headers()
    assert headers is not None, "no CUDA headers; fakecuda.why_not() says what to install"
    sources = sorted((HERE / "machine").glob("*.cpp"))
    parts = [path.read_bytes() for path in sorted((HERE / "machine").iterdir())]
    made = cache() / f"machine-{digest(*parts, str(headers))}.so"
    with one_at_a_time("machine"):
        if not made.exists():
            options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
            run([*options, f"-I{HERE / 'include'}", f"-I{headers}", *sources, "-ldl"], made)
    return made
