"""Compile every kernel source that the stand-in has seen with NVIDIA's own compiler, which needs no GPU.

    pytest -m fakegpu                      # the stand-in keeps the sources that CuPy hands to its compiler
    python tests/gpu/compile_all.py        # NVRTC makes machine code of them for several generations of GPUs

Needs cupy-cuda12x, nvidia-cuda-nvrtc-cu12 and nvidia-cuda-runtime-cu12, or cupy-cuda13x, nvidia-cuda-nvrtc==13.0.* and
nvidia-cuda-runtime==13.0.*. Exit code 1 where a source does not compile, or its blocks have more threads than registers allow.
"""

import argparse
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "fake_cuda"))

from fakecuda import build

REGISTERS = 65536  # of a block
# What the compiler says of each kernel, and the threads of a block that a kernel promises to have at most.
_USED = re.compile(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", re.DOTALL)
_BOUND = re.compile(r"__launch_bounds__\((\d+)\)\s+(\w+)")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")  # A100, H100, B200


def options() -> tuple[str, ...]:
    """What CuPy passes to NVRTC, but for the architecture."""
    import cupy

    include = Path(cupy.__file__).parent / "_core" / "include"
    cccl = include / "cupy" / "_cccl"
    folders = [cccl / "cub", cccl / "thrust", cccl / "libcudacxx", include, build.cuda_headers()]
    flags = ("--std=c++17", "-ftz=true", "--device-as-default-execution-space")
    return *flags, *(f"-I{folder}" for folder in folders)


def refusal(source: str, log: str) -> str | None:
    """Which kernel a GPU would not launch, by the compiler's log. CuPy's blocks have 128 threads, those that reduce 512."""
    bounds = {name: int(threads) for threads, name in _BOUND.findall(source)}
    for name, registers in _USED.findall(log):
        threads = bounds.get(name, 512 if "__shared__" in source else 128)
        if int(registers) * threads > REGISTERS:
            return f"{name}: {registers} registers in each of {threads} threads"
    return None


def failure(path: Path, architectures: tuple[str, ...]) -> str | None:
    """What NVRTC says of a source that does not compile or would not be launched, or None."""
    from cupy_backends.cuda.libs import nvrtc

    source = path.read_text()
    for architecture in architectures:
        program = nvrtc.createProgram(source, path.name, (), ())
        try:
            nvrtc.compileProgram(program, (*options(), f"-arch={architecture}", "--ptxas-options=-v"))
            if reason := refusal(source, nvrtc.getProgramLog(program)):
                return f"{path} for {architecture}: {reason}"
        except nvrtc.NVRTCError:
            return f"{path} for {architecture}:\n{nvrtc.getProgramLog(program)}"
        finally:
            nvrtc.destroyProgram(program)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sources", nargs="?", type=Path, help="folder of .cu files (default: the stand-in's cache)"
    )
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--only", default="", help="sources that contain this text, such as ddpgrad_")
    args = parser.parse_args()
    folder = args.sources or build.cache()
    paths = [path for path in sorted(folder.glob("*.cu")) if args.only in path.read_text()]
    if not paths:
        raise SystemExit(f"{folder} has no kernel sources; `pytest -m fakegpu` writes them")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(failure, paths, [tuple(args.arch)] * len(paths)))
    failures = [text for text in found if text]
    print("\n".join([*failures, f"{len(paths)} sources for {', '.join(args.arch)}: {len(failures)} fail"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
