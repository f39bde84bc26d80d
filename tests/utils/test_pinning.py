"""Page-locked memory: tensors in it, and batches of a DataLoader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad.backend.cuda import library
from ddpgrad.errors import DeviceError
from ddpgrad.utils import data


class FakeCuPy:
    """What pinning asks of CuPy, over ordinary memory, which it remembers."""

    def __init__(self) -> None:
        self.locked: list[np.ndarray] = []
        runtime = SimpleNamespace(getDevice=lambda: 0, memoryTypeHost=1, pointerGetAttributes=self.attributes)
        self.cuda = SimpleNamespace(runtime=runtime, alloc_pinned_memory=self.alloc)

    def alloc(self, nbytes: int) -> np.ndarray:
        self.locked.append(np.zeros(nbytes + 64, np.uint8))  # pools give more than was asked for
        return self.locked[-1]

    def attributes(self, pointer: int) -> Any:
        inside = any(m.ctypes.data <= pointer < m.ctypes.data + m.nbytes for m in self.locked)
        return SimpleNamespace(type=int(inside))


@pytest.fixture(params=["fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def locking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU to lock memory for, or something that counts as one."""
    if request.param == "fake":
        monkeypatch.setattr(library, "_found", [(FakeCuPy(), 1)])
    elif reason := torch.cuda.why_not():
        pytest.skip(reason)


class Pair(NamedTuple):
    left: Any
    right: Any


class Sample:
    pinned = False

    def pin_memory(self) -> Sample:
        self.pinned = True
        return self


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_a_pinned_copy(locking: None, dtype: Any, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape).to(dtype)
    pinned = x.pin_memory()
    assert torch.equal(pinned, x) and pinned.dtype == dtype and pinned.shape == x.shape
    if x.numel():
        assert pinned.is_pinned() and not x.is_pinned() and pinned[..., None].is_pinned()
        assert pinned.pin_memory() is pinned and pinned.data_ptr() != x.data_ptr()


@pytest.mark.gpu
def test_a_copy_that_is_not_waited_for_keeps_the_memory_that_it_reads() -> None:
    """Memory that is pinned next would else be the same, and be written before the GPU has read it."""
    x = torch.arange(100_000, dtype=torch.float32)
    pinned = x.pin_memory()
    by_keyword, by_position = pinned.to("cuda", non_blocking=True), pinned.to("cuda", torch.float64, True)
    into = torch.empty(len(x), device="cuda").copy_(pinned, non_blocking=True)
    odd = pinned[::2].cuda(non_blocking=True)
    place = pinned.data_ptr()
    del pinned
    others = [torch.zeros(len(x)).pin_memory() for _ in range(3)]
    assert place not in [other.data_ptr() for other in others]
    assert all(torch.equal(y.cpu().float(), x) for y in (by_keyword, by_position, into))
    assert torch.equal(odd.cpu(), x[::2])
    w = torch.ones(3).pin_memory().requires_grad_()
    w.to("cuda", non_blocking=True).sum().backward()
    assert w.grad is not None and w.grad.is_cpu


def test_batches_of_any_structure(locking: None) -> None:
    def collate(samples: list[int]) -> Any:
        x = torch.tensor(samples)
        return {"a": x, "b": [Pair(x + 1, "text"), 3]}, (x * 2, None), Sample()

    first = next(iter(data.DataLoader(range(4), 2, collate_fn=collate, pin_memory=True)))
    table, pair, own = first
    (named, number) = table["b"]
    assert (
        isinstance(named, Pair) and named.right == "text" and number == 3 and pair[1] is None and own.pinned
    )
    assert all(x.is_pinned() for x in (table["a"], named.left, pair[0]))
    assert [x.tolist() for x in (table["a"], named.left, pair[0])] == [[0, 1], [1, 2], [0, 2]]


def test_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not torch.ones(2).is_pinned()
    with pytest.raises(DeviceError, match="CUDA is not available"):
        torch.ones(2).pin_memory()
    with pytest.warns(UserWarning, match="no accelerator is found"):
        loader = data.DataLoader(torch.arange(3), pin_memory=True)
    assert [int(x) for x in loader] == [0, 1, 2]
