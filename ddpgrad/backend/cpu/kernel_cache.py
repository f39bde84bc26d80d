"""Compiled CPU kernels kept on disk: one process compiles, and those beside it wait for that and load."""

from __future__ import annotations

import fcntl
import os
import time
import warnings
import zlib
from functools import partial
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys
from numba.core.sigutils import normalize_signature

# Whoever compiles one kernel for longer has been stopped; then each process compiles for itself.
_LIMIT_S = 60.0
_LOOK_S = 0.01

# Elements in the time that compiling a kernel takes, where NumPy does the same.
_WORTH_COMPILING = 1 << 22

# The file of a folder in which each kernel has a byte to lock. It stays open: closing it would give up all its locks.
_files: dict[tuple[int, str], int] = {}


class KernelCache(FunctionCache):
    """Numba's cache on disk, shared by processes that begin at the same time.

    Without a lock each of them compiles each kernel, and two that save a kernel for two types can leave the code of one
    under the name of the other.
    """

    _locked = False
    asked = 0  # elements, of `worth_compiling`

    def kept(self) -> bool:
        """Whether the kernel is on disk, for arguments of some types."""
        return os.path.exists(self._cache_file._index_path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for arguments of these types; None if it has to be compiled, by this process."""
        found = self._load(sig, target_context)
        if found is None and self._lock():
            found = self._load(sig, target_context)
            if found is not None:
                self._unlock()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what has been compiled, and let the others load it."""
        try:
            super().save_overload(sig, data)
        finally:
            self._unlock()

    def _load(self, sig: Any, target_context: Any) -> Any:
        # Machine code asks for Numba's runtime only. `load_overload` fills tables of types and implementations first, which
        # takes three times as long as the rest of a process's start; Numba fills them when it compiles.
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        arguments, _ = normalize_signature(sig)
        return found if found is not None and found.signature.args == tuple(arguments) else None

    def _lock(self) -> bool:
        """Wait until no other process compiles this kernel; False where that cannot be known, or lasts too long."""
        deadline = time.monotonic() + _LIMIT_S
        while not self._locked:
            try:
                fcntl.lockf(self._file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte())
                self._locked = True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK_S)
            except OSError:  # a file system without locks, or one that cannot be written
                return False
        return True

    def _unlock(self) -> None:
        if self._locked:
            fcntl.lockf(self._file(), fcntl.LOCK_UN, 1, self._byte())
            self._locked = False

    def _file(self) -> int:
        key = os.getpid(), self.cache_path
        if key not in _files:
            self._impl.locator.ensure_cache_path()
            _files[key] = os.open(
                os.path.join(self.cache_path, "compiling"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
            )
        return _files[key]

    def _byte(self) -> int:
        return zlib.crc32(self._impl.filename_base.encode())


def cached(compiled: Any, apart: bool = False) -> Any:
    """A compiled function that Python or C calls, kept on disk where that can be; see `vectormath.kernel`.

    apart: its arrays do not overlap.
    """
    compiled._compiler.pipeline_class = partial(_compiler, apart)
    try:
        compiled.enable_caching()
        compiled._cache = KernelCache(compiled._cache._py_func)
    except RuntimeError as error:
        warnings.warn(
            f"compiled kernels cannot be kept on disk ({error}), so every process compiles them again; "
            "set NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=3,
        )
    return compiled


def _compiler(apart: bool, *arguments: Any) -> Any:
    from .kernel_compiler import KernelCompiler  # which is not loaded where all kernels are on disk

    return KernelCompiler(apart, *arguments)


def worth_compiling(compiled: Any, elements: int) -> bool:
    """Whether to call a kernel for so many elements rather than NumPy: it is compiled or on disk, or was asked for often."""
    cache = compiled._cache
    if compiled.overloads or not isinstance(cache, KernelCache) or cache.kept():
        return True
    cache.asked += elements
    return cache.asked >= _WORTH_COMPILING
