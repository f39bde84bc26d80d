"""A program that can be started again: its last line is a hash of all that it has computed.

    script.py CHECKPOINTS TROUBLE [MEMORY_EVERY]

At step TROUBLE of the first attempt each rank writes its process number to the file ready-RANK, and waits.
"""

TRAIN = """
import hashlib
import ddpgrad as torch
from ddpgrad import distributed, nn
from ddpgrad.launcher import Checkpointer

distributed.init_process_group()
folder, trouble = sys.argv[1], int(sys.argv[2])
attempt = int(os.environ["DDPRUN_RESTART_COUNT"])
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 33), nn.Tanh(), nn.Linear(33, 3))
ddp = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(10 + rank)
losses = []
checkpoints = Checkpointer(folder, every=2, memory_every=int(sys.argv[3]) if sys.argv[3:] else None)
state = {"model": model, "optimizer": optimizer, "losses": losses}
first = checkpoints.resume(**state) or 0
print("first", first)
for step in range(first, 8):
    if attempt == 0 and step == trouble:
        open(f"writing-{rank}", "w").write(str(os.getpid()))
        os.replace(f"writing-{rank}", f"ready-{rank}")
        while True:
            wait()
            time.sleep(0.02)
    loss = ddp(torch.randn(7, 5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    distributed.all_reduce(loss := loss.detach())
    losses.append(loss.item())
    checkpoints.step(step, **state)
result = hashlib.sha256(repr(losses).encode())
for parameter in model.parameters():
    result.update(parameter.detach().numpy().tobytes())
print("result", result.hexdigest())
"""


def results(out: str) -> list[str]:
    """The last lines of the ranks, in the order of ranks."""
    return sorted(line for line in out.splitlines() if "] result " in line)
