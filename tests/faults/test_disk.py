"""Power lost at any moment of a save: the disk then holds exactly the old or the new checkpoint.

A save is recorded as the calls that reach the disk. Each prefix of them is played onto a copy, in three
ways: as a disk that has stored everything, one that has stored nothing that was not synced, and one
that has torn what was not synced in the middle. Renames last only once their folder is synced, or not.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from matrices import thinned

import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.checkpoint import manifest as manifest_module

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
    """Bring the copy `to` of `root` to a state that the disk may have after `operations`.

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


KILLED = """
import os, signal, sys
import ddpgrad
from ddpgrad.launcher import Checkpointer
from pathlib import Path

calls, moment, after = 0, -1, False

def deadly(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == moment and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

for name in ("open", "fsync", "replace", "mkdir", "rmdir", "unlink"):
    setattr(os, name, deadly(getattr(os, name)))
base, step = Path(sys.argv[1]), int(sys.argv[2])
for copy in sorted(base.glob("copy-*")):
    if os.fork() == 0:
        _, moment, after = copy.name.split("-")
        moment, after = int(moment), after == "after"
        Checkpointer(copy, keep=1).save(step, model={"weight": ddpgrad.tensor([88.0] * 300)})
        os._exit(0)
    _, status = os.wait()
    print(copy.name, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("step", thinned([5, 8], 5))  # a replacement and a new checkpoint
def test_a_real_sigkill_before_and_after_every_call_of_a_save(folder, tmp_path, step):
    """Old or new, never less; the next save deletes the rest of the old one, and keeps the others."""
    copies = tmp_path / "copies"
    copies.mkdir()
    for moment in range(1, 25):
        for when in ("before", "after"):
            shutil.copytree(folder, copies / f"copy-{moment:02d}-{when}")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(copies), str(step)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    ends = dict(line.split() for line in done.stdout.splitlines())
    assert set(ends.values()) == {"0", str(-signal.SIGKILL)}
    killed = [name for name, code in ends.items() if code != "0"]
    assert len(killed) > 20 and ends[f"copy-24-{when}"] == "0", "more calls than were tried"
    outcomes = set()
    for name in killed:
        state: dict = {}
        following = Checkpointer(copies / name).resume(model=state)
        outcome = (following, state["weight"].tolist()[0])
        assert outcome in {(6, 5.0), (step + 1, 88.0)}, name
        outcomes.add(outcome)
        Checkpointer(copies / name, keep=1).save(9, model=model(9.0))
        assert sorted(path.name for path in (copies / name).iterdir()) == ["step_00000009"]
    assert len(outcomes) == 2


FULL_ON_RANK_1 = """
import errno, os
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.launcher import Checkpointer
dist.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
if dist.get_rank() == 1: os.fsync = full
if "SAVES": Checkpointer("checkpoints", sharded=True).save(1, model=model)
elif dist.get_rank() == 1: full()
"""


@pytest.mark.parametrize("saves", [True, False])
def test_a_disk_that_is_full_for_one_rank(ddprun, saves):
    """The headline has the rank that the text has, and words of the user's."""
    result = ddprun.run("-n", "3", ddprun.script(FULL_ON_RANK_1.replace("SAVES", "yes" * saves), prelude=""))
    assert result.code == (5 if saves else 1), result.err
    assert "ddprun: rank 1 failed (exit code 1); all ranks were ended." in result.said
    if saves:
        assert "CheckpointError: rank 1: cannot write checkpoint" in result.said[-1]
        assert "ddprun: ranks 0, 2 stopped, too (CheckpointError)." in result.said
    else:
        assert "last began sharing memory for gradients of float32[32] at script.py" in result.err


def in_own_mounts(script: str) -> list[str]:
    """The lines that `script` prints, whose mounts nobody else sees; skips where nobody may mount."""
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    if probe.returncode:
        pytest.skip("needs root, or the right to make a mount namespace")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_disk_that_is_really_full(tmp_path):
    """On a file system of 1 MB: the checkpoint before is whole, and the error names the file and the bytes."""
    script = f"""
mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec {sys.executable} -c '
import sys
import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer
small, large = ({{"weight": ddpgrad.ones(n)}} for n in (1000, 1_000_000))
for sharded in (False, True):
    checkpoints = Checkpointer("{tmp_path}", sharded=sharded)
    checkpoints.save(1, model=small)
    try:
        checkpoints.save(2, model=large)
    except CheckpointError as error:
        print(error)
    state = {{}}
    print(checkpoints.resume(model=state), state["weight"].sum().item())
    checkpoints.save(2, model=small)
    print(checkpoints.resume(model=state))
    for path in checkpoints.paths(): __import__("shutil").rmtree(path)
'"""
    lines = in_own_mounts(script)
    assert lines[1:3] == ["2 1000.0", "3"] and lines[4:6] == ["2 1000.0", "3"]
    for line in (lines[0], lines[3]):
        assert "step_00000002" in line and "No space left on device (after 4000" in line, line
        assert "model.safetensors" in line and "as they were" in line


def test_a_folder_that_became_read_only(folder):
    """A save fails with an error that names the file; older checkpoints can still be read."""
    script = f"""
mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec {sys.executable} -c '
import ddpgrad
from ddpgrad.errors import CheckpointError
from ddpgrad.launcher import Checkpointer
checkpoints = Checkpointer("{folder}")
try:
    checkpoints.save(8, model={{}})
except CheckpointError as error:
    print(error)
print(checkpoints.resume(model={{}}))
'"""
    said, resumed = in_own_mounts(script)
    assert "step_00000008" in said and "Read-only file system" in said
    assert resumed == "6"
