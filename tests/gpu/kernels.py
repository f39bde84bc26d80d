"""Every kernel of the CUDA backend once, or linear algebra and FFT, against the CPU: values and gradients.

python tests/gpu/kernels.py --processes 8     # which compile side by side: what comes after finds all kernels in CuPy's cache
python tests/gpu/kernels.py --what linalg
compute-sanitizer python tests/gpu/kernels.py --types float32
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import ddpgrad as torch
from ddpgrad.launcher.cli import gpu_kernels
from ddpgrad.launcher.cli.gpu_kernels import Case

L = torch.linalg


def _of(name: str, call: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    return Case(name, shapes, lambda device, dtype, *tensors: call(*tensors), roundings=64)


def _positive(x: Any) -> Any:
    return x @ x.mT + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _real(x: Any) -> Any:
    return torch.view_as_real(x)


def linalg() -> Iterator[Case]:
    """By cuSOLVER, cuBLAS and cuFFT; of what has a sign or an order of its own, what does not depend on it."""
    a, b = (3, 6, 6), (3, 6, 2)
    yield _of("cholesky", lambda x: L.cholesky(_positive(x)), a)
    yield _of("cholesky_solve", lambda x, y: torch.cholesky_solve(y, L.cholesky(_positive(x))), a, b)
    yield _of("solve", lambda x, y: L.solve(_positive(x), y), a, b)
    yield _of("solve_triangular", lambda x, y: L.solve_triangular(_positive(x).tril(), y, upper=False), a, b)
    yield _of("inv", lambda x: L.inv(_positive(x)), a)
    yield _of("slogdet", lambda x: L.slogdet(_positive(x))[1], a)
    yield _of("lu_factor", lambda x: L.lu_factor(_positive(x))[0], a)
    yield _of("qr", lambda x: L.qr(_positive(x))[1].abs(), a)
    yield _of("svdvals", lambda x: L.svdvals(_positive(x)), a)
    yield _of("svd", lambda x: _product(*L.svd(_positive(x), full_matrices=False)), a)
    yield _of("eigvalsh", lambda x: L.eigvalsh(_positive(x)), a)
    yield _of("eigh", lambda x: _powered(*L.eigh(_positive(x))), a)
    yield _of("pinv", L.pinv, (3, 6, 4))
    yield _of("lstsq", lambda x, y: L.lstsq(x, y).solution, (8, 4), (8, 2))
    for name in ("fft", "ifft", "rfft", "fft2", "ifft2", "rfft2"):
        yield _of(name, lambda x, name=name: _real(getattr(torch.fft, name)(x)), (3, 8, 6))
    yield _of("irfft", lambda x: torch.fft.irfft(torch.fft.rfft(x) * 1.5), (3, 9, 6))


def _product(u: Any, s: Any, v: Any) -> Any:
    return (u * s.unsqueeze(-2)) @ v


def _powered(values: Any, vectors: Any) -> Any:
    return (vectors * values.unsqueeze(-2).sqrt()) @ vectors.mT


WHAT = {"kernels": gpu_kernels.cases, "linalg": linalg}


def judged(what: str, number: int, dtype: str) -> tuple[str, str]:
    """The name of a case with a type, and what is wrong with it, or ''."""
    case = list(WHAT[what]())[number]
    return f"{case.name} {dtype}", gpu_kernels.wrong("cuda:0", getattr(torch, dtype), case)


def main() -> None:
    """Print what is wrong; the exit code is 1 where something is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", nargs="+", default=["float64", "float32"])
    parser.add_argument("--what", choices=WHAT, default="kernels")
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    count = sum(1 for _ in WHAT[args.what]())
    calls = [(args.what, number, name) for number in range(count) for name in args.types]
    if args.processes > 1:
        with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
            found = dict(pool.map(judged, *zip(*calls, strict=True)))
    else:
        found = dict(map(judged, *zip(*calls, strict=True)))
    wrong = [f"{name}: {reason}" for name, reason in found.items() if reason]
    print("\n".join([*wrong, f"{len(calls)} calls, {len(wrong)} wrong"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
