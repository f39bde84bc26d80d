"""Loads one hostile file after the other and prints what happened: hostile.py FOLDER.

Each name in FOLDER is given to what reads such files: a folder to a Checkpointer, a file to `load` and to
`safetensors.load_file`. A line of JSON says how each ended, what it took of the processor's
time, and by how many MB memory grew; the first line is what starting took.
"""

import json
import sys
import time
from pathlib import Path

import ddpgrad
from ddpgrad import safetensors
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer


def peak() -> float:
    """The most memory that this process has had since its peak was reset, in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) / 1000


def ways(path: Path) -> list:
    if path.is_dir():
        if (path / "model.safetensors.index.json").exists():
            return [lambda: safetensors.load_model(path)]
        return [lambda: Checkpointer(path).resume(model={}), lambda: Checkpointer(path).read("model")]
    return [lambda: ddpgrad.load(path), lambda: safetensors.load_file(path)]


def main() -> None:
    print(time.process_time())
    # Imports on first use do not count for the files.
    warm = Path(sys.argv[1]) / ".warm.safetensors"
    ddpgrad.save({"a": ddpgrad.ones(2)}, warm)
    ddpgrad.load(warm)
    safetensors.load_file(warm)
    ddpgrad.save({"a": ddpgrad.ones(2)}, warm.with_suffix(".pt"))
    ddpgrad.load(warm.with_suffix(".pt"))
    warm.with_suffix(".pt").unlink()
    for path in sorted(Path(sys.argv[1]).iterdir()):
        for number, way in enumerate(ways(path) if path != warm else []):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            before, began = peak(), time.process_time()
            try:
                way()
                outcome = "loaded"
            except Exception as error:
                outcome = "CheckpointError" if isinstance(error, CheckpointError) else type(error).__name__
            seconds = time.process_time() - began
            print(
                json.dumps([f"{path.name}/{number}", outcome, round(seconds, 3), peak() - before]), flush=True
            )


if __name__ == "__main__":
    main()
