"""CUDA graphs on this GPU, one risk after the other: each line says what holds, and the first failure names what does not.

    python tests/gpu/captured_steps.py [--small]

Written against the stand-in, which has no parallel branches, no lazily loaded kernels and no heuristics of cuBLAS. What
may be otherwise on a GPU is what each check is for; `checks` says it. Exit code 1 where one fails.
"""

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.launcher.bench import models

REPLAYS = 20


def replayed(block: Callable[[], Any], times: int = 1) -> Any:
    """What a block gives after replays of its capture; it runs twice before."""
    block()
    block()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = block()
    for _ in range(times):
        graph.replay()
    torch.cuda.synchronize()
    return out


def same(found: Any, wanted: Any) -> str:
    """What is wrong, or ''."""
    off = float((found - wanted).abs().max())
    return "" if off <= 1e-5 else f"off by {off:.1e}"


def exchanged() -> str:
    """The driver lets a thread that captures allocate: without it CuPy's pool cannot grow."""
    mode = ctypes.c_int(2)
    driver = ctypes.CDLL("libcuda.so.1")
    status = driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    return f"status {status}" if status else ""


def allocated() -> str:
    """cudaMalloc and kernels that are loaded first within a capture: CUDA_MODULE_LOADING may be lazy."""
    x = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.arctan(x * 3)
    graph.replay()
    return same(out, torch.arctan(x * 3))


def multiplied() -> str:
    """cuBLAS by ctypes with a handle and a workspace of our own; its choice of an algorithm may differ from eager."""
    a, b = torch.randn(3, 64, 48, device="cuda"), torch.randn(3, 48, 32, device="cuda")
    return same(replayed(lambda: a @ b), a @ b) or same(replayed(lambda: a[0] @ b[0]), a[0] @ b[0])


def sorted_in_passes() -> str:
    """Gradients at repeated indexes: CuPy sorts with a wait, so that a capture sorts in passes of a kernel."""
    index = torch.randint(0, 50, (3000,), device="cuda")
    table = torch.randn(50, 8, device="cuda", requires_grad=True)

    def block() -> Any:
        return torch.autograd.grad(F.embedding(index, table).square().sum(), table)[0]

    return same(replayed(block), block())


def drawn() -> str:
    """Keys of dropout are read from memory, which a copy from pageable host memory fills before each replay."""
    torch.manual_seed(1)
    x = torch.ones(4096, device="cuda")
    wanted = [F.dropout(x, 0.5) for _ in range(4)]
    torch.manual_seed(1)
    F.dropout(x, 0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = F.dropout(x, 0.5)
    for want in wanted[1:]:
        graph.replay()
        if told := same(out, want):
            return told
    return ""


def course(make: Callable[[], models.Job], captured: bool) -> tuple[list[float], float]:
    """Losses, and the seconds of a step at the end."""
    torch.manual_seed(0)
    job = make()
    model = job.model.cuda()
    optimizer = job.optimizer(model.parameters())
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    batch = [x.cuda() for x in job.batch(0)]

    def step(*given: Any) -> Any:
        loss = job.loss(model, given)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run: Any = torch.cuda.captured_step(step) if captured else step
    losses = [float(run(*batch)) for _ in range(8)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(REPLAYS):
        loss = run(*batch)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / REPLAYS
    if captured and run.why_not is not None:
        raise RuntimeError(run.why_not)
    return [*losses, float(loss)], seconds


def trained(make: Callable[[], models.Job]) -> str:
    """A whole step: in parallel branches of a graph, and with memory that a private pool uses again."""
    (eager, slow), (graphed, fast) = course(make, False), course(make, True)
    bits = (
        "the same bits"
        if eager == graphed
        else f"off by {max(abs(a - b) for a, b in zip(eager, graphed, strict=True)):.1e}"
    )
    print(f"     eager {slow * 1e3:.2f} ms, captured {fast * 1e3:.2f} ms a step, {bits}")
    return (
        "" if max(abs(a - b) / abs(a) for a, b in zip(eager, graphed, strict=True)) < 1e-3 else "other losses"
    )


def checks(small: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    width = 8 if small else 64
    for check in (exchanged, allocated, multiplied, sorted_in_passes, drawn):
        yield check.__name__, check
    jobs = {
        "MLP": lambda: models.mlp(torch, 64, 96, 16),
        "CNN": lambda: models.mnist_cnn(torch, width, 4, 0.3, 16),
        "GPT": lambda: models.gpt(torch, 2, 4 * width, 2, 16, 4),
    }
    for name, make in jobs.items():
        yield f"a step of a {name}", lambda make=make: trained(make)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    failed = 0
    print(torch.cuda.get_device_name())
    for name, check in checks(parser.parse_args().small):
        try:
            told = check()
        except Exception as error:  # whatever CUDA, CuPy or cuBLAS says is what is wrong
            told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        failed += bool(told)
        print(f"{'FAILED' if told else 'ok':<7}{name}{': ' if told else ''}{told}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
