"""What PyTorch's tests of distributed programs import beside what they test, while ddpgrad serves as `torch`.

The tests themselves, and the class that starts their processes, are read from the files of the installed PyTorch
(`FILES`). `common_utils`, from which they have their TestCase, cannot be: it reaches into all of PyTorch. What they
use of it is here. Other names that ddpgrad lacks stand for nothing: a test that uses one fails.
"""

import importlib.util
import itertools
import os
import random
import socket
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np

import ddpgrad
from ddpgrad.backend import device as devices
from ddpgrad.distributed import backends
from ddpgrad.launcher import as_torch
from ddpgrad.testing import assert_close

_INTERNAL = "torch.testing._internal"
TESTS = "pytorch_distributed_test"
# The tests go by another name: classes of modules of `torch` itself would be refused in files.
FILES = {
    f"{_INTERNAL}.common_distributed": "testing/_internal/common_distributed.py",
    TESTS: "testing/_internal/distributed/distributed_test.py",
}
NOTHING: dict[str, str] = {
    "torch._C._autograd": "DeviceType",
    "torch._C._distributed_c10d": "_SymmetricMemory",
    "torch._dynamo.test_case": "",
    "torch._logging": "",
    "torch._logging._internal": "trace_log",
    "torch._utils_internal": "",
    "torch.cuda.nccl": "",
    f"{_INTERNAL}": "",
    f"{_INTERNAL}.distributed": "",
    f"{_INTERNAL}.distributed.multi_threaded_pg": "_install_threaded_pg _uninstall_threaded_pg ProcessLocalGroup",
    "torch.utils._python_dispatch": "TorchDispatchMode",
    "torch.distributed.utils": "",
}
"""Modules that hold nothing but names that no test of the judge's list uses."""
ADDED: dict[str, str] = {
    "torch._C": "_set_print_stack_traces_on_fatal_signal",
    "torch.autograd": "DeviceType",
    "torch.distributed.distributed_c10d": "_get_pg_config",
    "torch.distributed.utils": "_sync_module_states _verify_param_shape_across_processes",
    "torch.nn.parallel.distributed": "_BucketCapacityConfig _DEFAULT_BUCKET_CAP_MB _MB_TO_BYTES _dump_DDP_relevant_env_vars",
    "torch.distributed.optim": "_apply_optimizer_in_backward",
    "torch.profiler": "ExecutionTraceObserver",
}
"""Names, of modules that ddpgrad has, that no test of the judge's list uses."""


class TestCase(unittest.TestCase):
    """PyTorch's, as far as these tests go: `assertEqual` compares tensors and what holds them."""

    def assertEqual(
        self,
        x: Any,
        y: Any,
        msg: Any = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
        exact_dtype: bool = True,
    ) -> None:
        if _numbers(x) and _numbers(y):
            x, y = (t.coalesce() if _tensor(t) and t.is_sparse else t for t in (x, y))
            if _tensor(x) != _tensor(y):
                exact_dtype = False
                x, y = ddpgrad.as_tensor(x), ddpgrad.as_tensor(y)
            elif not _tensor(x) and not isinstance(x, (list, tuple, dict)):
                exact_dtype = False  # of numbers it is of no account
            if rtol is None and atol is not None:
                rtol = 0.0
            assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True, check_dtype=exact_dtype, msg=msg)
        else:
            super().assertEqual(x, y, msg)

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, **options)

    def assertGreaterAlmostEqual(
        self, first: float, second: float, msg: Any = None, delta: float = 1e-7
    ) -> None:
        if first < second - delta:
            self.fail(f"{first} is less than {second} by more than {delta}. {msg or ''}")


def _tensor(value: Any) -> bool:
    return isinstance(value, ddpgrad.Tensor)


def _numbers(value: Any) -> bool:
    """Whether tensors, or numbers that need not be equal to the last bit, are in `value`."""
    if isinstance(value, Mapping):
        return all(map(_numbers, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_numbers, value))
    return _tensor(value) or isinstance(value, (float, complex, np.ndarray, np.number)) or type(value) is int


def _skip_if(condition: bool, reason: str) -> Callable[[Any], Any]:
    return unittest.skipIf(condition, reason)


@contextmanager
def _temporary_file(*args: Any, **kwargs: Any) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(*args, **kwargs) as file:
        yield file.name


def _parametrize(names: str, values: Sequence[Any]) -> Callable[[Any], Any]:
    def mark(function: Any) -> Any:
        function.__dict__.setdefault("judged_with", []).append((names, values))
        return function

    return mark


def _instantiate(kind: type) -> type:
    """Each parametrized test of the class as one test for each combination of its arguments."""
    for base in kind.__mro__:
        for name, function in list(vars(base).items()):
            given = getattr(function, "judged_with", None)
            if not given:
                continue
            for combination in itertools.product(*(values for _, values in given)):
                arguments = dict(zip((names for names, _ in given), combination, strict=True))
                ending = "".join(f"_{key}_{value}" for key, value in arguments.items())

                def one(self: Any, function: Any = function, arguments: Any = arguments) -> None:
                    function(self, **arguments)

                setattr(kind, name + ending, one)
            setattr(kind, name, None)
    return kind


def _find_free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def _set_rng_seed(seed: int = 1234) -> None:
    ddpgrad.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


COMMON_UTILS: dict[str, Any] = {
    "FILE_SCHEMA": "file://",
    "IS_FBCODE": False,
    "IS_LINUX": False,  # on which PyTorch leaves out tests that fail there now and then
    "IS_MACOS": False,
    "IS_SANDCASTLE": False,
    "IS_WINDOWS": False,
    "LazyVal": MagicMock,
    "TEST_CUDA": False,
    "TEST_HPU": False,
    "TEST_WITH_ROCM": False,
    "TEST_WITH_TSAN": False,
    "TEST_XPU": False,
    "TemporaryFileName": _temporary_file,
    "TestCase": TestCase,
    "find_free_port": _find_free_port,
    "instantiate_parametrized_tests": _instantiate,
    "parametrize": _parametrize,
    "retry_on_connect_failures": lambda function: function,
    "set_rng_seed": _set_rng_seed,
    "skip_but_pass_in_sandcastle": unittest.skip,
    "skip_but_pass_in_sandcastle_if": _skip_if,
}


class _Made(Loader):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__path__ = []
        vars(module).update(self._values)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It is whole already."""


class _Finder(MetaPathFinder):
    """Finds the modules above, before ddpgrad's own finder says that there are none."""

    def __init__(self, installed: Path) -> None:
        self._installed = installed

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname in FILES:
            return importlib.util.spec_from_file_location(fullname, self._installed / FILES[fullname])
        if fullname == f"{_INTERNAL}.common_utils":
            return ModuleSpec(fullname, _Made(COMMON_UTILS), is_package=True)
        if fullname in NOTHING:
            names: dict[str, Any] = {
                name: MagicMock(name=f"{fullname}.{name}") for name in NOTHING[fullname].split()
            }
            if fullname == "torch._utils_internal":
                names.update(TEST_MASTER_ADDR="127.0.0.1", TEST_MASTER_PORT=29500)
            if fullname == "torch.cuda.nccl":
                names.update(version=lambda: (2, 30, 0))
            if fullname == "torch._dynamo.test_case":
                names.update(TestCase=TestCase)
            return ModuleSpec(fullname, _Made(names), is_package=True)
        return None


def _pretend_gpus() -> None:
    """Let the CPU stand for eight GPUs: most tests of DistributedDataParallel ask for two, and need none."""

    def on_the_cpu(device: devices.Device, kind: Any, index: int | None = None) -> None:
        device.type, device.index = "cpu", None

    devices.Device.__init__ = on_the_cpu
    cuda: Any = ddpgrad.cuda
    for name, value in {"is_available": True, "device_count": 8, "current_device": 0}.items():
        setattr(cuda, name, lambda value=value: value)
    for name in ("set_device", "synchronize", "manual_seed", "manual_seed_all", "empty_cache"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    backends.TRANSPORTS["nccl"] = None
    ddpgrad.distributed.is_nccl_available = lambda: True
    COMMON_UTILS["TEST_CUDA"] = True


def install(gpus: bool) -> None:
    """Let `import torch` load ddpgrad, and what the tests need be found. gpus: with the CPU in the place of some."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin, "PyTorch is not installed"
    as_torch.install()
    os.environ["DDPGRAD_AS_TORCH"] = "1"
    sys.meta_path.insert(0, _Finder(Path(found.origin).parent))
    if gpus:
        _pretend_gpus()
    ddpgrad.testing.__path__ = []  # type: ignore[attr-defined]
    for module, names in ADDED.items():
        home = importlib.import_module(module)
        for name in names.split():
            setattr(home, name, MagicMock(name=f"{module}.{name}"))
    # Where PyTorch keeps the two forms of a parameter under DistributedDataParallel(mixed_precision=...).
    ddpgrad.Tensor._fp_param = property(lambda p: p)
    ddpgrad.Tensor._mp_param = property(lambda p: p.half())
    c10d: Any = importlib.import_module("torch.distributed.distributed_c10d")
    c10d._TORCHCOMM_AVAILABLE = False
    setattr(ddpgrad.distributed, "_rank_not_in_group", c10d._rank_not_in_group)  # noqa: B010
