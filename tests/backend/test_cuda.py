"""CUDA: what the tests that take the device as a parameter do not cover, and the errors where there is no GPU."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import cuda, nn
from ddpgrad.distributed import trace
from ddpgrad.distributed.trace import timeline
from ddpgrad.errors import DeviceError
from ddpgrad.launcher.cli import gpu_kernels


def run(program: str, path: Path | None = None) -> str:
    """What a fresh interpreter prints, with `path` first where it looks for modules."""
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(path)!r})" if path else "sys.modules['cupy'] = None",
        program,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAM = """
import ddpgrad as torch
from ddpgrad import cuda, nn
print(cuda.is_available(), cuda.device_count(), cuda.memory_allocated(), torch.device("cuda", 1))
cuda.manual_seed_all(1)
cuda.empty_cache()
for use in (
    lambda: torch.zeros(2, device="cuda"),
    lambda: torch.ones(2).cuda(),
    lambda: nn.Linear(2, 2).to("cuda:0"),
    lambda: cuda.set_device(0),
    cuda.current_device,
    cuda.synchronize,
):
    try:
        use()
    except torch.errors.DeviceError as error:
        print(error)
"""


def test_without_cupy_every_use_of_a_gpu_says_what_to_install():
    first, *errors = run(f"import ddpgrad.errors\n{PROGRAM}").splitlines()
    assert first == "False 0 0 cuda:1"
    assert len(errors) == 6
    assert len(set(errors)) == 1
    assert errors[0].startswith("CUDA is not available: CuPy is not installed; pip install 'ddpgrad[gpu]'")


def test_cupy_without_a_gpu_says_what_cupy_said(tmp_path: Path):
    (tmp_path / "cupy.py").write_text(
        "__version__ = '14.2.0'\n"
        "class cuda:\n"
        "    class runtime:\n"
        "        class CUDARuntimeError(RuntimeError): pass\n"
        "        @staticmethod\n"
        "        def getDeviceCount(): raise cuda.runtime.CUDARuntimeError('cudaErrorInsufficientDriver')\n"
    )
    first, *errors = run(f"import ddpgrad.errors\n{PROGRAM}", tmp_path).splitlines()
    assert first == "False 0 0 cuda:1"
    assert len(errors) == 6
    assert len(set(errors)) == 1
    assert errors[0].startswith(
        "CUDA is not available: CuPy 14.2.0 finds no usable GPU (cudaErrorInsufficientDriver); `nvidia-smi`"
    )


def test_an_older_cupy_is_refused(tmp_path: Path):
    (tmp_path / "cupy.py").write_text("__version__ = '13.6.0'")
    _, *errors = run(f"import ddpgrad.errors\n{PROGRAM}", tmp_path).splitlines()
    assert len(set(errors)) == 1
    assert errors[0].startswith(
        "CUDA is not available: expected CuPy 14 or later, which knows bfloat16, got 13.6.0"
    )


def test_the_cpu_is_no_gpu():
    with pytest.raises(DeviceError, match="expected a GPU such as 0 or 'cuda:0', got device 'cpu'"):
        cuda.set_device("cpu")


@pytest.mark.gpu
def test_devices_and_memory(gpu: str):
    assert cuda.device_count() >= 1
    assert cuda.get_device_name()
    here = cuda.current_device()
    with cuda.device(here):
        x = torch.ones(1 << 20, device=gpu)
    assert cuda.current_device() == here
    assert x.device == torch.device("cuda", here)
    assert cuda.max_memory_allocated() >= cuda.memory_allocated() >= x.nbytes
    cuda.synchronize()
    del x
    cuda.empty_cache()
    with pytest.raises(DeviceError, match=f"there is no device cuda:{cuda.device_count()}: this host has"):
        torch.ones(1, device=f"cuda:{cuda.device_count()}")


@pytest.mark.gpu
def test_what_is_computed_of_a_tensor_is_on_its_gpu(two_gpus: None):
    there = torch.device("cuda", 1 - cuda.current_device())
    x = torch.rand(4, 5, device=there)
    made = [torch.empty(2, device=there), torch.zeros(2, device=there), torch.full((2,), 1.0, device=there)]
    made += [
        x + 1,
        x @ x.T,
        torch.cat([x, x]),
        torch.full_like(x, 2),
        x.new_zeros(3),
        torch.unique(x),
        x.isreal(),
    ]
    started = []
    thread = threading.Thread(target=lambda: started.extend([x * 2, torch.isin(x, 2.0)]))
    thread.start()
    thread.join()
    assert {t.device for t in made + started} == {there}
    with pytest.raises(DeviceError, match="expected all tensors to be on the same device"):
        x + torch.ones(5, device="cuda")
    assert torch.ones(1, device="cuda").device.index == cuda.current_device()


@pytest.mark.gpu
def test_backward_and_steps_of_a_model_on_two_gpus_are_those_of_the_cpu(two_gpus: None):
    found = []
    for devices in (("cpu", "cpu"), ("cuda:0", "cuda:1")):
        torch.manual_seed(0)
        first, second, last = nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(4, 2)
        first.to(devices[0]), second.to(devices[1]), last.to(devices[1])
        parameters = [p for layer in (first, second, last) for p in layer.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        x = torch.randn(3, 5)
        for _ in range(2):  # the branches are recorded, and so go backward, in turns
            u = torch.tanh(first(x.to(devices[0])) * 2)
            v = torch.tanh(second(x.to(devices[1])) * 3)
            loss = (last(u.to(devices[1]) + v) ** 2).mean() + (u * u).sum().to(devices[1])
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            assert all(p.grad.device == p.device for p in parameters)
            optimizer.step()
        found.append([p.detach().cpu() for p in parameters])
    for on_cpu, on_gpus in zip(*found, strict=True):
        torch.testing.assert_close(on_gpus, on_cpu)


@pytest.mark.gpu
def test_a_recording_notes_the_memory_of_gpus(gpu: str, tmp_path: Path):
    with trace.recording(tmp_path):
        x = torch.ones(1 << 20, device=gpu)
    [marks] = timeline.read(tmp_path).gpu_memory.values()
    assert marks[-1][1] >= x.nbytes


@pytest.mark.gpu
def test_tensors_on_different_devices(gpu: str):
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(6.0, device=gpu).reshape(2, 3)
    for mixture in (lambda: x + y, lambda: x @ y.T, lambda: F.embedding(torch.tensor([1]), y)):
        with pytest.raises(DeviceError, match="expected all tensors to be on the same device"):
            mixture()
    # Numbers in tensors, and indices, may come from the host.
    assert (y * torch.tensor(2.0)).tolist() == (x * 2).tolist()
    assert y[torch.tensor([1, 0])].tolist() == x[[1, 0]].tolist()
    y[torch.tensor([True, False])] = torch.tensor(7.0)
    assert y[0].tolist() == [7.0] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", gpu_kernels.DTYPES, ids=str)
def test_every_kernel_agrees_with_the_cpu(dtype: torch.dtype, gpu: str):
    cases = list(gpu_kernels.cases())
    found = {case.name: gpu_kernels.wrong(gpu, dtype, case) for case in cases}
    assert {name: wrong for name, wrong in found.items() if wrong} == {} and len(found) == len(cases)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tensor_cores_get_operands_of_16_bits(dtype: torch.dtype, gpu: str, monkeypatch: pytest.MonkeyPatch):
    from ddpgrad.backend.cuda import matmul

    kinds: list[set[int]] = []

    class Recorder:
        """cuBLAS, with the types of both operands written down."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(real, name)
            if "gemm" not in name:
                return found
            batched = "Batched" in name
            return lambda *args: (kinds.append({args[8], args[11 + batched]}), found(*args))[1]

    real = matmul.cublas
    monkeypatch.setattr(matmul, "cublas", Recorder())
    x = torch.rand(2, 4, 5, 5, device=gpu).to(dtype).requires_grad_()
    weight = torch.rand(3, 4, 2, 2, device=gpu).to(dtype).requires_grad_()
    made = F.conv2d(x, weight, weight[:, 0, 0, 0]).float().sum()
    (made + F.linear(x, weight[:, 0].reshape(-1, 4)[:, [0, 1, 2, 3, 0]], None).float().sum()).backward()
    (F.linear(weight[0, 0], weight[:, 0, 0], weight[:, 1, 1, 1])).float().sum().backward()
    assert kinds and set.union(*kinds) == {matmul._TYPES[x._array.dtype]}


@pytest.mark.gpu
def test_draws_are_made_on_the_gpu_and_take_one_key_of_the_host(gpu: str):
    made, following = [], []
    for size in (5000, 5001, 5000):
        torch.manual_seed(0)
        made.append(torch.randn(size, device=gpu))
        following.append(torch.rand(2).tolist())
    assert following[0] == following[1]
    assert torch.equal(made[0], made[2]) and not torch.equal(made[0], torch.randn(5000, device=gpu))
    assert abs(made[0].mean().item()) < 0.1 and abs(made[0].std().item() - 1) < 0.1
    uniform = torch.rand(5000, dtype=torch.bfloat16, device=gpu).float()
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean().item() - 0.5) < 0.05
    whole = torch.randint(-3, 3, (1000,), device=gpu)
    assert whole.unique().tolist() == [-3, -2, -1, 0, 1, 2]
    assert torch.randperm(100, device=gpu).sort()[0].tolist() == list(range(100))


@pytest.mark.gpu
def test_sums_at_repeated_places_are_the_same_bits_every_time(gpu: str):
    rng = np.random.default_rng(0)
    rows, indices = torch.tensor(rng.standard_normal((4096, 5)).astype(np.float32)), rng.integers(0, 3, 4096)
    found = []
    for _ in range(3):
        table = torch.zeros(3, 5, device=gpu, requires_grad=True)
        (F.embedding(torch.tensor(indices, device=gpu), table) * rows.to(gpu)).sum().backward()
        found.append(table.grad.cpu())
        picked = torch.zeros(3, device=gpu).scatter_add(
            0, torch.tensor(indices, device=gpu), rows[:, 0].to(gpu)
        )
        assert np.array_equal(picked.cpu().numpy(), found[0][:, 0].numpy())
    assert all(torch.equal(f, found[0]) for f in found)
    want = np.zeros((3, 5))
    np.add.at(want, indices, rows.numpy())
    np.testing.assert_allclose(found[0].numpy(), want, rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, k: torch.logical_xor(x, y),
        lambda x, y, k: torch.logical_not(x),
        lambda x, y, k: x.index_add(0, k, y),
        lambda x, y, k: x.scatter_add(0, k, y),
        lambda x, y, k: x.index_put((k,), y, accumulate=True),
        lambda x, y, k: x[0].index_add(0, k[0] * 0, y[0]),
        lambda x, y, k: torch.softmax(x[2].real, 0),
        lambda x, y, k: x[0].real.bfloat16().index_reduce(0, k[:1] * 0, y.real[:1].bfloat16(), "prod"),
    ],
)
def test_what_cupy_lacks_for_complex_numbers_and_without_dimensions(function: Any, gpu: str):
    x, y = torch.tensor([1 + 2j, 0, 3, 1j]), torch.tensor([1, 0, 2j, 1 - 1j])
    k = torch.tensor([2, 1, 2, 0])
    assert function(*(t.to(gpu) for t in (x, y, k))).tolist() == function(x, y, k).tolist()


@pytest.mark.gpu
def test_what_is_out_of_range_gives_nan(gpu: str):
    looked_up = F.embedding(torch.tensor([0, 3, -1], device=gpu), torch.ones(3, 2, device=gpu))
    assert torch.isnan(looked_up[:, 0]).tolist() == [False, True, True]
    loss = F.cross_entropy(torch.zeros(2, 3, device=gpu), torch.tensor([0, 3], device=gpu), reduction="none")
    assert torch.isnan(loss).tolist() == [False, True]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_staging_through_host_memory(dtype: torch.dtype, gpu: str):
    from ddpgrad.backend.cuda.staging import Stage, room_for

    tensors = [torch.arange(n, dtype=dtype).to(gpu) for n in (2000, 2000)]
    room = np.zeros(room_for(2000, tensors[0]._array.dtype), tensors[0]._array.dtype)
    stage = Stage(room, 2000, tensors[0]._array)
    assert torch.from_numpy(stage.host.view(np.uint8)).is_pinned()
    stage.to_host((tensors[0] * 2)._array)
    stage.synchronize()
    assert stage.host.tolist() == (2 * tensors[1]).tolist()
    stage.host[...] = stage.host + stage.host
    stage.from_host(tensors[1]._array)
    assert tensors[1].tolist() == (4 * tensors[0]).tolist()


@pytest.mark.gpu
def test_products_of_float32_use_tf32_where_a_program_allows_it(gpu: str):
    a, b = torch.full((256, 256), 1 + 2**-12, device=gpu), torch.eye(256, device=gpu)

    def first(dtype: torch.dtype) -> float:
        return float((a.to(dtype) @ b.to(dtype))[0, 0])

    exact = first(torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert torch.get_float32_matmul_precision() == "high"
        rounded, double = first(torch.float32), first(torch.float64)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert exact == double == first(torch.float32) == 1 + 2**-12
    assert rounded == 1 or not cuda.is_bf16_supported()  # which GPUs have learnt together
