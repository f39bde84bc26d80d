"""A small language model that is trained under DistributedDataParallel or divided by fully_shard; a program, too.

Started by ddprun on 4 ranks it prints, on rank 0, the digest of each case under both, on a mesh of one dimension and of two.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.nn.functional as F
from ddpgrad import nn
from ddpgrad.distributed.device_mesh import init_device_mesh
from ddpgrad.distributed.fsdp import fully_shard
from ddpgrad.nn.parallel import DistributedDataParallel as DDP
from ddpgrad.utils.checkpoint import checkpoint

WORDS, WIDTH = 33, 16

CASES: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd, clipped": {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "clip": 0.1},
    "accumulated": {"accumulate": 3, "clip": 0.1},
    "kept": {"reshard": False},
    "checkpointed within": {"within": True},
    "checkpointed around": {"around": True},
}


class Block(nn.Module):
    within = False

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.proj = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.drop = nn.Dropout(0.1)

    def attend(self, h: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.norm(h)).chunk(3, dim=-1)
        return h + self.drop(self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.attend, h, use_reentrant=False) if self.within else self.attend(h)


class Model(nn.Module):
    """Rows of the table do not divide evenly; it is used at both ends."""

    around = False

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.around else block(h)
        return F.linear(self.norm(h), self.table.weight)


def build(within: bool = False, around: bool = False, device: str = "cpu") -> Model:
    torch.manual_seed(0)
    model = Model()
    if device != "cpu":
        model.to(device)
    model.around = around
    for block in model.blocks:
        block.within = within  # type: ignore[assignment]
    return model


def sharded(model: Model, reshard_after_forward: bool | int | None = None, **options: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard_after_forward, **options)
    return fully_shard(model, **options)


def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x[:, :-1]).float().reshape(-1, WORDS), x[:, 1:].reshape(-1))


def batch(device: str = "cpu") -> torch.Tensor:
    """This rank's share."""
    torch.manual_seed(1)
    x = torch.randint(0, WORDS, (24, 7)).to(device)
    return x.chunk(dist.get_world_size())[dist.get_rank()]


def digest(model: nn.Module) -> str:
    """Of all parameters, whole."""
    found = hashlib.sha256()
    for p in model.parameters():
        p = p.detach()
        whole = p.full_tensor() if hasattr(p, "full_tensor") else p
        found.update(whole.cpu().numpy().tobytes())
    return found.hexdigest()[:12]


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def initialise(part: nn.Module) -> None:
    """Give one module its values, if it knows how."""
    if hasattr(part, "reset_parameters"):
        part.reset_parameters()


def trained(
    divided: bool,
    steps: int = 3,
    optimizer: Callable[[Any], torch.optim.Optimizer] = adamw,
    accumulate: int = 1,
    clip: float | None = None,
    reshard: bool | None = None,
    within: bool = False,
    around: bool = False,
    device: str = "cpu",
    wrap: Callable[..., Any] = sharded,
    **options: Any,
) -> list[Any]:
    """Losses and norms of this rank, and the digest of the parameters. wrap: divides, given options of `fully_shard`."""
    model = build(within, around, device)
    options |= {} if reshard is None else {"reshard_after_forward": reshard}
    net = wrap(model, **options) if divided else DDP(model)
    update = optimizer(model.parameters())
    x = batch(device)
    torch.manual_seed(100 + dist.get_rank())
    found: list[Any] = []
    for _ in range(steps):
        parts = x.chunk(accumulate)
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            if isinstance(net, DDP):
                net.require_backward_grad_sync = last
            else:
                net.set_requires_gradient_sync(last)
            loss = loss_of(net, part) / accumulate
            loss.backward()
            found.append(loss.item())
        if clip is not None:
            found.append(nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        update.step()
        update.zero_grad()
    return [*found, digest(model)]


if __name__ == "__main__":
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (2, 2))
    for name, case in CASES.items():
        plain = trained(False, **case)[-1]
        divided = [trained(True, mesh=shape, **case)[-1] for shape in (None, mesh)]
        if dist.get_rank() == 0:
            print(name, plain, *divided, sep=";", flush=True)
    dist.destroy_process_group()
