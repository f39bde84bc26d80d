"""Products by MKL, where it is installed: close to NumPy's, and of the same bits in any place, in parts, threads and processes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.backend.cpu import mkl
from ddpgrad.backend.dtype import bfloat16

installed = pytest.mark.skipif(mkl.chosen() is None, reason="needs the package mkl and an Intel processor")
KINDS = (np.dtype(np.float32), np.dtype(np.float64), bfloat16.numpy)


def operands(
    kind: np.dtype, rows: int, length: int, columns: int, lead: tuple[int, ...] = ()
) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = (*lead, rows, length), (*lead, length, columns)
    return [random.standard_normal(shape).astype(kind) for shape in shapes]


def moved(x: np.ndarray) -> np.ndarray:
    """A copy that begins an element behind a multiple of 64 bytes, with gaps between its lines, which are columns."""
    room = np.empty((*x.shape[:-2], x.shape[-1], x.shape[-2] + 3), x.dtype)
    apart = room[..., 1 : 1 + x.shape[-2]].swapaxes(-1, -2)
    apart[...] = x
    return apart


@installed
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("lead", [(), (2, 1)], ids=["matrices", "stacks"])
def test_close_to_exact_and_the_same_anywhere_and_in_parts(kind, lead):
    left, right = operands(kind, 300, 70, 260, lead)
    assert mkl.takes(left, right)
    out = mkl.product(left, right)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(out - exact).max() < (1e-12 if kind.itemsize == 8 else 1e-4)
    assert np.array_equal(mkl.product(moved(left), right), mkl.product(moved(left), moved(right)))
    parts = np.full((*lead, 300, 263), np.nan, out.dtype)[..., :260]
    for rows in (slice(0, 104), slice(104, 300)):
        mkl.product(left[..., rows, :], right, parts[..., rows, :])
    assert np.array_equal(parts, out)


@installed
def test_the_package_multiplies_with_it_and_bits_do_not_depend_on_threads(monkeypatch):
    calls, real = [], mkl.product
    monkeypatch.setattr(mkl, "product", lambda *arrays: calls.append(arrays) or real(*arrays))
    layer, x = torch.nn.Linear(384, 512), torch.randn(500, 384, requires_grad=True)
    found, before = [], torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            layer.zero_grad()
            x.grad = None
            y = layer(x)
            y.backward(y.detach())
            half = x.detach().bfloat16() @ layer.weight.detach().bfloat16().T
            found.append([t.numpy().copy() for t in (y.detach(), x.grad, layer.weight.grad, half.float())])
            assert len(calls) >= 4 * count
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@installed
def test_a_process_that_is_forked_multiplies():
    left, right = operands(np.dtype(np.float32), 256, 256, 256)
    expected = mkl.product(left, right)
    child = os.fork()
    if child == 0:
        os._exit(not np.array_equal(mkl.product(left, right), expected))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@installed
def test_the_environment_turns_it_off():
    code = "from ddpgrad.backend.cpu import mkl; print(mkl.chosen())"
    variables = {**os.environ, "DDPGRAD_MKL": "0", "PYTHONPATH": str(Path(torch.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.zeros((1, 4096), np.float32), np.zeros((4096, 4096), np.float32)),
        (np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)),
        (np.zeros((512, 512), np.float32), np.zeros((512, 512))),
        (np.zeros((512, 512), np.int64), np.zeros((512, 512), np.int64)),
        (np.zeros((512, 1024), np.float32)[:, ::2], np.zeros((512, 512), np.float32)),
        (np.broadcast_to(np.float32(1), (512, 512)), np.zeros((512, 512), np.float32)),
    ],
    ids=["vector", "small", "two types", "integers", "gaps", "no steps"],
)
def test_other_products_are_not_its(left, right):
    assert not mkl.takes(left, right)
