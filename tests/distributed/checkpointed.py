"""A divided model that is saved while it is trained, and goes on; a program, too, which prints its digests on rank 0."""

import sys
from pathlib import Path
from typing import Any

from sharded import adamw, batch, build, digest, loss_of, sharded

import ddpgrad as torch
import ddpgrad.distributed as dist
import ddpgrad.distributed.checkpoint as dcp
from ddpgrad import nn
from ddpgrad.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class App:
    """A model and its optimizer, as PyTorch's tutorial puts them into a checkpoint."""

    def __init__(self, wrap: Any = sharded) -> None:
        self.model: nn.Module = wrap(build()).eval()
        self.optimizer = adamw(self.model.parameters())

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )

    def steps(self, count: int) -> None:
        for _ in range(count):
            loss_of(self.model, batch()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def digests(self) -> tuple[str, list[bytes]]:
        """Of the parameters, and all of the optimizer's state."""
        values = [v for p in self.model.parameters() for v in self.optimizer.state[p].values()]
        whole = [v.full_tensor() if hasattr(v, "full_tensor") else v for v in values]
        return digest(self.model), [torch.as_tensor(v).numpy().tobytes() for v in whole]


def saved(folder: Path) -> tuple[Any, Any]:
    """The digests after two steps, whose state is saved meanwhile, and after two more."""
    app, notes = App(), {"epoch": 1, "losses": [0.5, 0.25]}
    app.steps(2)
    then = app.digests()
    done = dcp.async_save({"app": app, "notes": notes}, checkpoint_id=folder)
    notes["losses"].append(9.0)
    app.steps(2)
    done.result()
    return then, app.digests()


def resumed(folder: Path, wrap: Any = sharded, steps: int = 2) -> tuple[Any, Any]:
    """The same after loading, and after as many steps."""
    app, notes = App(wrap), {"epoch": 0, "losses": []}
    dcp.load({"app": app, "notes": notes}, checkpoint_id=folder)
    assert notes == {"epoch": 1, "losses": [0.5, 0.25]}
    then = app.digests()
    app.steps(steps)
    return then, app.digests()


if __name__ == "__main__":
    dist.init_process_group()
    found = {"save": saved, "load": resumed}[sys.argv[1]](Path(sys.argv[2]))
    if dist.get_rank() == 0:
        print(";".join(digests[0] for digests in found))
