"""A long run in which ranks are killed again and again: the same bits in the end, and nothing grows.

`pytest -m full tests/faults/test_soak.py --soak 3600` makes it an hour; then a rank is killed every 20 s.
"""

import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

# Trains until there is a file "enough", or for as many steps as are given.
TRAIN = """
import json, os, sys, threading, time
open(f"left-{os.getpid()}", "w").write(os.environ["DDPGRAD_JOB"])
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.utils.data import DataLoader, DistributedSampler, TensorDataset
from ddpgrad.launcher import Checkpointer

def main(last):
    dist.init_process_group()
    rank, attempt = dist.get_rank(), os.environ["DDPRUN_RESTART_COUNT"]
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.1), nn.Linear(64, 1))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(64, 8))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=5))
    torch.manual_seed(rank)
    digest = [0.0]
    state = {"model": model, "optimizer": optimizer, "loader": loader, "digest": digest}
    checkpoints = Checkpointer("checkpoints", every=5, background=True)
    step = first = checkpoints.resume(**state) or 0
    while True:
        for (x,) in loader:
            loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss := loss.detach())
            digest[0] = digest[0] * 0.5 + loss.item()
            ended = torch.tensor([float(step + 1 == last if last else os.path.exists("enough"))])
            dist.broadcast(ended, 0)
            checkpoints.step(step, **state)
            if step == first + 6:  # a checkpoint further on than the attempt before
                checkpoints.wait()  # its thread comes and goes
                size = int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
                found = {"pid": os.getpid(), "files": len(os.listdir("/proc/self/fd")),
                         "threads": threading.active_count(), "MB": size}
                open(f"writing-{rank}", "w").write(json.dumps(found))
                os.replace(f"writing-{rank}", f"ready-{attempt}-{rank}")
            step += 1
            if ended.item():
                checkpoints.wait()
                total = sum(p.detach().double().sum().item() for p in model.parameters())
                print("result", rank, step, digest[0].hex(), total.hex())
                return
            if not last:
                time.sleep(0.02)

main(int(sys.argv[1]))
"""


def of_process(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = {key: int(value) for key, value in re.findall(r"(?m)^(VmRSS|Threads):\s+(\d+)", status)}
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return {"pid": pid, "files": files, "threads": numbers["Threads"], "MB": numbers["VmRSS"] / 1000}


def results(out: str) -> list[str]:
    return sorted(line.partition("result")[2] for line in out.splitlines() if "result" in line)


@pytest.mark.full
def test_a_run_with_many_kills_ends_like_one_with_none(ddprun, request):
    seconds = request.config.getoption("--soak")
    pause = 20.0 if seconds >= 600 else 1.0
    chance = random.Random(int(seconds))
    script = ddprun.script(TRAIN, prelude="")
    running = subprocess.Popen(
        ddprun.command("-n", "2", "--max-restarts", "1000000", script, "0"),
        cwd=ddprun.folder, env=ddprun.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until, attempt = time.monotonic() + seconds, 0
    launcher, ranks = [], []
    while True:
        ddprun.wait_for(f"ready-{attempt}-*", 2)
        found = [json.loads((ddprun.folder / f"ready-{attempt}-{rank}").read_text()) for rank in range(2)]
        ranks.append(found)
        launcher.append(of_process(running.pid))
        if time.monotonic() > until and attempt >= 2:
            break
        time.sleep(chance.uniform(0.5, 1.5) * pause)
        os.kill(found[chance.randrange(2)]["pid"], signal.SIGKILL)
        attempt += 1
    (ddprun.folder / "enough").touch()
    result = ddprun.end(running)
    assert result.code == 0, result.err
    assert result.err.count("restarting in") == attempt
    disturbed = results(result.out)
    for samples in (launcher[1:], [r[0] for r in ranks[1:]], [r[1] for r in ranks[1:]]):
        assert len({sample["threads"] for sample in samples}) == 1, samples
        assert max(s["files"] for s in samples) - min(s["files"] for s in samples) <= 1, samples
        assert samples[-1]["MB"] - samples[0]["MB"] < 10, samples
    for path in (ddprun.folder / "checkpoints").iterdir():
        path.rename(ddprun.folder / f"away-{path.name}")
    undisturbed = ddprun.run("-n", "2", script, disturbed[0].split()[1])
    assert undisturbed.code == 0, undisturbed.err
    assert results(undisturbed.out) == disturbed
