"""Libraries by CUDA's names, with each function that CuPy's extensions take from them.

A function that nothing is put in the place of says its name and fails: no call is lost in silence.
"""

import ctypes
from collections import defaultdict
from pathlib import Path

from . import build, symbols

# By the first letters of a function's name: what a library returns for what it does not support.
_NOT_SUPPORTED = {
    "cublas": 15,
    "cusolver": 9,
    "cusparse": 10,
    "cufft": 16,
    "curand": 204,
    "nvrtc": 7,
    "nccl": 5,
    "cuda": 801,
}
# Loaded at run time by these names, by CuPy or by its package that finds CUDA's libraries: no extension asks for them.
_AT_RUN_TIME = {
    "nvrtc": {"nvrtcVersion"},
    "cusolver": {"cusolverDnXgeev", "cusolverDnXgeev_bufferSize"},
    "cublas": {"cublasSetWorkspace_v2"},
    "cublasLt": set[str](),
    "nvJitLink": set[str](),
}


def prefix_of(name: str) -> str | None:
    return next((prefix for prefix in _NOT_SUPPORTED if name.startswith(prefix)), None)


def names_by_library(extensions: list[Path]) -> dict[str, set[str]]:
    """The functions that the extensions take, by the library that they take them from."""
    number = {name: build.cuda() - (name == "cusolver") for name in _AT_RUN_TIME}  # whose own is one behind
    names = {f"lib{name}.so.{number[name]}": set(functions) for name, functions in _AT_RUN_TIME.items()}
    found: dict[str, set[str]] = defaultdict(set, names)
    for extension in extensions:
        libraries = symbols.needed(extension)
        for name, version in symbols.undefined(extension):
            prefix = prefix_of(name)
            if prefix is None or prefix == "cuda":
                continue
            library = version or next(n for n in libraries if n.startswith(f"lib{prefix}."))
            found[library].add(name)
    return found


def shell(library: str, names: set[str]) -> Path:
    """A shared library of this name whose functions all refuse."""
    lines = ['extern "C" void fakecuda_refuse(const char* text);']
    for name in sorted(names):
        code = _NOT_SUPPORTED[prefix_of(name) or "cuda"]
        lines.append(
            f'extern "C" int {name}() {{ fakecuda_refuse("{name} is not part of the stand-in"); return {code}; }}'
        )
    text = "\n".join([*lines, ""])
    made = build.cache() / f"{library}-{build.digest(text)}"
    with build.one_at_a_time("shells"):
        if not made.exists():
            source = made.with_name(f"{made.name}.cpp")
            versions = made.with_name(f"{made.name}.map")
            source.write_text(text)
            versions.write_text(f"{library} {{ *; }};\n")
            options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
            build.run(["-shared", "-fPIC", "-O1", *options, source], made)
    return made


def load(library: str, names: set[str]) -> ctypes.CDLL:
    return ctypes.CDLL(str(shell(library, names)), ctypes.RTLD_GLOBAL)
