"""How Numba compiles kernels here: the same machine code, in less time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Called(JITCodeLibrary):
    """The code of a function that a kernel calls: it goes into the kernel's, and none is made for calls from Python."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: there is none, as of a function without an entry for Python."""
        self._ensure_finalized()
        return 0

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        """What comes from the disk is a kernel, which Python may call as well."""
        codegen._library_class = JITCodeLibrary
        try:
            return JITCodeLibrary._unserialize(codegen, state)
        finally:
            codegen._library_class = cls

    @property
    def codegen(self) -> Any:
        """Where Numba says what Python object belongs to the machine code."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Nothing: there is no machine code."""


class KernelCompiler(Compiler):
    """For functions that are called from Python or C. Numba makes machine code of whatever these call as well, which nobody runs.

    apart: LLVM is told that the arrays of a kernel do not overlap. Otherwise it adds a check that takes arrays which merely lie near
    one another for overlapping, and goes on without vectors, whose last bit can differ: the result would depend on where the heap
    had room.
    """

    def __init__(self, apart: bool, *arguments: Any) -> None:
        with _without_collection():  # the first fills Numba's tables
            super().__init__(*arguments)
        self._apart = apart

    def define_pipelines(self) -> Any:
        """Numba's own."""
        if self._apart:
            self.state.flags.noalias = True
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """Compile, under the lock of Numba's compiler."""
        state = self.state
        codegen = state.targetctx.codegen()
        state.library = JITCodeLibrary(codegen, func.__qualname__)
        state.library.enable_object_caching()
        usual = codegen._library_class
        codegen._library_class = _Called
        try:
            with _without_collection():
                return super().compile_extra(func)
        finally:
            codegen._library_class = usual


@contextmanager
def _without_collection() -> Iterator[None]:
    """Compiling makes so many objects that looking for cycles among them takes a tenth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
