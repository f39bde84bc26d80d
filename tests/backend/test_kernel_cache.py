"""What a process loads in order to run a kernel that another one has compiled."""

import subprocess
import sys

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
        said.append(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert said == ["True 0\n", "False 1\n"]
