"""Two hosts, 1 Gbit/s between them: does the exchange of gradients hide behind backward?

    python examples/benchmarks/two_hosts.py               (as root, with MPICH: pip install mpich)
    python examples/benchmarks/two_hosts.py --elsewhere   # layers that keep no core busy, as on a GPU

The hosts are network namespaces of this machine, with one rank each. The batch is chosen so that
backward alone takes about as long as the exchange alone (`--relative` times as long); then both
together take little more than the longer. What is exposed of the exchange is read from the trace
(`ddprun trace`). On a machine of two cores each host has one for backward and for the network's
own work, a fifth of a core at 1 Gbit/s, which backward alone has for itself.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.trace import recorder, timeline
from ddpgrad.nn.parallel import DistributedDataParallel

TOKENS, WIDTH, LAYERS, VOCABULARY = 64, 512, 6, 256


class GPT(nn.Module):
    """19 million parameters, 76 MB of gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 8, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        hidden = self.words(x) + self.places(torch.arange(TOKENS))
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


class Elsewhere(torch.autograd.Function):
    """A layer whose work is done elsewhere, as by a GPU: this process waits as long, and gets a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.save_for_backward(weight)
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        time.sleep(2 * ctx.seconds)
        return grad, torch.zeros_like(ctx.saved_tensors[0]), None


class GPTElsewhere(nn.Module):
    """The weights of `GPT`'s layers, in their order; the time of each is in proportion to its size and the batch."""

    SECONDS_PER_MULTIPLICATION = 1e-12

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * LAYERS
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in shapes)
        self.head = nn.Linear(1, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x[..., None].float()
        for weight in self.weights:
            multiplications = x.numel() * weight.numel()
            hidden = Elsewhere.apply(hidden, weight, multiplications * self.SECONDS_PER_MULTIPLICATION)
        return self.head(hidden)


class Trial:
    """One rank's model, and the times of its parts."""

    def __init__(self, elsewhere: bool) -> None:
        torch.manual_seed(0)
        self.model = GPTElsewhere() if elsewhere else GPT()
        self.ddp = DistributedDataParallel(self.model, check_replicas_every=0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.size = 1
        self.times: dict[str, list[float]] = {}
        step = self._loss()
        step.backward()  # the buckets are laid out after the first one
        self.optimizer.step()
        self.buffers = [bucket.host for bucket in self.ddp.reducer.buckets]

    def _loss(self) -> torch.Tensor:
        words = torch.randint(0, VOCABULARY, (self.size, TOKENS + 1))
        return F.cross_entropy(self.ddp(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    def _timed(self, name: str, part: Callable[[], object]) -> float:
        began = time.perf_counter()
        part()
        took = time.perf_counter() - began
        self.times.setdefault(name, []).append(took)
        return took

    def backward_alone(self) -> float:
        dist.barrier()
        with self.ddp.no_sync():
            self._timed("forward", lambda: self._kept(self._loss()))
            return self._timed("backward", self.loss.backward)

    def _kept(self, loss: torch.Tensor) -> None:
        self.loss = loss

    def exchange_alone(self) -> float:
        communicator = self.ddp.process_group.communicator

        def exchange() -> None:
            for work in [
                communicator.all_reduce(buffer, "avg", "alone", async_op=True) for buffer in self.buffers
            ]:
                work.wait()

        dist.barrier()
        return self._timed("exchange", exchange)

    def step(self) -> None:
        def step() -> None:
            self._kept(self._loss())
            self._timed("both", self.loss.backward)
            self._timed("optimizer", self.optimizer.step)

        dist.barrier()
        self._timed("step", step)


def inside(folder: Path, rounds: int, relative: float, elsewhere: bool) -> None:
    """What each rank does."""
    recorder.start(folder)
    dist.init_process_group()
    trial = Trial(elsewhere)
    exchange = min(trial.exchange_alone() for _ in range(3))
    trial.size = 8
    for _ in range(2):  # small batches take longer by the sample
        trial.backward_alone()
        backward = min(trial.backward_alone() for _ in range(3))
        wanted: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(wanted, max(1, round(trial.size * relative * exchange / backward)))
        trial.size = wanted[0]
    trial.backward_alone()
    trial.times.clear()
    for _ in range(rounds):
        for part in (trial.backward_alone, trial.exchange_alone, trial.step):
            for _ in range(3):
                part()
    dist.barrier()
    recorder.stop()
    rank, transport = dist.get_rank(), trial.ddp.process_group.communicator.transport
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        report(trial, transport, folder)


def report(trial: Trial, transport: str, folder: Path) -> None:
    """Print what rank 0 measured."""
    t = {name: 1e3 * statistics.median(times) for name, times in trial.times.items()}
    megabytes = sum(buffer.nbytes for buffer in trial.buffers) / 1e6
    print(
        f"{megabytes:.0f} MB of gradients in {len(trial.buffers)} buckets, {trial.size} x {TOKENS} words a rank, by {transport}"
    )
    longer = max(t["backward"], t["exchange"])
    alone = t["forward"] + t["backward"] + t["optimizer"]
    exposed = [1e3 * step.exposed for step in timeline.steps(timeline.read(folder).spans, 0)]
    rows = [
        ("exchange alone", t["exchange"]),
        ("backward alone", t["backward"]),
        ("backward with its exchange", t["both"]),
        ("forward, backward, optimizer without exchange", alone),
        ("the whole step", t["step"]),
        ("of it exposed communication, from the trace", statistics.median(exposed)),
    ]
    for name, value in rows:
        print(f"{name:>48}{value:10.1f} ms")
    print(f"{'backward with exchange / the longer of the two':>48}{t['both'] / longer:10.3f}")
    print(
        f"{'step / the longer of exchange and step without':>48}{t['step'] / max(alone, t['exchange']):10.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="1gbit", help="what each host may send (default 1gbit)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--relative", type=float, default=0.8, help="backward by exchange (default 0.8)")
    parser.add_argument("--elsewhere", action="store_true", help="layers wait instead of computing")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:
        inside(given.inside, given.rounds, given.relative, given.elsewhere)
        return
    sys.path.append(str(Path(__file__).parents[2] / "cluster"))
    import namespaces

    reason = namespaces.why_not(given.rate)
    if reason is not None:
        sys.exit(f"two_hosts.py {reason}")
    with tempfile.TemporaryDirectory() as folder, namespaces.hosts(2, given.rate) as run:
        command = [
            sys.executable,
            __file__,
            "--inside",
            folder,
            "--rounds",
            str(given.rounds),
            "--relative",
            str(given.relative),
            *(["--elsewhere"] if given.elsewhere else []),
        ]
        ended: subprocess.CompletedProcess[str] = run(1, command)
    print(ended.stdout, end="")
    if ended.returncode:
        sys.exit(ended.stderr)


if __name__ == "__main__":
    main()
