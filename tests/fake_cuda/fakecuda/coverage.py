"""Which kernels of `ddpgrad/backend/cuda` a test run has launched, its workers and their jobs included."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# Kernels that no test launches, and why.
REASONS: dict[str, str] = {}


def kernels() -> set[str]:
    """The names of all: those that the modules of the backend hold, and one for each optimizer's rule."""
    import cupy

    import ddpgrad.backend.cuda
    import ddpgrad.optim

    held = {
        value.name
        for module in _modules(ddpgrad.backend.cuda)
        for held in vars(module).values()
        for value in (held.values() if isinstance(held, dict) else (held,))
        if isinstance(value, cupy.ElementwiseKernel | cupy.ReductionKernel | cupy.RawKernel)
    }
    return held | {f"ddpgrad_{name}" for module in _modules(ddpgrad.optim) for name in _rules(module)}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def _rules(module: ModuleType) -> Iterator[str]:
    """Functions over `F`, the vocabulary in which an optimizer says what it does to an element."""
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if own and next(iter(inspect.signature(value).parameters), None) == "F":
            yield name


def launched(log: Path) -> set[str]:
    """The names in a file that processes wrote to: see FAKE_CUDA_LOG."""
    return {name for line in log.read_text().splitlines() for name in json.loads(line)}


def report(log: Path) -> tuple[str, set[str]]:
    """A line that says how many kernels ran, and the names of those that did not and should have."""
    every, ran = kernels(), launched(log)
    missing = every - ran - REASONS.keys()
    excused = [f"{name} ({REASONS[name]})" for name in sorted((every - ran) & REASONS.keys())]
    parts = [f"kernels of backend/cuda on the stand-in: {len(every & ran)} run, {len(missing)} not run"]
    parts.extend([", ".join(sorted(missing))] if missing else [])
    parts.extend([f"left out {', '.join(excused)}"] if excused else [])
    return ": ".join(parts), missing
