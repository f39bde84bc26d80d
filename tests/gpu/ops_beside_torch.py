"""Single ops on a GPU beside PyTorch on the same GPU: rates of products, GB/s, and what a call costs the host.

    python tests/gpu/ops_beside_torch.py [--small] [--device cpu]

Each op runs `ROUNDS` times before the GPU is waited for; the least of five such runs counts. Where PyTorch with CUDA is not
there, its columns have '-'.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch_here import pytorch, wait

import ddpgrad

ROUNDS = 20


class Measured(NamedTuple):
    """`run()` of a stack; amount: floating-point operations, or bytes that must at least move, in billions."""

    name: str
    unit: str
    amount: float
    run: Callable[[], Any]


def cases(torch: Any, device: str, small: bool) -> Iterator[Measured]:
    """The ops of a stack, with its tensors."""
    F, rows, columns = torch.nn.functional, 64 if small else 16384, 64 if small else 1024
    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    for n in (64,) if small else (1024, 4096, 8192):
        for name, dtype in kinds.items():
            a = torch.ones(n, n, device=device, dtype=dtype)
            yield Measured(f"product {n} {name}", "TFLOP/s", 2e-12 * n**3, lambda a=a: a @ a)
    for name in ("float32", "bfloat16"):
        x = torch.ones(rows, columns, device=device, dtype=kinds[name])
        w = torch.ones(columns, device=device, dtype=kinds[name])
        size = x.numel() * x.element_size() / 1e9
        ops: dict[str, tuple[float, Callable[[], Any]]] = {
            "clone": (2, lambda x=x: x.clone()),
            "add": (3, lambda x=x: x + x),
            "gelu": (2, lambda x=x: F.gelu(x)),
            "softmax": (2, lambda x=x: F.softmax(x, -1)),
            "layer_norm": (2, lambda x=x, w=w: F.layer_norm(x, (columns,), w, w)),
            "sum": (1, lambda x=x: x.sum()),
            "sum over rows": (1, lambda x=x: x.sum(0)),
        }
        for op, (times, run) in ops.items():
            yield Measured(f"{op} {name}", "GB/s", times * size, run)
    q = torch.ones(2, 4, 32, 16, device=device) if small else torch.ones(8, 12, 1024, 64, device=device)
    for name in ("float32", "bfloat16"):
        h = q.to(kinds[name])
        flop = (
            2e-12 * h.numel() * h.shape[-2]
        )  # half of the scores, and their products with v, are under the mask
        run = lambda h=h: F.scaled_dot_product_attention(h, h, h, is_causal=True)  # noqa: E731
        yield Measured(f"attention {name}", "TFLOP/s", flop, run)
    tiny = torch.ones(8, 8, device=device)
    learnt = torch.ones(8, 8, device=device, requires_grad=True)
    for name, x in (("", tiny), (" with gradient", learnt)):
        yield Measured(f"host, add{name}", "us", 0, lambda x=x: x + tiny)
        yield Measured(f"host, linear{name}", "us", 0, lambda x=x: F.linear(tiny, x))


def figure(torch: Any, device: str, case: Measured) -> float:
    """In the case's unit: more is better, but for microseconds of the host."""
    best = float("inf")
    for _ in range(6):  # the first compiles
        wait(torch, device)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            case.run()
        if case.amount:
            wait(torch, device)
        best = min(best, (time.perf_counter() - began) / ROUNDS)
    return case.amount / best if case.amount else best * 1e6


def main() -> None:
    """Print a line for each op."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="small sizes, for a rehearsal on the stand-in")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to rehearse with PyTorch"
    )
    args = parser.parse_args()
    device, small, torch = args.device, args.small, pytorch(args.device)
    print(f"{'':<28}{'':>8}{'ddpgrad':>12}{'PyTorch':>12}{'ratio':>8}")
    theirs = cases(torch, device, small) if torch is not None else iter(())
    for case in cases(ddpgrad, device, small):
        ours, other = figure(ddpgrad, device, case), next(theirs, None)
        there = figure(torch, device, other) if other is not None else None
        told = f"{there:>12.4g}{ours / there:>8.2f}" if there else f"{'-':>12}{'-':>8}"
        print(f"{case.name:<28}{case.unit:>8}{ours:>12.4g}{told}", flush=True)


if __name__ == "__main__":
    main()
