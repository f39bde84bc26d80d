"""`ddprun doctor --gpu`: what the GPUs of this host are, whether they compute what the CPU does, and how fast."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import ddpgrad as torch
from ddpgrad import cuda
from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes
from ddpgrad.distributed.transports import nccl

from . import gpu_kernels
from .doctor import run

_GIB = 1 << 30
# Of the memory's own rate, which no copy reaches.
_COPIED = 0.6
# Tensor cores multiply 16-bit floats at least 8 times as fast as float32 is multiplied without them.
_TENSOR_CORES = 2.0
_LONG_ENOUGH = 0.005  # seconds of one product or copy
_AT_MOST = 100  # seconds of a job that exchanges


class Row(NamedTuple):
    """One line of the table. verdict: 'ok', 'slow' or 'wrong'."""

    verdict: str
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.verdict:<6} {self.subject:<34} {self.what}"


def main() -> int:
    """Print the table; the exit code is 1 where something is wrong. LaunchError where there is no GPU."""
    if reason := cuda.why_not():
        raise LaunchError(f"doctor --gpu: {reason}")
    began, seen = time.monotonic(), Counter[str]()
    for row in rows():
        print(row, flush=True)
        seen[row.verdict] += 1
    counts = ", ".join(f"{seen[verdict]} {verdict}" for verdict in ("ok", "slow", "wrong"))
    print(
        f"{counts}; {time.monotonic() - began:.0f} s. What is slow is judged by what CUDA reports of the card."
    )
    return exit_codes.RANK_FAILED if seen["wrong"] else exit_codes.FINISHED


def rows() -> Iterator[Row]:
    """All rows, one after the other."""
    yield from _libraries()
    for index in range(cuda.device_count()):
        yield _card(index)
    yield from _peers()
    for index in range(cuda.device_count()):
        yield from _kernels(index)
        yield from _rates(index)
    yield from _exchanges()


def _libraries() -> Iterator[Row]:
    cupy = import_module("cupy")
    driver, runtime = (f() for f in (cupy.cuda.runtime.driverGetVersion, cupy.cuda.runtime.runtimeGetVersion))
    told = f"runs CUDA {_version(driver)}; CuPy {cupy.__version__} is made for {_version(runtime)}"
    if driver // 1000 < runtime // 1000:
        yield Row("wrong", "driver", f"{told}: install CuPy for CUDA {driver // 1000}, or a newer driver")
    else:
        yield Row("ok", "driver", told)
    reason, one = nccl.missing(), cuda.device_count() == 1
    if reason is None:
        told = (
            f"{import_module('cupy.cuda.nccl').get_version()}{' (not used: there is one GPU)' if one else ''}"
        )
    else:
        told = f"none: gradients of several GPUs travel through host memory ({reason})"
    yield Row("ok" if reason is None or one else "slow", "NCCL", told)
    there = find_spec("cudnn") is not None
    told = f"frontend {metadata.version('nvidia-cudnn-frontend')}" if there else "not installed"
    yield Row("ok", "cuDNN", f"{told}; ddpgrad does not use it")


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _card(index: int) -> Row:
    free, total = cuda.mem_get_info(index)
    card, clock = cuda.get_device_properties(index), _reported(index, "ClockRate")
    told = (
        f"{card.name}, compute capability {card.major}.{card.minor}, {card.multi_processor_count} processors"
    )
    told += f" at {clock / 1e6:.2f} GHz" if clock else ""
    return Row("ok", f"cuda:{index}", f"{told}, {free / _GIB:.1f} of {total / _GIB:.1f} GiB free")


def _reported(index: int, attribute: str) -> int:
    """What CUDA reports of a GPU (clocks in kHz, the bus in bits), 0 where it does not."""
    runtime = import_module("cupy").cuda.runtime
    try:
        return runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{attribute}"), index)
    except (runtime.CUDARuntimeError, AttributeError):
        return 0


def _peers() -> Iterator[Row]:
    count = cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    far = [f"{a} to {b}" for a, b in pairs if not cuda.can_device_access_peer(a, b)]
    if pairs:
        told = f"not from {', '.join(far)}: copies go through host memory" if far else "each GPU reaches each"
        yield Row("slow" if far else "ok", "peer access", told)
    x = torch.arange(1 << 16, dtype=torch.float32)
    bad = [f"{a} to {b}" for a, b in pairs if not torch.equal(x.to(f"cuda:{a}").to(f"cuda:{b}").cpu(), x)]
    if pairs:
        yield Row(
            "wrong" if bad else "ok", "copies between GPUs", f"wrong from {', '.join(bad)}" if bad else ""
        )


def _kernels(index: int) -> Iterator[Row]:
    """Of the first GPU a row for each case; of the others, which run the same code, what is wrong and one row."""
    dtypes, wrong = gpu_kernels.DTYPES[: 4 if index == 0 else 2], 0
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    for case in gpu_kernels.cases():
        bad = [
            f"{dtype}: {found}"
            for dtype in dtypes
            if (found := gpu_kernels.wrong(f"cuda:{index}", dtype, case))
        ]
        wrong += bool(bad)
        if bad or index == 0:
            yield Row("wrong" if bad else "ok", case.name, f"cuda:{index}: {'; '.join(bad) or names}")
    if index:
        yield Row("wrong" if wrong else "ok", "all of these", f"cuda:{index}: {wrong} wrong of {names}")


def _rates(index: int) -> Iterator[Row]:
    """Products and copies as large as they must be to take long enough."""
    with cuda.device(index):
        plain = 0.0
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            seconds, n = _long_enough(lambda n, dtype=dtype: _product(n, dtype), 512, 8192)
            rate, plain = 2 * n**3 / seconds / 1e12, plain or 2 * n**3 / seconds / 1e12
            low = dtype is not torch.float32 and cuda.is_bf16_supported() and rate < _TENSOR_CORES * plain
            told = f"{rate:.3g} TFLOP/s, {n} x {n} (CUDA reports no peak)"
            told += f": below {_TENSOR_CORES:g} times float32's, so without tensor cores" if low else ""
            yield Row("slow" if low else "ok", f"cuda:{index} product {str(dtype)[6:]}", told)
        seconds, n = _long_enough(_copy, 1 << 20, 1 << 28)
        rate, due = 8 * n / seconds / 1e9, 2 * _reported(index, "MemoryClockRate") * 1e3
        due *= _reported(index, "GlobalMemoryBusWidth") / 8 / 1e9
        told = f"{rate:.3g} GB/s read and written, "
        told += f"{rate / due:.0%} of what clock and bus width give" if due else "CUDA reports no peak"
        yield Row("slow" if rate < _COPIED * due else "ok", f"cuda:{index} copy", told)
        seconds, n = _long_enough(_upload, 1 << 20, 1 << 26)
        yield Row("ok", f"cuda:{index} from the host", f"{4 * n / seconds / 1e9:.3g} GB/s, page-locked")


def _long_enough(work: Callable[[int], Callable[[], Any]], size: int, most: int) -> tuple[float, int]:
    """The least seconds of `work(size)` of five, and the size, doubled until it takes long enough."""
    while True:
        run, times = work(size), []
        run()
        for _ in range(5):
            cuda.synchronize()
            began = time.perf_counter()
            run()
            cuda.synchronize()
            times.append(time.perf_counter() - began)
        if min(times) > _LONG_ENOUGH or size >= most:
            return min(times), size
        size *= 2


def _product(n: int, dtype: Any) -> Callable[[], Any]:
    a, b = torch.ones(n, n, dtype=dtype, device="cuda"), torch.ones(n, n, dtype=dtype, device="cuda")
    return lambda: a @ b


def _copy(n: int) -> Callable[[], Any]:
    a, b = torch.zeros(n, device="cuda"), torch.empty(n, device="cuda")
    return lambda: b.copy_(a)


def _upload(n: int) -> Callable[[], Any]:
    a, b = torch.zeros(n).pin_memory(), torch.empty(n, device="cuda")
    return lambda: b.copy_(a, non_blocking=True)


_ALL_REDUCE = """
import sys, time
import ddpgrad as torch, ddpgrad.distributed as dist
dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
times = []
for _ in range(6):
    x = torch.full((1 << 22,), rank + 1.0, device="cuda")
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    times.append(time.perf_counter() - began)
    assert bool((x == size * (size + 1) / 2).all()), f"rank {rank}: wrong sums"
if rank == 0:
    print(f"{x.nbytes / min(times) / 1e9:.3g}")
dist.destroy_process_group()
"""


def _exchanges() -> Iterator[Row]:
    """All-reduce over all GPUs, by NCCL where there are several, and through host memory."""
    count = cuda.device_count()
    ranks = max(count, 2)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "all_reduce.py")
        script.write_text(_ALL_REDUCE)
        for backend, name in (("nccl", "NCCL"), ("gloo", "host memory")):
            if backend == "nccl" and (count == 1 or nccl.missing()):
                continue
            subject, command = f"all-reduce, {name}", [sys.executable, "-P", "-m", "ddpgrad.launcher"]
            try:
                done = run([*command, "-n", str(ranks), str(script), backend], _AT_MOST)
            except subprocess.TimeoutExpired:
                yield Row("wrong", subject, f"{ranks} ranks: no end within {_AT_MOST} s")
                continue
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                yield Row("wrong", subject, f"{ranks} ranks: exit code {done.returncode}: {last[:160]}")
            else:
                told = f"{ranks} ranks on {count} GPU{'s' * (count > 1)}, 16 MiB of float32"
                yield Row("ok", subject, f"{told}: {done.stdout.split()[-1]} GB/s")
