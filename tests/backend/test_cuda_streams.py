"""Streams of GPUs: whose work comes first, and for how long memory is kept for them."""

import sys
import threading
from typing import Any

import pytest

import ddpgrad as torch
from ddpgrad import cuda


@pytest.mark.gpu
def test_a_tensor_goes_to_another_gpu_in_the_order_of_both_streams(two_gpus: None):
    here, there = cuda.Stream(0), cuda.Stream(1)
    with cuda.stream(here), cuda.stream(there), cuda.stream(here):
        x = torch.arange(1 << 12, dtype=torch.float64, device="cuda:0").reshape(64, 64).T * 2
        before = copies()
        y = x.to("cuda:1")
        assert copies() == {**before, "between_devices": before.get("between_devices", 0) + 1} or not before
        x.zero_()  # what reads it comes first
        del x
        torch.full((64, 64), -1.0, dtype=torch.float64, device="cuda:0")
        z = (y + 0).to("cuda:0")
    here.synchronize(), there.synchronize()
    assert (cuda.current_device(), y.device.index, z.device.index) == (0, 1, 0)
    expected = torch.arange(1 << 12, dtype=torch.float64).reshape(64, 64).T * 2
    assert torch.equal(y.cpu(), expected) and torch.equal(z.cpu(), expected)
    one = torch.ones((), device="cuda:0", requires_grad=True)
    (one.to("cuda:1") * 3).backward()
    assert one.grad.device.index == 0 and one.grad == 3


def copies() -> dict[str, int]:
    """How many copies there were, by way; nothing on a GPU, where nobody counts."""
    stand_in = sys.modules.get("fakecuda")
    counted = {} if stand_in is None else stand_in.counters()
    return {name: n for name, n in counted.items() if name in ("between_devices", "to_device", "to_host")}


@pytest.mark.gpu
def test_streams_and_events_belong_to_their_gpu(two_gpus: None):
    cuda.set_device(0)
    stream, event = cuda.Stream(1), cuda.Event()
    assert event.query() and event.device is None  # it belongs to the GPU of the stream that records it
    stream.record_event(event)
    assert event.device == stream.device == torch.device("cuda", 1)
    with pytest.raises(RuntimeError, match="Event device 1 does not match recording stream's device 0"):
        event.record()
    with cuda.stream(stream), cuda.stream(cuda.default_stream(0)):
        assert (cuda.current_device(), cuda.current_stream(1)) == (0, stream)
    with cuda.stream(stream):
        kept = torch.ones(3, device="cuda")
        assert (kept.device, cuda.current_stream()) == (stream.device, stream)
    assert (cuda.current_device(), cuda.current_stream(1)) == (0, cuda.default_stream(1))
    assert cuda.default_stream(0) != cuda.default_stream(1)
    cuda.default_stream(1).wait_stream(stream)
    del kept
    size = torch.ones(1 << 20, device="cuda:1").nbytes  # and freed
    held = cuda.memory_reserved(1)
    cuda.empty_cache()
    assert cuda.memory_reserved(1) <= held - size


@pytest.mark.gpu
@pytest.mark.parametrize("make", [lambda x: x.to("cuda"), lambda x: torch.tensor(x.tolist(), device="cuda")])
def test_what_comes_from_the_host_is_there_for_every_stream(make: Any, gpu: str):
    """As in PyTorch, where the host waits for such copies."""
    aside, x = cuda.Stream(), torch.full((1 << 10,), 2.0)
    for _ in range(3):
        torch.ones(1 << 18, device=gpu).mul_(3)  # the default stream has something to do
        there = make(x)
        with cuda.stream(aside):
            found, other = there + 1, make(x + 1)
        assert (other + 1 == 4).all()
        aside.synchronize()
        assert (found == 3).all()


@pytest.mark.gpu
def test_memory_that_a_recorded_stream_uses_is_kept_until_it_is_done(gpu: str):
    aside, here = cuda.Stream(), cuda.current_stream()
    x = torch.ones(1 << 16, device=gpu)
    aside.wait_stream(here)
    with cuda.stream(aside):
        doubled = x * 2
    x[1:].record_stream(aside)
    x.record_stream(here)
    held = cuda.memory_allocated()
    del x
    other = torch.zeros(1 << 16, device=gpu)
    here.synchronize()
    assert cuda.memory_allocated() >= held + other.nbytes
    aside.synchronize()
    assert (doubled == 2).all()
    for _ in range(2):  # the first knows that nobody else has it
        cuda.empty_cache()
        cuda.synchronize()
    assert cuda.memory_allocated() < held + other.nbytes
    errors = []

    def lend() -> None:
        try:
            for _ in range(200):
                torch.ones(1, device=gpu).record_stream(aside)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=lend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with pytest.raises(NotImplementedError, match="streams use a GPU's memory, and not cpu's"):
        torch.ones(1).record_stream(aside)
