"""The stand-in goes under CuPy in two steps: libraries before it is imported, its compiler and sorting after.

CuPy's wheel has CUDA's runtime linked into its extensions and is not stripped: the runtime's functions are found by
their symbols and become the machine's. Whatever is not where it is expected ends the import with `LayoutError`.
"""

import atexit
import ctypes
import os
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from . import build, kernels, shells, symbols
from .pool import GuardedPool

RELEASE = "14.2"
_LIBRARIES = {"cublas", "cusolver", "cusparse", "curand", "nccl"}


class LayoutError(ImportError):
    """CuPy's files are not those that the stand-in was written for."""


class Loaded:
    """The machine, once it is there."""

    machine: ctypes.CDLL | None = None
    asked_for: ClassVar[set[str]] = set()
    """What CuPy has looked for among pip's wheels: the system finds nothing there by itself."""


def before() -> None:
    """Load the machine and CUDA's libraries, and let CuPy's runtime be the machine's."""
    os.environ.setdefault("CUPY_ACCELERATORS", "")  # CUB's kernels are C++ of another kind
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    machine = Loaded.machine = ctypes.CDLL(str(build.machine()), ctypes.RTLD_GLOBAL)
    machine.fakecuda_refusal.restype = ctypes.c_char_p
    _watch_wheels()
    extensions = _extensions()
    runtime = next((path for path in extensions if path.name.startswith("runtime.")), None)
    if runtime is None:
        raise LayoutError("CuPy has no cupy_backends/cuda/api/runtime: the stand-in needs its pip wheel")
    _load_libraries(machine, extensions)
    import_module("cupy_backends.cuda.api.runtime")
    _take_runtime(machine, runtime)


def after(cupy: ModuleType) -> None:
    """Put g++ in the place of NVRTC, NumPy in that of thrust, and guarded blocks in that of the pool."""
    from .libraries import thrust

    machine = Loaded.machine
    assert machine is not None
    for path in (cupy.cuda.thrust.__file__, cupy.cuda.cub.__file__):
        _take_runtime(machine, Path(path))
    compiler = cupy.cuda.compiler
    _replace(compiler, "_compile_using_nvrtc_no_warning", kernels.in_place_of_nvrtc)
    _replace(compiler, "_preprocess", lambda *arguments: "")  # asks NVRTC for its version
    for name in ("sort", "argsort", "lexsort"):
        _replace(cupy.cuda.thrust, name, getattr(thrust, name))
    pool = GuardedPool(machine)
    _replace(cupy, "_default_memory_pool", pool)
    cupy.cuda.set_allocator(pool.malloc)


def _watch_wheels() -> None:
    pathfinder = import_module("cuda.pathfinder")
    load = pathfinder.load_nvidia_dynamic_lib

    def note(name: str) -> Any:
        Loaded.asked_for.add(name)
        return load(name)

    pathfinder.load_nvidia_dynamic_lib = note


def _extensions() -> list[Path]:
    spec = find_spec("cupy_backends")
    if spec is None or not spec.submodule_search_locations:
        raise LayoutError("cupy_backends is not there")
    backends = Path(next(iter(spec.submodule_search_locations)))
    libraries = [path for path in (backends / "cuda" / "libs").glob("*.so") if "cutensor" not in path.name]
    return [
        *sorted((backends / "cuda" / "api").glob("*.so")), *sorted(libraries),
        *sorted(path for name in ("cufft", "jitify") for path in (backends.parent / "cupy" / "cuda").glob(f"{name}.*.so")),
    ]  # fmt: skip


def _load_libraries(machine: ctypes.CDLL, extensions: list[Path]) -> None:
    from .libraries import abi, cublas, cufft, cusolver, nccl  # noqa: F401 - they declare their functions

    abi.use(machine)
    functions = dict(abi.FUNCTIONS)
    functions["ncclCommInitRankConfig"], functions["ncclGetErrorString"] = nccl.INIT_RANK, nccl.ERROR_STRING
    functions["nvrtcVersion"] = NVRTC_VERSION
    places = list[int]()
    found = shells.names_by_library(extensions)
    for library, names in found.items():
        loaded = shells.load(library, names)
        for name in names & functions.keys():
            place = symbols.exported(loaded, name)
            target = ctypes.cast(functions.pop(name), ctypes.c_void_p).value
            assert place is not None and target is not None
            symbols.redirect(machine, place, target)
            places.append(place)
    if functions:
        raise LayoutError(f"CuPy calls none of {sorted(functions)}, which the stand-in has: CuPy has changed")
    atexit.register(_leave, machine, places)
    atexit.register(nccl.forget)


def _leave(machine: ctypes.CDLL, places: list[int]) -> None:
    """Call no function of Python any more: CuPy destroys its handles when the interpreter is gone."""
    machine.fakecuda_finish_all()
    nothing = symbols.exported(machine, "fakecuda_nothing")
    assert nothing is not None
    for place in places:
        symbols.redirect(machine, place, nothing)


def _nvrtc_version(major: Any, minor: Any) -> int:
    major[0], minor[0] = (12, 9) if build.cuda() == 12 else (13, 0)
    return 0


_INT = ctypes.POINTER(ctypes.c_int)
NVRTC_VERSION = ctypes.CFUNCTYPE(ctypes.c_int, _INT, _INT)(_nvrtc_version)


def _take_runtime(machine: ctypes.CDLL, extension: Path) -> None:
    """Let every function of CUDA's runtime in an extension be the machine's, or refuse."""
    offsets = symbols.defined(extension, "cuda")
    names = {name: name.removesuffix("_ptsz").removesuffix("_ptds") for name in offsets}
    missing = {"cudaMalloc", "cudaMemcpyAsync", "cudaSetDevice", "cudaEventRecord"} - offsets.keys()
    if missing:
        raise LayoutError(
            f"{extension} has no {sorted(missing)}: CUDA's runtime is not linked into it as before"
        )
    refusals = shells.load("libcudart_refusals.so", set(names.values()))
    start = symbols.base(extension)
    for name, plain in names.items():
        target = symbols.exported(machine, plain) or symbols.exported(refusals, plain)
        assert target is not None
        symbols.redirect(machine, start + offsets[name], target)


def _replace(module: Any, name: str, value: Any) -> None:
    if not hasattr(module, name):
        raise LayoutError(
            f"{getattr(module, '__name__', module)} has no {name}: the stand-in is written for CuPy {RELEASE}"
        )
    setattr(module, name, value)


class Finder:
    """Finds CuPy as Python does, and puts the stand-in under it when it is loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, library = name.rpartition(".")
        if parent == "cupy_backends.cuda.libs" and library in _LIBRARIES - Loaded.asked_for:
            raise ImportError(
                f"lib{library}.so: cannot open shared object file: of wheels CuPy's package `libs` loads it"
            )
        if name != "cupy":
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        before()
        self._real.exec_module(module)
        after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
