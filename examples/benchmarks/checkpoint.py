"""How long training stands still for a checkpoint: written at once, and in the background, where only the copy counts.

    ddprun -n 2 examples/benchmarks/checkpoint.py [--megabytes 100] [--sharded]

Prints, as medians: a bare copy of the state, the stall of a save in the background, of a save at once, and how long a
save in the background took to be on stable storage.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ddpgrad import distributed, nn
from ddpgrad.launcher import Checkpointer


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=100, help="size of the parameters (default 100)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sharded", action="store_true", help="all ranks write, each its part")
    options = parser.parse_args()
    distributed.init_process_group()
    width = int((options.megabytes * 1e6 / 4 / 8) ** 0.5)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(8)))
    # One folder for all ranks, which rank 0 removes.
    folders = [
        tempfile.mkdtemp(prefix="ddpgrad-checkpoints-", dir=".") if distributed.get_rank() == 0 else ""
    ]
    distributed.broadcast_object_list(folders)
    folder = Path(folders[0])
    times: dict[str, list[float]] = {"copy": [], "background": [], "stored": [], "at once": []}
    at_once = Checkpointer(folder / "at once", keep=1, sharded=options.sharded)
    background = Checkpointer(folder / "background", keep=1, sharded=options.sharded, background=True)
    try:
        for step in range(options.repeat):
            distributed.barrier()
            times["at once"].append(seconds(lambda step=step: at_once.save(step, model=model)))
            distributed.barrier()
            times["background"].append(seconds(lambda step=step: background.save(step, model=model)))
            times["stored"].append(times["background"][-1] + seconds(background.wait))
            times["copy"].append(seconds(lambda: [p.detach().clone() for p in model.parameters()]))
    finally:
        distributed.barrier()
        if distributed.get_rank() == 0:
            shutil.rmtree(folder)
    if distributed.get_rank() == 0:
        size = sum(parameter.numel() * 4 for parameter in model.parameters()) / 1e6
        medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
        print(
            f"{size:.0f} MB of parameters, {distributed.get_world_size()} ranks, medians of {options.repeat}"
        )
        print(f"a copy                     {medians['copy']:8.1f} ms")
        print(f"stall, in the background   {medians['background']:8.1f} ms")
        print(f"stall, at once             {medians['at once']:8.1f} ms")
        print(f"stored, in the background  {medians['stored']:8.1f} ms")


if __name__ == "__main__":
    main()
