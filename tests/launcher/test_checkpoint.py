"""Checkpoints are whole or invisible: after every interruption and every kind of damage."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from checkpointing import content, ranks
from matrices import thinned

import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.job.plan import free_port
from ddpgrad.random import rank_generator
from ddpgrad.utils.data import DataLoader


class Model:
    """The smallest thing with a state."""

    def __init__(self, value: float = 0.0) -> None:
        self.weight = ddpgrad.tensor([value, -value])

    def state_dict(self) -> dict:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict) -> None:
        self.weight = state["weight"]

    @property
    def value(self) -> float:
        return self.weight.tolist()[0]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with checkpoints of steps 3 and 5, whose models have these values."""
    checkpoints = Checkpointer(tmp_path / "run")
    for step in (3, 5):
        checkpoints.save(step, model=Model(step), notes=[step])
    return checkpoints.folder


def test_a_run_goes_on_where_it_was(tmp_path):
    def train(steps: int, folder: Path | None, stop: int | None = None):
        """Losses that depend on everything that a checkpoint must carry."""
        ddpgrad.manual_seed(7)
        model, history = Model(1.0), {"losses": []}
        loader = DataLoader(range(10), batch_size=3, shuffle=True)
        checkpoints = Checkpointer(folder) if folder else None
        state = {"model": model, "loader": loader, "history": history}
        step = (checkpoints.resume(**state) or 0) if checkpoints else 0
        while True:
            for batch in loader:
                model.weight = model.weight * 0.5 + float(batch.tolist()[0]) + rank_generator().normal(1)[0]
                history["losses"].append(model.value)
                if checkpoints and step % 2:
                    checkpoints.save(step, **state)
                step += 1
                if step in (steps, stop):
                    return history["losses"]

    uninterrupted = train(13, None)
    assert len(set(uninterrupted)) == 13
    train(13, tmp_path / "run", stop=7)
    assert train(13, tmp_path / "run") == uninterrupted


def test_the_newest_are_kept(tmp_path):
    checkpoints = Checkpointer(tmp_path / "deep" / "run", keep=2)
    assert checkpoints.latest() is None
    assert checkpoints.resume(model=Model()) is None
    for step in (1, 2, 10, 2_000_000_000):
        checkpoints.save(step, model=Model(step))
    assert names(checkpoints.folder) == ["step_00000010", "step_2000000000"]
    assert checkpoints.latest() == checkpoints.folder / "step_2000000000"
    (checkpoints.folder / ".tmp-step_99999999-ab").mkdir()
    (checkpoints.folder / "notes.txt").write_text("mine")
    model = Model()
    assert checkpoints.resume(model=model) == 2_000_000_001
    assert model.value == 2e9


def test_a_checkpoint_of_the_same_step_is_replaced(folder):
    Checkpointer(folder).save(5, model=Model(55))
    assert names(folder) == ["step_00000003", "step_00000005"]
    model = Model()
    assert Checkpointer(folder).resume(model=model) == 6
    assert model.value == 55


def test_plain_data_comes_back_in_place_or_by_name(folder):
    checkpoints, notes = Checkpointer(folder), ["other"]
    checkpoints.resume(notes=notes)
    assert notes == checkpoints.read("notes") == [5]
    with pytest.raises(TypeError, match=r"read\('notes'\)"):
        checkpoints.resume(notes=5)
    with pytest.raises(CheckpointError, match="holds no 'optimizer'; it holds model, notes"):
        checkpoints.resume(optimizer=Model())


def test_what_cannot_be_saved_is_named_and_changes_nothing(folder):
    before = content(folder)
    checkpoints = Checkpointer(folder)
    with pytest.raises(CheckpointError, match=r"notes: cannot save obj\['a'\]\[0\]"):
        checkpoints.save(8, model=Model(8.0), notes={"a": [object()]})
    for name in ("../escape", "a/b", "", "MANIFEST.json", "generators", "x" * 200):
        with pytest.raises(CheckpointError, match=r"name|collide"):
            checkpoints.save(8, **{name: 1})
    with pytest.raises(CheckpointError, match=r"step_00000005 is newer than step 4"):
        checkpoints.save(4, model=Model(4.0))
    assert content(folder) == before


def test_parameters_that_are_nan_are_not_saved(folder):
    model = ddpgrad.nn.Linear(2, 2)
    model.bias.data[1] = float("nan")
    with pytest.raises(CheckpointError, match="'net' is not saved: its parameter 'bias' is NaN"):
        Checkpointer(folder).save(7, net=model)
    assert [name for name in names(folder) if name.startswith("step")] == ["step_00000003", "step_00000005"]
    model.bias.requires_grad_(False)
    Checkpointer(folder).save(7, net=model)


def test_every_damaged_byte_is_found_and_the_older_checkpoint_named(folder):
    newest, older = folder / "step_00000005", content(folder / "step_00000003")
    model = Model(-1.0)

    def refused(file: Path, reason: str) -> None:
        pattern = (
            rf"step_00000005 is damaged: {file.name} .*{reason}.*older checkpoint .*step_00000003 is whole"
        )
        with pytest.raises(CheckpointError, match=pattern):
            Checkpointer(folder).resume(model=model)

    for file in sorted(newest.iterdir()):
        whole = file.read_bytes()
        for position in {*range(0, len(whole), 37), len(whole) - 1}:
            flipped = bytearray(whole)
            flipped[position] ^= 1 << position % 8
            file.write_bytes(flipped)
            refused(file, "(has changed|is not a manifest)")
        for length in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            refused(file, "truncated")
        file.unlink()
        refused(file, "is missing")
        file.write_bytes(whole)
    (newest / "more.safetensors").write_bytes(b"")
    refused(newest / "more.safetensors", "is extra")

    assert model.value == -1.0
    assert content(folder / "step_00000003") == older
    newest.rename(folder / "damaged")  # what the message advises
    assert Checkpointer(folder).resume(model=model) == 4
    assert model.value == 3.0
    shutil.rmtree(folder / "step_00000003")
    shutil.move(folder / "damaged", newest)
    with pytest.raises(CheckpointError, match="no older checkpoint"):
        Checkpointer(folder).resume(model=model)


def test_every_rank_gets_its_own_state_back(tmp_path):
    def loader():
        return DataLoader(range(20), batch_size=2, shuffle=True)

    def first(rank):
        ddpgrad.manual_seed(rank)
        own = loader()
        batches = iter(own)
        next(batches)
        Checkpointer(tmp_path).save(0, model=Model(float(rank)), loader=own)
        return [batch.tolist() for batch in batches], rank_generator().uniform(2).tolist()

    def second(rank):
        model, own = Model(), loader()
        assert Checkpointer(tmp_path).resume(model=model, loader=own) == 1
        assert model.value == 0.0  # replicated: rank 0's
        return [batch.tolist() for batch in own], rank_generator().uniform(2).tolist()

    before = ranks(3, first)
    assert before[0] != before[1]
    assert ranks(3, second) == before


def test_another_number_of_ranks_goes_on(tmp_path):
    def save(rank):
        ddpgrad.manual_seed(rank)
        Checkpointer(tmp_path).save(0, model=Model(7.0))
        return rank_generator().uniform(2).tolist()

    def resume(rank):
        model = Model()
        assert (Checkpointer(tmp_path).resume(model=model), model.value) == (1, 7.0)
        return rank_generator().uniform(2).tolist()

    before, after = ranks(2, save), ranks(3, resume)
    assert after[:2] == before
    assert after[2] not in before
    assert ranks(3, resume) == after
    assert ranks(1, resume) == before[:1]


def test_what_is_kept_is_the_users_choice(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=1, keep_every=10, best="min")
    for step, metric in ((4, 0.5), (10, 0.9), (11, 0.2), (12, 0.4), (13, 0.3)):
        checkpoints.save(step, metric, model=Model(step))
    assert names(tmp_path) == ["step_00000010", "step_00000011", "step_00000013"]


def test_a_metric_that_is_nan_is_not_the_best(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=1, best="max")
    for step, metric in enumerate((float("nan"), 0.9, float("nan"), 0.4)):
        checkpoints.save(step, metric, model=Model(step))
    assert names(tmp_path) == ["step_00000001", "step_00000003"]


def test_a_save_in_the_background_is_of_the_moment(tmp_path):
    checkpoints = Checkpointer(tmp_path, background=True)
    model, history = Model(1.0), [1]
    checkpoints.save(1, model=model, history=history)
    model.weight += 5.0
    history.append(2)
    checkpoints.wait()
    restored = Model()
    assert checkpoints.resume(model=restored) == 2
    assert (restored.value, checkpoints.read("history")) == (1.0, [1])


def test_training_goes_on_while_the_disk_is_slow(tmp_path, monkeypatch):
    """`save` returns before a byte is on stable storage, and nothing is visible until all are."""
    stored, fsync = threading.Event(), os.fsync

    def slow(descriptor):
        assert stored.wait(600)
        fsync(descriptor)

    checkpoints = Checkpointer(tmp_path, background=True)
    monkeypatch.setattr(os, "fsync", slow)
    checkpoints.save(1, model=Model(1.0))
    assert checkpoints.latest() is None
    stored.set()
    checkpoints.wait()
    assert checkpoints.latest() == tmp_path / "step_00000001"


def test_an_error_in_the_background_is_raised_by_the_next_call(folder, monkeypatch, capfd):
    checkpoints = Checkpointer(folder, background=True)
    before = content(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _no_space)
        checkpoints.save(8, model=Model(8.0))
        with pytest.raises(CheckpointError, match=r"step_00000008: .*No space left"):
            checkpoints.wait()
    assert "No space left" in capfd.readouterr().err
    assert content(folder) == before
    checkpoints.save(8, model=Model(8.0))
    checkpoints.wait()
    assert names(folder) == ["step_00000005", "step_00000008"]


def _no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("way", ["fall_back", "restart"])
def test_a_damaged_checkpoint_is_passed_over_where_that_is_wanted(folder, monkeypatch, way):
    if way == "restart":
        monkeypatch.setenv("DDPRUN_RESTART_COUNT", "1")
    (folder / "step_00000005" / "model.safetensors").write_bytes(b"x")
    model = Model()
    with pytest.warns(UserWarning, match="step_00000005 is damaged: model.safetensors is truncated"):
        assert Checkpointer(folder, fall_back=way == "fall_back").resume(model=model) == 4
    assert model.value == 3.0


def test_a_file_as_the_folder_and_different_steps_are_told_of_at_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "link"):
        with pytest.raises(CheckpointError, match=rf"checkpoints need a folder, and .*{name} is a file"):
            Checkpointer(tmp_path / name)
    with pytest.raises(CheckpointError, match="rank 1 saves step 6, and rank 0 step 5"):
        ranks(2, lambda rank: Checkpointer(tmp_path / "run").save(5 + rank, numbers=[1]))
    with pytest.raises(CheckpointError, match=r"rank 1 saves folder .*run1, and rank 0 folder .*run0"):
        ranks(2, lambda rank: Checkpointer(tmp_path / f"run{rank}").save(5, numbers=[1]))
    with pytest.raises(CheckpointError, match=r"rank 1 saves names \['b'\], and rank 0 names \['a'\]"):
        ranks(2, lambda rank: Checkpointer(tmp_path / "run").save(5, **{"ab"[rank]: [1]}))
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(os.path, "lexists", lambda path: True)  # as it was before another rank moved it
    Checkpointer(tmp_path / "run").save(1, numbers=[1])


def test_a_program_may_change_its_folder(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    checkpoints = Checkpointer("run")
    monkeypatch.chdir("other")
    checkpoints.save(1, numbers=[1])
    assert names(tmp_path / "run") == ["step_00000001"]


IN_THE_BACKGROUND = {
    "Checkpointer": 'Checkpointer("run", background=True).save(1, weight={"w": torch.ones(3)})',
    "async_save": 'done = dcp.async_save({"w": torch.ones(3)}, checkpoint_id="run")',
}


PROCS = ("1", "2", "without ddprun", "alone")


@pytest.mark.parametrize(
    ("procs", "save"),
    thinned(product(PROCS, IN_THE_BACKGROUND), *zip(PROCS, 2 * [*IN_THE_BACKGROUND], strict=True)),
)
def test_an_error_in_the_background_is_told_at_the_end_of_the_program(ddprun, procs, save):
    """Where nothing asks for it before: the last checkpoint is not lost in silence."""
    script = f"""
    import errno, os, threading
    import ddpgrad as torch
    import ddpgrad.distributed.checkpoint as dcp
    from ddpgrad.launcher import Checkpointer
    torch.distributed.init_process_group()
    def full(*_):
        if "checkpoint writer" in threading.current_thread().name: raise OSError(errno.ENOSPC, "No space left")
    os.fsync = full
    {IN_THE_BACKGROUND[save]}
    """
    name = ddprun.script(textwrap.dedent(script), prelude="")
    if procs == "alone":
        result = ddprun.run(command=[sys.executable, name])
        assert (result.code, "No space left" in result.err.splitlines()[-1]) == (1, True), result.err
        return
    if procs == "without ddprun":
        met = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        command, ddprun.environment = [sys.executable, name], {**ddprun.environment, **met, "RANK": "0"}
        with subprocess.Popen(command, cwd=ddprun.folder, env={**ddprun.environment, "RANK": "1"}):
            result = ddprun.run(command=command)
        # 1, or SIGTERM from the rank that reports, where both have the error.
        assert result.code in (1, -signal.SIGTERM) and "No space left" in result.err, result.err
        return
    result = ddprun.run("-n", "2", "--procs", procs, name)
    said = "".join(result.said[-3:])
    assert result.code == 5 and "[Errno 28] No space left" in said, result.err
    assert save == "async_save" or "step_00000001: [Errno 28]" in said


def test_step_saves_when_due(tmp_path):
    checkpoints = Checkpointer(tmp_path, keep=None, every=3)
    for step in range(7):
        checkpoints.step(step, model=Model(step))
    assert names(tmp_path) == ["step_00000002", "step_00000005"]


def test_a_failure_on_one_rank_is_an_error_on_all(folder):
    def save(rank):
        with pytest.raises(CheckpointError, match=r"rank 0: .*cannot save"):
            Checkpointer(folder).save(9, model=Model(), notes=object())
        return names(folder)

    assert ranks(2, save) == [["step_00000003", "step_00000005"]] * 2

    def resume(rank):
        return Checkpointer(folder if rank else folder / "elsewhere").resume(model=Model())

    with pytest.raises(CheckpointError, match="must be shared"):
        ranks(2, resume)


def test_generators_continue_in_the_middle_of_a_pair(tmp_path):
    rank_generator().normal(3)
    Checkpointer(tmp_path).save(0)
    expected = rank_generator().normal(3)
    ddpgrad.manual_seed(1)
    assert Checkpointer(tmp_path).resume() == 1
    np.testing.assert_array_equal(rank_generator().normal(3), expected)


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, model=ddpgrad.nn.Linear(3, 2))
    with pytest.raises(
        CheckpointError, match=r"(?s)step_00000001 \(model.safetensors\) .*'model'.*weight.*2, 3.*2, 4"
    ):
        checkpoints.resume(model=ddpgrad.nn.Linear(4, 2))
