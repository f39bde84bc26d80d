"""A small training job that can break at any point: train.py [PHASE[:STEP][@ATTEMPT] RANK ACTION] ...

ACTION, Python source, runs once, when RANK ("all": each rank) is in PHASE of STEP (3) of ATTEMPT (0). A loader's worker
counts the samples that it reads. Rank 0 ends by printing what a disturbed run must give, too: losses, the order of the
samples and the rank that read them, the parameters. TRAIN_OPTIONS may be JSON: how many workers the loader has, and
options of the Checkpointer.
"""

import atexit
import hashlib
import json
import os
import signal  # noqa: F401  for ACTION
import sys
import time

FAULTS = [tuple(sys.argv[i : i + 3]) for i in range(1, len(sys.argv), 3)]
OPTIONS = json.loads(os.environ.get("TRAIN_OPTIONS", "{}"))
ME = next(os.environ[name] for name in ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
ATTEMPT = os.environ.get("DDPRUN_RESTART_COUNT", "0")
step = -1
poison = 1.0  # all losses are multiplied with it
fired: set[int] = set()


def at(phase: str, of: int | None = None) -> None:
    """The job is in `phase` now, of the step `of`: a thread that writes may be at one that is over."""
    moment = step if of is None else of
    for number, (place, who, action) in enumerate(FAULTS):
        place, _, attempt = place.partition("@")
        name, _, when = place.partition(":")
        here = name == phase and who in (ME, "all") and (attempt or "0") == ATTEMPT
        # What the process shares with other ranks, such as `os`, calls this in their threads, too.
        if (
            here
            and os.environ.get("RANK", ME) == ME
            and moment in (-1, int(when or 3))
            and number not in fired
        ):
            fired.add(number)
            with open(f"fired-{number}-{ME}", "w") as note:
                note.write(str(time.monotonic()))
            exec(compile(action, os.path.abspath("fault.py"), "exec"), globals())


def note(job: str) -> None:
    """Leave the names by which the process and what it maps are found."""
    with open(f"left-{os.getpid()}", "w") as file:
        file.write(job)


note(os.environ.get("DDPGRAD_JOB", "None"))
if __name__ == "__main__":
    at("import")

import numpy as np  # noqa: E402, F401  for ACTION

import ddpgrad as torch  # noqa: E402
import ddpgrad.distributed as dist  # noqa: E402
from ddpgrad import nn  # noqa: E402
from ddpgrad.distributed.ranks import host  # noqa: E402
from ddpgrad.launcher import Checkpointer  # noqa: E402
from ddpgrad.nn.parallel import DistributedDataParallel  # noqa: E402
from ddpgrad.utils.data import DataLoader, Dataset, DistributedSampler  # noqa: E402


class Samples(Dataset):
    """Points, their numbers, and the rank that reads them."""

    def __init__(self, points: torch.Tensor) -> None:
        self.points, self.read = points, 0

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        global step
        if __name__ != "__main__":
            step = self.read // 4
            self.read += 1
            at("worker")
        return self.points[index], index, int(os.environ["RANK"])


class Order:
    """The samples that this rank has read."""

    state_is_per_rank = True

    def __init__(self) -> None:
        self.read: list[list[int]] = []

    def state_dict(self) -> list[list[int]]:
        return self.read

    def load_state_dict(self, read: list[list[int]]) -> None:
        at("load")
        self.read = read


if __name__ == "__main__":
    at("init")
    dist.init_process_group()
    note(str(host.current().launch.job))
    at("meeting")
    torch.manual_seed(1)
    width, lr, ddp_options = 64, 0.01, {}
    at("model")
    model = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01, **ddp_options)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    data = Samples(torch.randn(64, 8))
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=OPTIONS.pop("workers", 0))
    torch.manual_seed(dist.get_rank())
    model[2].register_forward_hook(lambda *_: at("forward"))
    # The gradient of the last layer comes first, that of the first layer last, when buckets are under way.
    model[4].weight.register_hook(lambda _: at("backward"))
    model[0].weight.register_hook(lambda _: at("mid-bucket"))
    optimizer.register_step_pre_hook(lambda *_: at("optimizer"))
    atexit.register(at, "shutdown")

    losses: list[float] = []
    order = Order()
    state = {"model": model, "optimizer": optimizer, "loader": loader, "losses": losses, "order": order}
    with open("/proc/self/maps") as maps, open(f"maps-{os.getpid()}", "w") as file:
        file.write(maps.read())
    checkpoints = Checkpointer("checkpoints", None, every=2, **OPTIONS)
    step = checkpoints.resume(**state) or 0
    replace, fsync = os.replace, os.fsync
    saving = step
    os.replace = lambda *paths: (at("save", saving), replace(*paths))[1]
    os.fsync = lambda file: (at("write", saving), fsync(file))[1]
    while step < 8:
        for x, which, reader in loader:
            loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean() * poison
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(mean.item())
            order.read.append([*which.tolist(), *reader.tolist()])
            at("step")
            if ME != "0":
                at("save")
            at("barrier")
            dist.barrier()
            at("objects")
            dist.broadcast_object_list([step])
            saving = step if step % 2 else saving
            checkpoints.step(step, **state)
            with open(f"ready-{ME}", "w"):
                step += 1
            if step == 8:
                break
    checkpoints.wait()
    orders: list = [None] * dist.get_world_size()
    dist.all_gather_object(orders, order.read)
    if dist.get_rank() == 0:
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
        print("result", json.dumps([losses, orders, digest.hexdigest()]))
    step = -1
    at("destroy")
    dist.destroy_process_group()
