"""Compiled kernels on disk: what a process loads, what processes that begin together share, and what none takes for its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddpgrad import environment

pytestmark = pytest.mark.skipif(
    not environment.numba_enabled(), reason="DDPGRAD_NUMBA=0 switches the kernels off"
)

TWICE = """
from ddpgrad.backend.cpu.vectormath import exp, kernel

@kernel
def exps(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])
"""
CALLS = """
import sys
import numpy as np
from twice import exps

def call(dtype):
    x, out = np.linspace(-1, 1, 67, dtype=dtype), np.empty(67, dtype)
    exps(x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)

call(np.float32)
print("numba.np.linalg" in sys.modules, sum(exps.stats.cache_hits.values()))
if sys.argv[1:]:
    call(np.float64)
    call(np.float32)
"""


def test_a_kernel_from_disk_needs_no_compiler(tmp_path):
    """Which takes longer to load than all else; and what the disk does not have is compiled beside it."""
    (tmp_path / "twice.py").write_text(TWICE)
    (tmp_path / "calls.py").write_text(CALLS)
    said = []
    for arguments in ([], ["then compile"]):
        command = [sys.executable, tmp_path / "calls.py", *arguments]
        said.append(subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout)
    assert said == ["True 0\n", "False 1\n"]


TOTALS = """
from ddpgrad.backend.cpu.vectormath import kernel

@kernel
def total(x):
    sum = x[0] * 0
    for element in x:
        sum += element
    return sum
"""
ON_A_SIGN = """
import sys
import numpy as np
from totals import total

print("ready", flush=True)
sys.stdin.readline()
print(*(total(np.ones(1000, dtype)) for dtype in sys.argv[1:]), sum(total.stats.cache_misses.values()))
"""


@pytest.fixture
def begin(tmp_path: Path):
    """begin(*dtypes): a process that has imported a kernel, and calls it for these when it gets a line."""
    (tmp_path / "totals.py").write_text(TOTALS)
    (tmp_path / "on_a_sign.py").write_text(ON_A_SIGN)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def begun(*dtypes: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "on_a_sign.py", *dtypes],
            cwd=tmp_path,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    return begun


def told(process: subprocess.Popen[str]) -> list[float]:
    out, _ = process.communicate("\n", timeout=600)
    assert process.returncode == 0
    return [float(word) for word in out.split()]


def test_one_of_the_processes_that_begin_together_compiles(begin):
    processes = [begin("f4") for _ in range(3)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    totals, compiled = zip(*map(told, processes), strict=True)
    assert totals == (1000, 1000, 1000) and sum(compiled) == 1


def test_code_of_another_type_is_not_taken(begin, tmp_path):
    """What two processes leave that save a kernel for two types at once: a file holds what the index does not say."""
    assert told(begin("f4", "f8")) == [1000, 1000, 2]
    first, second = sorted(
        path for path in tmp_path.glob("cache/*/*.nbc") if re.search(r"totals\.total.*\.\d+\.nbc", path.name)
    )
    shutil.copyfile(second, first)
    assert told(begin("f4", "f8")) == [1000, 1000, 1]


CALLED = """
from ddpgrad.backend.cpu.vectormath import kernel, part

@part
def doubled(x):
    return x + x

@kernel
def inner(x):
    for i in range(x.size):
        x[i] = doubled(x[i])

@kernel
def outer(x):
    inner(x)
    inner(x)
"""
CALLS_EACH = """
import gc
import sys
import numpy as np
from numba.core.codegen import JITCodeLibrary

made, finish = [], JITCodeLibrary._finalize_specific
JITCodeLibrary._finalize_specific = lambda self: (made.append(self.name.rpartition(".")[2]), finish(self))[1]
import called

x = np.ones(3, np.float32)
for name in sys.argv[1:]:
    getattr(called, name)(x)
print(x[0], gc.isenabled(), *sorted({*made} & {"doubled", "inner", "outer"}))
"""


def test_what_kernels_call_has_no_machine_code_unless_it_is_a_kernel_itself(tmp_path):
    """One may have come from the disk while the other was compiled."""
    (tmp_path / "called.py").write_text(CALLED)
    (tmp_path / "calls_each.py").write_text(CALLS_EACH)
    for names, said in (
        (["inner"], "2.0 True inner"),
        (["outer", "inner"], "8.0 True inner outer"),
        (["outer", "inner"], "8.0 True inner outer"),
    ):
        command = [sys.executable, tmp_path / "calls_each.py", *names]
        assert (
            subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
            == f"{said}\n"
        )


FEW_DRAWS = """
import ddpgrad as torch

torch.nn.functional.silu(torch.ones(3))
torch.randn(1000, 100), torch.randperm(50_000), torch.rand(300_000)
"""


def test_few_random_numbers_compile_nothing(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", FEW_DRAWS], env=env, check=True, timeout=600)
    kept = {path.name.partition(".")[0] for path in tmp_path.rglob("*.nbc")}
    assert "element_loops" in kept and "twister" not in kept and "normals" not in kept


FEW_ELEMENTS = """
import ddpgrad as torch

torch.ones(300, 40).sum(0)
"""


def test_threads_are_gathered_for_large_arrays_only(tmp_path):
    """What they need takes a second to compile."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", FEW_ELEMENTS], env=env, check=True, timeout=600)
    kept = {path.name.partition(".")[0] for path in tmp_path.rglob("*.nbc")}
    assert "reduce" in kept and "watching" not in kept
