"""Train a byte-level GPT on text, on one rank or on many.

    ddprun -n 2 examples/train_gpt.py              # two ranks on this machine
    mpirun -n 2 python examples/train_gpt.py       # the same, started by MPI
    python examples/train_gpt.py --data book.txt   # one rank, your own text

The five lines that make it distributed are marked (1) to (5).
"""

import argparse
import hashlib
import json
import math
import os
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.distributed.tensor import DTensor
from ddpgrad.launcher import Checkpointer, loggers, write_config
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.data import DataLoader, Dataset, DistributedSampler

VALIDATION_WINDOWS = 256


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, help="a text file or a folder (default: Python's standard library)")
    p.add_argument("--run", type=Path, help="folder for metrics and checkpoints (default: runs/gpt-DATE)")
    p.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of --run")
    p.add_argument("--steps", type=int, default=200, help="optimizer steps (default: %(default)s)")
    p.add_argument("--stop-after", type=int, help="end after this step; the schedule still spans --steps")
    p.add_argument(
        "--save-every", type=int, default=100, help="steps between checkpoints (default: %(default)s)"
    )
    p.add_argument(
        "--memory-every", type=int, metavar="K",
        help="steps between snapshots in ddprun's memory, from which a restart goes on: "
        "ddprun --max-restarts N examples/train_gpt.py --run FOLDER --resume --memory-every 1",
    )  # fmt: skip
    p.add_argument(
        "--batch", type=int, default=32, help="sequences a step, over all ranks (default: %(default)s)"
    )
    p.add_argument(
        "--accumulate", type=int, metavar="K",
        help="a step in K parts on each rank: the bits of K times as many ranks with --accumulate 1",
    )  # fmt: skip
    p.add_argument(
        "--shard", action="store_true",
        help="divide parameters, gradients and optimizer state among the ranks (fully_shard): the same bits in less memory",
    )  # fmt: skip
    p.add_argument(
        "--dtype", choices=("float32", "bf16"), default="float32",
        help="of forward and backward, under autocast; parameters stay float32 (default: %(default)s)",
    )  # fmt: skip
    p.add_argument("--context", type=int, default=128, help="bytes a sequence (default: %(default)s)")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu", help="cpu or cuda")
    loggers.add_option(p)
    args = p.parse_args()
    if args.width % args.heads:
        p.error(f"--width {args.width} must be a multiple of --heads {args.heads}")
    if args.resume and args.run is None:
        p.error("--resume needs --run FOLDER: the folder of the run to go on with")
    return args


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(b, t, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(a.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Bytes (B, T) -> logits (B, T, 256) for the byte that follows each."""

    def __init__(self, context: int, layers: int, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.context = context
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                scale = 1 / math.sqrt(2 * layers) if name.endswith(("proj.weight", "down.weight")) else 1.0
                nn.init.normal_(p, 0.0, 0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(self.bytes(x) + self.positions(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.bytes.weight)  # the head is tied to the embedding

    @torch.no_grad()
    def generate(self, start: bytes, count: int, temperature: float = 0.8) -> bytes:
        """`count` bytes drawn one after the other, each given up to `context` bytes before it."""
        out = list(start)
        device = self.bytes.weight.device
        for _ in range(count):
            x = torch.tensor([out[-self.context :]], device=device)
            logits = self(x)[0, -1] / temperature
            out.append(int(torch.multinomial(F.softmax(logits, dim=-1), 1).item()))
        return bytes(out)


class Windows(Dataset):
    """Neighbouring windows of a text: item i is (context bytes, the same moved on by one)."""

    def __init__(self, text: np.ndarray, context: int) -> None:
        self.text, self.context = text, context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = i * self.context
        window = torch.from_numpy(self.text[start : start + self.context + 1].astype(np.int64))
        return window[:-1], window[1:]


def read_text(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """(training, validation) bytes: of the files in order of their names, the last tenth is for validation."""
    if path is None:
        root = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(f for f in root.rglob("*.py") if "site-packages" not in f.parts)
    elif path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.is_file())
    elif path.is_file():
        files = [path]
    else:
        raise FileNotFoundError(f"--data {path}: there is no such file or folder")
    text = np.frombuffer(b"\n".join(f.read_bytes() for f in files), np.uint8)
    if len(text) < 10_000:
        raise ValueError(
            f"--data {path}: {len(text)} bytes in {len(files)} files are too few; at least 10000 are needed"
        )
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def learning_rate(step: int, steps: int, warmup: int = 20) -> float:
    """Share of the peak: up in a line, then down along a cosine to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done)))


@torch.no_grad()
def evaluate(model: GPT, windows: Windows, batch: int, device: str) -> float:
    """Mean validation loss in nats per byte; every rank takes its share of the windows."""
    model.eval()
    count = min(len(windows), VALIDATION_WINDOWS)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    chosen = np.linspace(0, len(windows) - 1, count).astype(int)
    share, mean = chosen[rank::ranks], dist.Mean()
    # As often on all ranks, which gather a sharded model together.
    for start in range(0, -(-count // ranks), batch):
        mine = share[start : start + batch]
        pairs = [windows[int(i)] for i in (mine if len(mine) else chosen[:1])]
        x, y = (torch.stack(part).to(device) for part in zip(*pairs, strict=True))
        mean.update(F.cross_entropy(model(x).reshape(-1, 256), y.reshape(-1)), y.numel() if len(mine) else 0)
    model.train()
    return mean.compute()


def shard(model: GPT) -> GPT:
    """Let every rank keep its rows of the parameters; they are gathered block by block, for forward and for backward."""
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def fingerprint(model: nn.Module) -> str:
    """A hash over all parameters. All ranks call it, since a sharded model is gathered."""
    digest = hashlib.sha256()
    for p in model.parameters():
        p = p.detach()
        whole = p.full_tensor() if isinstance(p, DTensor) else p
        digest.update(np.ascontiguousarray(whole.cpu().numpy()).tobytes())
    return digest.hexdigest()


def plot(run: Path) -> str:
    """Draw the loss curve; says what it did."""
    try:
        import matplotlib
    except ImportError:
        return 'no loss curve was drawn: pip install "ddpgrad[plot]" brings matplotlib'
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4))
    for key in ("loss", "validation"):
        points = [(r["step"], r[key]) for r in rows if key in r]
        axes.plot(*zip(*points, strict=True), label=key, marker="o" if key == "validation" else None)
    axes.set(xlabel="step", ylabel="nats per byte")
    axes.legend()
    figure.savefig(run / "loss.png", dpi=120)
    plt.close(figure)
    return f"loss curve: {run / 'loss.png'}"


def main() -> None:
    args = parse()
    dist.init_process_group()  # (1) meet the other ranks
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = ranks * (args.accumulate or 1)
    if args.batch % parts:
        raise SystemExit(
            f"--batch {args.batch} must be a multiple of the number of ranks{' x --accumulate' * bool(args.accumulate)}, "
            f"{parts}: try {-(-args.batch // parts) * parts}"
        )
    folder = [str(args.run or Path("runs") / time.strftime("gpt-%Y%m%d-%H%M%S"))]
    dist.broadcast_object_list(folder)  # ranks may start in different seconds
    run = Path(folder[0])
    run.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpointer(run / "checkpoints", every=args.save_every, memory_every=args.memory_every)
    if checkpoints.latest() and not args.resume:
        raise SystemExit(f"--run {run} holds checkpoints: go on with --resume, or give another folder")
    write_config(run, **vars(args))

    training, validation = (Windows(text, args.context) for text in read_text(args.data))
    # (2) every rank its own share of the data
    sampler = DistributedSampler(training, seed=args.seed, accumulate=args.accumulate or 1)
    loader = DataLoader(training, batch_size=args.batch // ranks, sampler=sampler, drop_last=True)
    if not len(loader) or not len(validation):
        raise SystemExit(f"{len(training.text) + len(validation.text):,} bytes of text are too few for "
                         f"--batch {args.batch} and --context {args.context}")  # fmt: skip

    torch.manual_seed(args.seed)
    model = GPT(args.context, args.layers, args.width, args.heads, args.dropout).to(args.device)
    ddp = shard(model) if args.shard else DDP(model)  # (3) average the gradients over the ranks
    half = torch.autocast(torch.device(args.device).type, dtype=torch.bfloat16, enabled=args.dtype == "bf16")
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, args.steps))
    torch.manual_seed(args.seed + 1 + rank)  # dropout differs between ranks

    saved = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    step = (checkpoints.resume(**saved) or 0) if args.resume else 0
    end = min(args.steps, args.stop_after or args.steps)
    parameters = sum(p.numel() for p in model.parameters())
    if rank == 0:
        print(f"{parameters:,} parameters, {len(training.text):,} bytes of text, {ranks} ranks by "
              f"{dist.get_backend()}, run folder {run}", flush=True)  # fmt: skip
        if args.resume:
            print(f"going on after step {step}" if step else "no checkpoint yet: from the start", flush=True)
    # A terminal of no width, as some that are made by programs, has no room for a bar.
    terminal = sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    bar = tqdm(total=args.steps, initial=step, disable=rank != 0 or not terminal, unit="step")
    log = loggers.start(run, args.log, step=step or None, settings=vars(args))
    began, first, seen, loss_sum = time.perf_counter(), step, 0, 0.0
    rate = 0.0

    while step < end:
        for x, y in loader:
            x, y = x.to(args.device), y.to(args.device)
            optimizer.zero_grad()
            for part, target in ddp.accumulate(args.accumulate, x, y) if args.accumulate else [(x, y)]:
                with half:
                    loss = F.cross_entropy(ddp(part).reshape(-1, 256), target.reshape(-1))
                loss.backward()
                loss_sum += loss.item() / (args.accumulate or 1)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            seen += 1
            if step % 10 == 0 or step == end:
                mean = torch.tensor(loss_sum / seen, dtype=torch.float64)
                dist.all_reduce(mean, dist.ReduceOp.AVG)  # (4) the loss over all ranks' data
                elapsed = time.perf_counter() - began
                rate = (step - first) * args.batch * args.context / elapsed
                left = elapsed / (step - first) * (end - step)
                row = {"loss": mean, "tokens_per_s": round(rate), "lr": scheduler.get_last_lr()[0]}
                log.log(step, row)
                if rank == 0:
                    if terminal:
                        bar.update(step - bar.n)
                        bar.set_postfix_str(f"loss {mean.item():.3f}, {rate:,.0f} tokens/s")
                    elif step % 20 == 0 or step == end:
                        print(f"step {step:4d}/{args.steps}  loss {mean.item():.3f}  {rate:,.0f} tokens/s  "
                              f"{left:.0f} s left", flush=True)  # fmt: skip
                seen, loss_sum = 0, 0.0
            checkpoints.step(step - 1, **saved)
            if step == end:
                if step % args.save_every:
                    checkpoints.save(step - 1, **saved)
                break

    bar.close()
    loss_value = evaluate(model, validation, args.batch // ranks, args.device)
    prints: list[str] = [""] * ranks
    dist.all_gather_object(prints, fingerprint(model))
    log.log(step, {"validation": loss_value})
    log.close()
    if rank == 0:
        if isinstance(ddp, DDP):  # where the communication of the last steps went, for ddprun report
            (run / "explain.json").write_text(json.dumps(ddp.explain()))
        print(plot(run))
        print(f"a page with curves, times and settings: ddprun report {run}")
    torch.manual_seed(args.seed)
    sample = model.generate(b"def ", 200)  # on all ranks, as each has a part of a sharded model
    if rank == 0:
        print("---\n" + sample.decode("utf-8", "replace") + "\n---")
        same = "bit-identical" if len(set(prints)) == 1 else "DIFFERENT"
        print(f"validation loss {loss_value:.4f} nats per byte, {rate:,.0f} tokens/s, replicas {same} "
              f"({prints[0][:16]})", flush=True)  # fmt: skip
    dist.destroy_process_group()  # (5) leave together


if __name__ == "__main__":
    main()
