"""Power lost at any moment of a save: what the disk may then hold is always exactly the old or the new checkpoint.

A save is recorded as the calls that reach the disk. Each prefix of them is played onto a copy, in three
ways: as a disk that has stored everything, one that has stored nothing that was not synced, and one
that has torn what was not synced in the middle. Renames last only once their folder is synced, or not.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import ddpgrad
from ddpgrad.errors import CheckpointError
from launcher import Checkpointer
from launcher import manifest as manifest_module

Operation = tuple[str, str, object]


def model(value: float) -> dict:
    return {"weight": ddpgrad.tensor([value] * 300)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoints = Checkpointer(tmp_path / "run")
    for step in (3, 5):
        checkpoints.save(step, model=model(step))
    return checkpoints.folder


def watched(patch: pytest.MonkeyPatch, note: Callable[[str, str, object], None]) -> None:
    """Call `note(what, path, detail)` before each call of a save that changes the disk."""
    fsync, replace, mkdir = os.fsync, os.replace, os.mkdir

    class File(manifest_module._HashingFile):
        def write(self, data):
            note("write", str(self._raw.name), bytes(data))
            return super().write(data)

    def syncing(descriptor):
        note("sync", os.readlink(f"/proc/self/fd/{descriptor}"), None)
        fsync(descriptor)

    def renaming(source, target):
        note("rename", str(source), str(target))
        replace(source, target)

    def making(path, *args, **kwargs):
        note("mkdir", str(path), None)
        mkdir(path, *args, **kwargs)

    patch.setattr(manifest_module, "_HashingFile", File)
    patch.setattr(os, "fsync", syncing)
    patch.setattr(os, "replace", renaming)
    patch.setattr(os, "mkdir", making)


def play(operations: Sequence[Operation], root: Path, to: Path, unsynced: str, renames: bool) -> None:
    """Bring the copy `to` of `root` to what the disk may hold after `operations`.

    unsynced: what becomes of bytes that were not synced: 'kept', 'lost' or 'torn'; renames: whether
    a rename lasts without a sync of its folder.
    """
    synced_from = {}
    for index, (what, path, _) in enumerate(operations):
        if what == "sync":
            synced_from[path] = index

    def place(path: object) -> Path:
        return to / Path(str(path)).relative_to(root)

    for index, (what, path, detail) in enumerate(operations):
        if what == "mkdir":
            place(path).mkdir(exist_ok=True)
        elif what == "write":
            assert isinstance(detail, bytes)
            lasts = unsynced == "kept" or synced_from.get(path, -1) > index
            with open(place(path), "ab") as file:
                file.write(detail if lasts else detail[: len(detail) // 2] if unsynced == "torn" else b"")
        elif what == "rename" and (renames or synced_from.get(str(root), -1) > index):
            os.replace(place(path), place(detail))


@pytest.mark.parametrize("step", [5, 8])  # a replacement and a new checkpoint
def test_power_lost_at_any_moment(folder, tmp_path, monkeypatch, step):
    before = tmp_path / "before"
    shutil.copytree(folder, before)
    operations: list[Operation] = []
    with monkeypatch.context() as patch:
        watched(patch, lambda *operation: operations.append(operation))
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
        Checkpointer(folder, keep=None).save(step, model=model(88.0))
    kinds = [what for what, _, _ in operations]
    assert kinds.count("write") > 4 and kinds.count("sync") >= 5 and "rename" in kinds
    outcomes = set()
    for end in range(len(operations) + 1):
        for unsynced in ("kept", "lost", "torn"):
            for renames in (True, False):
                copy = tmp_path / f"{end}-{unsynced}-{renames}"
                shutil.copytree(before, copy)
                play(operations[:end], folder, copy, unsynced, renames)
                state = {}
                following = Checkpointer(copy).resume(model=state)
                outcome = (following, state["weight"].tolist()[0])
                assert outcome in {(6, 5.0), (step + 1, 88.0)}, (end, unsynced, renames)
                outcomes.add(outcome)
                shutil.rmtree(copy)
    assert len(outcomes) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_an_error_at_any_call_leaves_what_was_there(folder, monkeypatch, number):
    """The save after it works, and the error names the checkpoint and the cause."""
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    moment = 0
    while True:
        calls = 0

        def failing(*_: object, moment: int = moment) -> None:
            nonlocal calls
            calls += 1
            if calls == moment + 1:
                raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            watched(patch, failing)
            try:
                Checkpointer(folder, keep=None).save(8, model=model(8.0))
            except CheckpointError as error:
                assert "step_00000008" in str(error) and os.strerror(number) in str(error)
            else:
                break
        # A failure to sync the folder comes after the rename: the new checkpoint is there, and whole.
        state = {}
        assert Checkpointer(folder).resume(model=state) in (6, 9)
        assert state["weight"].tolist()[0] in (5.0, 8.0)
        assert all(path.read_bytes() == data for path, data in whole.items())
        shutil.rmtree(folder / "step_00000008", ignore_errors=True)
        moment += 1
    assert moment > 10
    assert Checkpointer(folder).resume(model={}) == 9
