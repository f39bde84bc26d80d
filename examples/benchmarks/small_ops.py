"""What a small op costs: a chain of 20 ops on 8x8, forward and with backward, against PyTorch in the same run.

    python examples/benchmarks/small_ops.py [--rounds 15]

Both stacks run in this process with one thread, in turn, and each figure is a median over
rounds; trust the ratio (below 1 ddpgrad is faster), not the times.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import ddpgrad

CALLS = 200


def chain(x: Any, w: Any) -> Any:
    """20 ops as programs use them: arithmetic, activations, products, a view, a reduction."""
    h = x
    for _ in range(3):
        h = (h @ w).tanh() * x + w
        h = (h - 0.5).relu() * 2
    return (h.t() * x).sum()


def forward(torch: Any) -> Callable[[], None]:
    """The chain without a graph."""
    x, w = torch.ones(8, 8) * 0.1, torch.ones(8, 8) * 0.2

    def run() -> None:
        for _ in range(CALLS):
            chain(x, w)

    return run


def backward(torch: Any) -> Callable[[], None]:
    """The chain and its gradients."""
    x, w = torch.ones(8, 8) * 0.1, torch.ones(8, 8) * 0.2
    w.requires_grad_()
    x.requires_grad_()

    def run() -> None:
        for _ in range(CALLS):
            w.grad = x.grad = None
            chain(x, w).backward()

    return run


def timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    import torch

    torch.set_num_threads(1)
    for name, case in (("forward", forward), ("forward and backward", backward)):
        ours, theirs = case(ddpgrad), case(torch)
        ours(), theirs()
        pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
        mine, other = median(a for a, _ in pairs), median(b for _, b in pairs)
        ratio = median(a / b for a, b in pairs)
        print(f"{name}: ddpgrad {mine:.0f} us, PyTorch {other:.0f} us, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
