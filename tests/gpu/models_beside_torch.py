"""Training steps of a GPT and a ResNet on a GPU beside PyTorch on the same GPU, from the same weights and batches.

    python tests/gpu/models_beside_torch.py [--small] [--steps 20] [--device cpu] [--models GPT] [--stacks eager captured]

By stack and type: ms of a step, tokens or images a second, peak memory, launches, and the losses of the first and the last
step. ddpgrad runs eagerly and as a captured step, PyTorch eagerly and by torch.compile. Launches are the stand-in's, or those that PyTorch's profiler sees in this
process; '-' where neither is there. Memory of ddpgrad is what CuPy's pool held at most.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from torch_here import pytorch, wait

import ddpgrad
from ddpgrad.launcher.bench import models

SIZES: dict[str, tuple[Callable[[Any], models.Job], Callable[[Any], models.Job], str, int, int]] = {
    "GPT-2 124M": (
        partial(models.gpt, layers=12, width=768, heads=12, context=1024, size=8, tokens=50304),
        partial(models.gpt, layers=2, width=32, heads=2, context=16, size=2),
        "tokens/s", 8 * 1024, 2 * 16,
    ),
    "ResNet-18": (
        partial(models.resnet18_cifar, size=256), partial(models.resnet18_cifar, width=4, size=2), "images/s", 256, 2,
    ),
}  # fmt: skip
TYPES = ("float32", "bfloat16")
WAYS = ("eager", "captured", "compiled")


class Course:
    """One stack's training of one model: `step()` gives the loss, on the GPU."""

    def __init__(
        self, torch: Any, device: str, build: Callable[[Any], models.Job], given: Any, kind: str, way: str
    ) -> None:
        if device == "cuda":
            for module in filter(None, (ddpgrad, sys.modules.get("torch"))):
                module.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        job = build(torch)
        job.model.load_state_dict({name: torch.tensor(value) for name, value in given[0].items()})
        model = job.model.to(device)
        self.torch, self.device, self.job, self.kind = torch, device, job, kind
        self.optimizer = job.optimizer(model.parameters())
        self.model = torch.compile(model) if way == "compiled" else model
        self.run = self.step
        if way == "captured":
            for group in self.optimizer.param_groups:
                if "capturable" in group:
                    group["capturable"] = True
            self.run = torch.cuda.captured_step(self.step, warmup=2)
        self.batch = tuple(torch.tensor(part).to(device) for part in given[1])

    def step(self) -> Any:
        wide = self.kind == "float32"
        with self.torch.autocast(self.device, None if wide else getattr(self.torch, self.kind), not wide):
            loss = self.job.loss(self.model, self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def measured(self, steps: int, warm_up: int) -> tuple[float, list[float], int]:
        """Seconds of a step, the losses, and peak bytes."""
        losses = [self.run() for _ in range(warm_up)]
        wait(self.torch, self.device)
        began = time.perf_counter()
        losses += [self.run() for _ in range(steps)]
        wait(self.torch, self.device)
        seconds = (time.perf_counter() - began) / steps
        if reason := getattr(self.run, "why_not", None):
            raise RuntimeError(f"the step was not captured: {reason}")
        return seconds, [float(loss) for loss in losses], self.torch.cuda.max_memory_allocated()

    def launches(self, torch: Any) -> int | None:
        """Kernels of one step, cuBLAS's included, or None where nothing counts them."""
        stand_in = sys.modules.get("fakecuda")
        if stand_in is not None:
            before = stand_in.counters()
            self.run()
            return sum(
                stand_in.counters()[name] - before[name]
                for name in ("launches", "products", "graph_launches")
            )
        if torch is None or self.device == "cpu":
            return None
        activity = torch.profiler.ProfilerActivity.CUDA
        with torch.profiler.profile(activities=[activity]) as profile:
            self.run()
            torch.cuda.synchronize()
        on_gpu = [event for event in profile.events() if "CUDA" in str(event.device_type)]
        return sum(not event.name.startswith(("Memcpy", "Memset")) for event in on_gpu)


def main() -> None:
    """Print a line for each model, type and stack; the exit code is 1 where losses differ or are not finite."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="small sizes, for a rehearsal on the stand-in")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to rehearse with PyTorch"
    )
    parser.add_argument("--models", default="", help="those whose names begin so")
    parser.add_argument("--stacks", nargs="+", choices=WAYS, default=list(WAYS))
    args = parser.parse_args()
    torch, wrong = pytorch(args.device), 0
    stacks = [("ddpgrad", ddpgrad, "eager"), ("ddpgrad, captured", ddpgrad, "captured")]
    stacks += [("PyTorch", torch, "eager"), ("torch.compile", torch, "compiled")] if torch is not None else []
    stacks = [
        stack
        for stack in stacks
        if stack[2] in args.stacks and (args.device, stack[2]) != ("cpu", "captured")
    ]
    for name, (large, little, unit, *amounts) in SIZES.items():
        if not name.startswith(args.models):
            continue
        build, amount = (little, amounts[1]) if args.small else (large, amounts[0])
        name += ", small" * args.small
        ddpgrad.manual_seed(0)
        job = build(ddpgrad)
        weights = {key: value.numpy() for key, value in job.model.state_dict().items()}
        given = weights, [part.numpy() for part in job.batch(1)]
        for kind in TYPES:
            first: list[float] = []
            for stack, module, way in stacks:
                course = None  # before the next takes its memory
                try:
                    course = Course(module, args.device, build, given, kind, way)
                    seconds, losses, peak = course.measured(args.steps, 3)
                    count = course.launches(torch)
                except Exception as error:
                    wrong += module is ddpgrad
                    told = "FAILED" if module is ddpgrad else "left out"
                    reason = f"{type(error).__name__}: {str(error)[:400]}"
                    print(f"{told}: {name} {kind} {stack} ({reason})", flush=True)
                    continue
                told = f"{name} {kind} {stack}: {seconds * 1e3:.1f} ms, {amount / seconds:,.0f} {unit}, "
                told += f"peak {peak / 2**20:,.0f} MiB, launches {'-' if count is None else count}, "
                print(f"{told}loss {losses[0]:.5f} to {losses[-1]:.5f}", flush=True)
                first = first or losses
                allowed = 1e-3 if kind == "float32" else 3e-2
                sound = all(map(math.isfinite, losses)) and losses[-1] < losses[0]
                if not sound or abs(losses[0] - first[0]) > allowed * abs(first[0]):
                    wrong += 1
                    print(f"WRONG: the losses of {stack} do not fall, or begin elsewhere than {first[0]:.5f}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
