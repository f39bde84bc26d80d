"""Checkpoints that all ranks write: their files, and resuming on any number of ranks."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpointing import content, ranks
from safetensors.numpy import load_file

import ddpgrad
from ddpgrad import distributed, nn
from ddpgrad.distributed.ddp.zero import ZeroRedundancyOptimizer
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.checkpoint import manifest
from ddpgrad.launcher.cli import ddprun as cli
from ddpgrad.nn.parallel import DistributedDataParallel


class Run:
    """A model with buffers, an optimizer with a state, and what a rank has of its own."""

    def __init__(self, seed: int) -> None:
        ddpgrad.manual_seed(seed)
        net = nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 40))
        self.model = DistributedDataParallel(net)
        self.optimizer = ddpgrad.optim.Adam(self.model.parameters(), lr=0.01)
        self.steps = [0]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = ddpgrad.arange(400.0).reshape(10, 40) / 400 + self.steps[0]
            self.optimizer.zero_grad()
            (self.model(x) - x).pow(2).mean().backward()
            self.optimizer.step()
            self.steps[0] += 1

    @property
    def objects(self) -> dict:
        return {"model": self.model, "optimizer": self.optimizer, "steps": self.steps}

    def state(self) -> list:
        found = [value.numpy().copy() for value in self.model.state_dict().values()]
        state = self.optimizer.state_dict()["state"]
        return found + [np.array(entry[key]) for _, entry in sorted(state.items()) for key in sorted(entry)]


def same(first: list, second: list) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def save(folder: Path, count: int, **options) -> list:
    def program(rank):
        run = Run(rank)
        run.train(2)
        checkpoints = Checkpointer(folder, sharded=True, **options)
        checkpoints.save(1, **run.objects)
        state = run.state()  # of this moment, whatever the background still writes
        run.train(1)
        checkpoints.wait()
        return state

    return ranks(count, program)[0]


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_what_all_ranks_wrote_is_loaded_by_any_number(tmp_path, background):
    expected = save(tmp_path, 3, background=background)

    def resume(rank):
        run = Run(7)
        assert Checkpointer(tmp_path).resume(**run.objects) == 2
        assert run.steps == [2]
        return run.state()

    for count in (1, 2, 3, 4):
        assert all(same(state, expected) for state in ranks(count, resume))
    found = Checkpointer(tmp_path).read("model")
    assert same([value.numpy() for value in found.values()], expected[: len(found)])
    assert not list(tmp_path.glob(".*"))


def test_plain_safetensors_reads_every_part_by_name(tmp_path):
    save(tmp_path, 3)
    folder = tmp_path / "step_00000001"
    model = Checkpointer(tmp_path).read("model")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(model)
    for name, file in index["weight_map"].items():
        np.testing.assert_array_equal(load_file(folder / file)[name], model[name].numpy())
    sizes = [(folder / f"optimizer-0000{part}-of-00003.safetensors").stat().st_size for part in (1, 2, 3)]
    assert max(sizes) < 0.6 * sum(sizes)
    # Buffers are rank 0's: another rank's may have changed since the last forward.
    assert index["weight_map"]["1.running_mean"] == "model-00001-of-00003.safetensors"


class Spread:
    """An optimizer whose state is spread over the ranks: each has that of every n-th parameter."""

    def __init__(self) -> None:
        self.held: dict = {}

    def sharded_state_dict(self) -> dict:
        return {"state": self.held, "groups": [{"lr": 0.1}]}

    def load_state_dict(self, state: dict) -> None:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        self.held = {i: s for i, s in state["state"].items() if i % size == rank}
        assert sorted(state["state"]) == list(range(7)) and state["groups"] == [{"lr": 0.1}]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_state_that_is_spread_over_the_ranks_is_dealt_anew(tmp_path, sharded):
    def program(rank):
        optimizer, size = Spread(), distributed.get_world_size()
        checkpoints = Checkpointer(tmp_path, sharded=sharded)
        step = checkpoints.resume(optimizer=optimizer)
        if step is None:
            optimizer.held = {i: {"m": ddpgrad.tensor([float(i)])} for i in range(rank, 7, size)}
        checkpoints.save(step or 0, optimizer=optimizer)
        return {i: entry["m"].tolist() for i, entry in optimizer.held.items()}

    for count in (3, 2, 1, 4):
        held = ranks(count, program)
        assert held == [{i: [float(i)] for i in range(rank, 7, count)} for rank in range(count)]


def test_a_zero_optimizer_goes_on_at_other_world_sizes(tmp_path):
    """Its ranks save their parts; any number of ranks, and a plain optimizer, load the whole."""

    def program(zero: bool):
        ddpgrad.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        if zero:
            optimizer = ZeroRedundancyOptimizer(model.parameters(), ddpgrad.optim.Adam, lr=0.1)
        else:
            optimizer = ddpgrad.optim.Adam(model.parameters(), lr=0.1)
        checkpoints = Checkpointer(tmp_path)
        step = checkpoints.resume(model=model, optimizer=optimizer) or 0
        model(ddpgrad.ones(3, 6)).pow(2).sum().backward()
        optimizer.step()
        if step == 0:
            checkpoints.save(0, model=model, optimizer=optimizer)
        return [p.detach().numpy().copy() for p in model.parameters()]

    ranks(3, lambda rank: program(True))
    whole = Checkpointer(tmp_path).read("optimizer")
    assert sorted(whole["state"]) == [0, 1, 2, 3]
    after = ranks(1, lambda rank: program(False))[0]
    for count in (1, 2, 4):
        assert all(same(mine, after) for mine in ranks(count, lambda rank: program(True)))


def test_damage_to_one_part_is_named(tmp_path):
    save(tmp_path / "run", 3)
    whole = tmp_path / "run" / "step_00000001"
    first, second = (whole / f"model-0000{part}-of-00003.safetensors" for part in (1, 2))

    def swapped(folder):
        a, b = folder / first.name, folder / second.name
        a.rename(folder / "x")
        b.rename(a)
        (folder / "x").rename(b)

    def linked(folder):
        shutil.move(folder / first.name, tmp_path / "elsewhere")
        (folder / first.name).symlink_to(tmp_path / "elsewhere")

    for damage, words in (
        (lambda folder: (folder / second.name).unlink(), rf"{second.name} is missing"),
        (lambda folder: (folder / second.name).write_bytes(b"x"), rf"{second.name} is truncated"),
        (swapped, r"model-0000\d-of-00003.safetensors (has changed|is truncated|is too long)"),
        (linked, rf"{first.name} is no regular file"),
        (lambda folder: (folder / "model.safetensors.index.json").unlink(), "index.json is missing"),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(whole, copy / whole.name)
        damage(copy / whole.name)
        with pytest.raises(CheckpointError, match=words):
            Checkpointer(copy).resume(model=nn.Linear(1, 1))
        shutil.rmtree(copy)


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_when_one_rank_cannot_write_no_rank_goes_on(tmp_path, monkeypatch, background):
    save(tmp_path, 3)
    before = content(tmp_path)
    write_file = manifest.write_file

    def failing(path, write):
        if "-00002-of-" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_file(path, write)

    monkeypatch.setattr("ddpgrad.launcher.checkpoint.shards.write_file", failing)

    def program(rank):
        run = Run(rank)
        checkpoints = Checkpointer(tmp_path, sharded=True, background=background)
        with pytest.raises(CheckpointError, match=r"rank 1: .*No space left.*-00002-of-00003"):
            checkpoints.save(5, **run.objects)
            checkpoints.wait()

    ranks(3, program)
    assert content(tmp_path) == before
    assert not list(tmp_path.glob(".*"))


def test_ranks_with_other_tensors_are_refused(tmp_path):
    def program(rank):
        with pytest.raises(CheckpointError, match="'model' has other tensors on rank 1 than on rank 0"):
            Checkpointer(tmp_path, sharded=True).save(0, model=nn.Linear(2, 2 + rank))

    ranks(2, program)
    assert not list(tmp_path.iterdir())


def test_the_commands_know_parts(tmp_path, capsys):
    expected = save(tmp_path, 2)
    assert cli.main(["ckpt", "ls", str(tmp_path)]) == cli.main(["ckpt", "verify", str(tmp_path)]) == 0
    assert cli.main(["ckpt", "show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "model (2 files)" in shown and "0.weight: float32[64, 40]" in shown and "2 ranks" in shown
    assert cli.main(["ckpt", "convert", str(tmp_path), "model", str(tmp_path / "m.safetensors")]) == 0
    np.testing.assert_array_equal(load_file(tmp_path / "m.safetensors")["0.weight"], expected[0])


def test_several_processes_write_and_resume(ddprun):
    script = ddprun.script("""
import ddpgrad
from ddpgrad import distributed, nn
from ddpgrad.launcher import Checkpointer
distributed.init_process_group()
model = nn.parallel.DistributedDataParallel(nn.Linear(30, 30))
optimizer = ddpgrad.optim.Adam(model.parameters())
checkpoints = Checkpointer("run", sharded=True, background=True)
step = checkpoints.resume(model=model, optimizer=optimizer) or 0
model(ddpgrad.ones(2, 30)).sum().backward()
optimizer.step()
checkpoints.save(step, model=model, optimizer=optimizer)
print("step", step, sum(p.double().sum().item() for p in model.parameters()) if step else "")
""")
    for count, step in (("3", 0), ("2", 1), ("1", 2)):
        result = ddprun.run("-n", count, script)
        assert result.code == 0, result.err
        assert f"step {step}" in result.out
    newest = ddprun.folder / "run" / "step_00000001"
    assert {path.name for path in newest.glob("model-*")} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }
