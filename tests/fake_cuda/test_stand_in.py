"""The stand-in itself: it computes as a GPU does, and refuses what a GPU refuses."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakecuda
import numpy as np
import pytest

pytestmark = pytest.mark.fakegpu


@pytest.fixture(scope="module")
def cupy() -> Any:
    if reason := fakecuda.why_not():
        pytest.skip(reason)
    import cupy

    return cupy


def kernel(cupy: Any, body: str, arguments: str = "float* out") -> Any:
    return cupy.RawKernel(f'extern "C" __global__ void k({arguments}) {{ {body} }}', "k")


def test_new_memory_is_nan_and_a_kernel_that_waits_sees_what_others_wrote(cupy: Any):
    assert np.isnan(cupy.empty(5, np.float32).get()).all()
    reverse = kernel(
        cupy,
        "extern __shared__ float kept[]; kept[threadIdx.x] = threadIdx.x; __syncthreads();"
        "out[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];",
    )
    out = cupy.empty((3, 70), np.float32)
    reverse((3,), (70,), (out,), shared_mem=280)
    assert (out.get() == np.arange(70)[::-1]).all()


def test_lanes_exchange_within_their_warp(cupy: Any):
    out = cupy.empty(64, np.float32)
    total = "float v = threadIdx.x; for (int s = 16; s; s /= 2) v += __shfl_xor_sync(0xffffffffu, v, s); out[threadIdx.x] = v;"
    kernel(cupy, total)((1,), (64,), (out,))
    assert (out.get().reshape(2, 32) == [[496], [1520]]).all()
    half = "if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 3) + __ballot_sync(0xffffu, threadIdx.x % 2);"
    kernel(cupy, half)((1,), (32,), (out,))
    assert (out.get()[:16] == 3 + 0xAAAA).all()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if (threadIdx.x == 3) __shfl_sync(0xffffffffu, 1, 0); else __syncthreads();", "wait elsewhere"),
        ("if (threadIdx.x > 3) __shfl_sync(0xffffffffu, 1, 0);", "exchanges with lane 0, which has ended"),
        ("*(double*)(out + 1) = 0;", "misaligned address .* multiple of 8"),
        ("unsigned w[4]; warp_matrices(w, (const char*)out + 8);", "misaligned address .* multiple of 16"),
    ],
)  # fmt: skip
def test_what_ends_a_kernel_is_told_where_somebody_waits_for_it(cupy: Any, body: str, reason: str):
    kernel(cupy, body)((1,), (32,), (cupy.zeros(64, np.float32),))
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match=reason):
        cupy.cuda.Device().synchronize()


def test_a_stream_does_its_work_when_somebody_waits_for_it(cupy: Any):
    aside = cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.zeros(3, np.float32), cupy.zeros(3, np.float32)
    cupy.cuda.Device().synchronize()
    add = kernel(cupy, "y[threadIdx.x] += x[threadIdx.x] + 1;", "const float* x, float* y")
    with aside:
        add((1,), (3,), (x, x))
        add((1,), (3,), (x, x))
        done = aside.record()
    add((1,), (3,), (x, y))
    assert y.get().tolist() == [1, 1, 1]  # too early: the sum of `aside` is not there
    cupy.cuda.get_current_stream().wait_event(done)
    add((1,), (3,), (x, y))
    assert y.get().tolist() == [5, 5, 5]

    kept = cupy.cuda.alloc_pinned_memory(12)
    host = np.frombuffer(kept, np.float32, 3)
    host[...] = 7
    y.set(host, stream=aside)
    host[...] = 8  # too early, too
    aside.synchronize()
    assert y.get().tolist() == [8, 8, 8]


def test_an_array_that_is_freed_while_another_stream_uses_it_ends_the_process(cupy: Any):
    program = "import cupy\nx, aside = cupy.zeros(3), cupy.cuda.Stream(non_blocking=True)\n{}\nwith aside: y = x + 1\n{}\n"
    program += "del x\ncupy.cuda.get_current_stream().synchronize()\naside.synchronize()\nprint(y.get())"
    wait = "cupy.cuda.get_current_stream().wait_event(aside.record())"
    for waited, code in ((wait, 0), ("", -11)):
        started = program.format("cupy.cuda.Device().synchronize()", waited)
        done = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, timeout=200)
        assert done.returncode == code, done.stderr


def test_writing_past_an_array_is_seen_and_reading_far_past_it_ends_the_process(cupy: Any):
    write = (
        "import cupy\nk = cupy.RawKernel('extern \"C\" __global__ void k(float* x) {{ x[{}] = 1; }}', 'k')\n"
    )
    write += "x = cupy.zeros(3, 'f')\nk((1,), (1,), (x,))\ndel x\nprint('ended')"
    for place, code, told in (
        (3, 0, "byte 12 of a block of 12 bytes was written"),
        (4, -11, ""),
        (-2000, -11, ""),
    ):
        done = subprocess.run(
            [sys.executable, "-c", write.format(place)], capture_output=True, text=True, timeout=200
        )
        assert done.returncode == code and told in done.stderr, done.stderr


def test_what_a_gpu_refuses(cupy: Any):
    runtime, driver = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
    x = cupy.zeros(3, np.float32)
    host = np.zeros(3, np.float32)
    with pytest.raises(runtime, match="copy of kind 2 from host to host memory"):
        cupy.cuda.runtime.memcpy(host.ctypes.data, host.ctypes.data, 12, 2)
    with pytest.raises(runtime, match="blocks have 12 and 0 left"):
        cupy.cuda.runtime.memcpy(x.data.ptr, host.ctypes.data, 13, 1)
    with pytest.raises(driver, match="blocks of 2048 x 1 x 1 threads"):
        kernel(cupy, "out[0] = 1;")((1,), (2048,), (x,))
    much = kernel(cupy, "extern __shared__ float kept[]; out[0] = kept[0] = 1;")
    with pytest.raises(driver, match="with 50000 bytes, of which 49152 are allowed"):
        much((1,), (1,), (x,), shared_mem=50000)
    with pytest.raises(driver, match="a GPU has 232448"):
        much.max_dynamic_shared_size_bytes = 232449
    much.max_dynamic_shared_size_bytes = 50000
    much((1,), (1,), (x,), shared_mem=50000)
    with cupy.cuda.Device(1):
        stream, event, other = cupy.cuda.Stream(), cupy.cuda.Event(), cupy.zeros((2, 2), np.float32)
    with pytest.raises(runtime, match="stream of device 1 while device 0 is current"):
        cupy.cuda.runtime.memsetAsync(x.data.ptr, 0, 12, stream.ptr)
    with pytest.raises(runtime, match="event of device 1 is recorded on a stream of device 0"):
        event.record()
    with pytest.raises(runtime, match="InvalidDevice"):
        cupy.cuda.Device(2).use()
    assert cupy.cuda.runtime.pointerGetAttributes(other.data.ptr).device == 1
    cublas = cupy.cuda.cublas
    with pytest.raises(cublas.CUBLASError), cupy.cuda.Device(1):
        cublas.setStream(cupy.cuda.Device(0).cublas_handle, 0)
    assert "handle of device 0 is used while device 1 is current" in fakecuda.refusal()


def test_counters(cupy: Any):
    x = cupy.zeros(3, np.float32)
    cupy.add(x, 1)
    before = fakecuda.counters()
    y = cupy.add(x, 1)
    y.get()
    changed = {name: count - before[name] for name, count in fakecuda.counters().items()}
    assert {name: count for name, count in changed.items() if count} == {
        "launches": 1, "allocations": 1, "to_host": 1, "synchronisations": 1,
    }  # fmt: skip
    assert fakecuda.launched()["cupy_add__float32_float_float32"] >= 2


def test_a_graph_runs_what_captured_streams_were_given(cupy: Any):
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    x, y = cupy.ones(3, np.float32), cupy.zeros(3, np.float32)
    add = kernel(cupy, "y[threadIdx.x] += x[threadIdx.x] * by;", "const float* x, float* y, float by")
    add((1,), (3,), (x, y, np.float32(0)))
    event = cupy.cuda.Event(disable_timing=True)
    first.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    first.record(event)
    second.wait_event(event)
    with second:
        add((1,), (3,), (x, y, np.float32(2)))
        second.record(event)
    first.wait_event(event)
    with first:
        cupy.cuda.runtime.memcpyAsync(x.data.ptr, y.data.ptr, x.nbytes, 3, first.ptr)
    assert first.is_capturing() and second.is_capturing()
    graph = first.end_capture()
    assert y.get().tolist() == [0, 0, 0]
    before = fakecuda.counters()
    graph.launch()
    graph.launch(second)
    after = fakecuda.counters()
    assert x.get().tolist() == y.get().tolist() == [6, 6, 6]  # 0 + 1 * 2, and 2 + 2 * 2
    assert after["graph_launches"] - before["graph_launches"] == 2 and after["launches"] == before["launches"]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("first.synchronize()", "StreamCaptureUnsupported"),
        ("cupy.cuda.Device().synchronize()", "StreamCaptureUnsupported"),
        ("cupy.empty(3)", "StreamCaptureUnsupported"),
        ("cupy.cuda.runtime.memset(x.data.ptr, 0, 4)", "StreamCaptureUnsupported"),
        ("cupy.cuda.runtime.memsetAsync(x.data.ptr, 0, 4, 0)", "StreamCaptureImplicit"),
        ("first.wait_event(outside)", "StreamCaptureIsolation"),
        ("second.wait_event(first.record()); x.data.memset_async(0, 4, second)", "StreamCaptureUnjoined"),
        ("first.record(outside); outside.synchronize()", "CapturedEvent"),
    ],
)
def test_what_a_capture_refuses(cupy: Any, what: str, code: str):
    first, second = cupy.cuda.Stream(non_blocking="Implicit" not in code), cupy.cuda.Stream(non_blocking=True)
    names = {"cupy": cupy, "first": first, "second": second, "x": cupy.zeros(3), "outside": cupy.cuda.Event()}
    names["outside"].record(second)
    error = cupy.cuda.runtime.CUDARuntimeError
    first.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)

    with pytest.raises(error, match=f"cudaError{code}"):
        exec(what, names)
        first.end_capture()
    with contextlib.suppress(error):  # what was refused has broken the capture, or it has ended
        first.end_capture()
    assert not first.is_capturing() and cupy.ones(2).sum().get() == 2


def test_kernels_are_rounded_as_nvcc_does_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAKE_CUDA_ROUNDING", "nvcc")
    program = """
import cupy
k = cupy.ElementwiseKernel("float32 a, float32 b, float32 c", "float32 out", "out = a * b + c", "rounded")
a, b, c = cupy.array([[1 + 2**-12, 1 + 2**-12, -1 - 2**-11], [2**-130, 1, 0]], "f").T
print(*k(a, b, c).get().tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.stdout.split() == [str(2**-24), "0.0"], done.stderr


def test_another_cupy_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fakecuda.build, "version", lambda name: "13.6.0")
    assert fakecuda.why_not() == "needs cupy-cuda12x 14.2, not 13.6.0"


def test_a_changed_layout_ends_the_import(tmp_path: Path):
    """A CuPy of the right release whose files are elsewhere."""
    for package in ("cupy", "cupy_backends"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    program = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport cupy"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert "LayoutError: CuPy has no cupy_backends/cuda/api/runtime" in done.stderr
