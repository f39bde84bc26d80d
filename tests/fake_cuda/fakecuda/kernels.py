"""Kernels by g++: a source of CUDA C++ becomes a shared object, kept by content."""

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import build

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
_EXTERN_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w :<>]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
# What only works where each thread has a stack of its own.
_WAITS = re.compile(r"__syncthreads|__shfl|__syncwarp|warp_matrices|_sync\s*\(|fakecuda_(barrier|exchange)")
_CUPY_HEADERS = ("complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h")


class Compiled:
    """How many kernels g++ made in this process, and how many were kept from before."""

    made = 0
    kept = 0


@functools.cache
def _options() -> tuple[str, ...]:
    import cupy

    include = Path(cupy.__file__).parent / "_core" / "include"
    cccl = include / "cupy" / "_cccl"
    folders = [
        build.HERE,
        build.HERE / "include",
        include,
        cccl / "libcudacxx",
        cccl / "cub",
        cccl / "thrust",
    ]
    folders.append(build.cuda_headers() or Path())
    warnings = ["-w", "-fpermissive"]  # CuPy's sources rely on what nvcc allows
    code = ["-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing"]
    nvcc = os.environ.get("FAKE_CUDA_ROUNDING") == "nvcc"  # which rounds a * b + c once
    code += ["-ffp-contract=fast", "-fexpensive-optimizations", "-mfma"] if nvcc else ["-ffp-contract=off"]
    checks = ["-fsanitize=alignment"]  # the machine has what it calls, in place of a library
    return *warnings, *code, *checks, *(f"-I{folder}" for folder in folders)


@functools.cache
def _headers() -> Path:
    """All headers of kernels as one, precompiled: to read it takes a tenth of the time."""
    own = [build.HERE / "kernel.h", build.HERE / "special.h", build.HERE / "machine" / "fibers.h"]
    lines = ['#include "kernel.h"', *(f"#include <cupy/{name}>" for name in _CUPY_HEADERS)]
    options = [
        option.replace(str(build.HERE), "") for option in _options()
    ]  # another checkout has the same kernels
    name = f"headers-{build.digest(*(path.read_bytes() for path in own), *options)}.h"
    header = build.cache() / name
    made = header.with_name(f"{name}.gch")
    with build.one_at_a_time("headers"):
        if not made.exists():
            header.write_text("\n".join([*lines, ""]))
            build.run(["-x", "c++-header", *_options(), header], made)
    return header


def compiled(source: str, options: Sequence[str]) -> Path:
    """The shared object of a source, which is kept beside it as NAME.cu for `tests/gpu/compile_all.py`."""
    defines = [option for option in options if option.startswith(("-D", "--define"))]
    headers, text = _headers(), _translated(source)
    made = build.cache() / f"{build.digest(headers.name, text, *defines)}.so"
    if made.exists():
        Compiled.kept += 1
        return made
    Compiled.made += 1
    rough = build.of_this_thread(made)
    rough.write_text(source)
    rough.replace(made.with_suffix(".cu"))
    translated = build.of_this_thread(made, ".cpp")
    translated.write_text(text)
    build.run(
        ["-x", "c++", *_options(), *defines, "-shared", "-nodefaultlibs", "-include", headers, translated],
        made,
    )
    translated.unlink()
    return made


def _translated(source: str) -> str:
    text = _EXTERN_SHARED.sub(r"\1* \2 = (\1*)fakecuda_now.shared;", source)
    entries = [
        f'extern "C" void fakecuda_run_{name}(void** arguments) {{ fakecuda_call({name}, arguments); }}\n'
        f'extern "C" const unsigned* fakecuda_sizes_{name}() {{ return fakecuda_sizes({name}); }}'
        for name in _KERNEL.findall(source)
    ]
    waits = "true" if _WAITS.search(source) else "false"
    return "\n".join([text, *entries, f'extern "C" {{ extern const bool fakecuda_waits = {waits}; }}', ""])


def in_place_of_nvrtc(
    source: str, options: Sequence[str] = (), *arguments: Any, name_expressions: Any = None, **others: Any
) -> tuple[bytes, dict[str, str]]:
    """What CuPy asks NVRTC for: an image of the machine's, and no names that were mangled."""
    if name_expressions:
        raise NotImplementedError("the stand-in for CUDA has no kernels that are templates")
    return b"fake CUDA:" + os.fsencode(compiled(source, options)) + b"\0", {}
