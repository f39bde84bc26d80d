"""`fully_shard`, `FullyShardedDataParallel`, also on a mesh of 2 x 2, and DDP's rarer options against PyTorch's over Gloo."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchruns import pytorchs_torchrun

ROUNDED = {
    ("fully_shard.py", "bfloat16 with norms"),
    ("ddp_options.py", "bfloat16"),
    ("ddp_options.py", "bfloat16, reduced in it"),
    ("ddp_options.py", "float64, reduced in float16"),
}
"""What kernels, or sums in 16 bits, round otherwise than PyTorch's, and has to lie as near to 64 bits as these (docs/sums.md)."""

PROGRAMS = Path(__file__).parent / "programs"


def found(command: list[Any], program: str, file: Path) -> dict[str, list[Any]]:
    """What the program wrote at its end."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, PROGRAMS / program, file], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: list(flat(told)) for name, told in json.loads(file.read_text()).items()}


def flat(told: Any) -> Iterator[Any]:
    """What nested lists hold."""
    if isinstance(told, list):
        for part in told:
            yield from flat(part)
    else:
        yield told


def distance(found: list[Any], expected: list[Any]) -> float:
    """The root of the mean square of the differences of numbers that are no integers."""
    squares = [(a - b) ** 2 for a, b in zip(found, expected, strict=True) if isinstance(b, float)]
    return math.sqrt(sum(squares) / len(squares))


@pytest.mark.parametrize(
    ("program", "ranks"),
    [
        ("fully_shard.py", "2"),
        ("fsdp1.py", "2"),
        ("ddp_options.py", "2"),
        ("fsdp_hybrid.py", "4"),
        ("fsdp_users.py", "4"),
        ("tensor_parallel.py", "2"),
    ],
)
def test_losses_and_parameters_are_pytorchs(program: str, ranks: str, tmp_path: Path):
    theirs = found(pytorchs_torchrun(int(ranks)), program, tmp_path / "theirs")
    ours = found([sys.executable, "-m", "ddpgrad.run", "--as-torch", "-n", ranks], program, tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert len(ours[name]) == len(expected), name
        if (program, name) in ROUNDED:
            assert (
                0
                < distance(ours[name], theirs["float64"])
                < 1.5 * distance(expected, theirs["float64"])
                < 0.05
            )
            continue
        for mine, value in zip(ours[name], expected, strict=True):
            assert mine == (
                pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value
            ), name
