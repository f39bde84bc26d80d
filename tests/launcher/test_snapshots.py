"""Snapshots in memory: a job that failed goes on from them, with the bits of an undisturbed one, and nothing stays."""

import contextlib
import glob
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matrices import thinned
from running import LEFT_S, Ddprun

from ddpgrad.launcher.checkpoint.checksum import checksum_of

# After step 5 of the first attempt rank 1 does DEED, and is killed; BEFORE it keeps the state after that step.
TRAIN = """
print("warm", "ddpgrad.optim.sgd" in sys.modules)
import hashlib
import ddpgrad as torch
from ddpgrad import distributed, nn
from ddpgrad.launcher import Checkpointer

distributed.init_process_group()
attempt = int(os.environ["DDPRUN_RESTART_COUNT"])
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 300), nn.BatchNorm1d(300), nn.Linear(300, 300))
ddp = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(10 + rank)
losses = []
checkpoints = Checkpointer("checkpoints", every=6, memory_every=1)
state = {"model": model, "optimizer": optimizer, "losses": losses}
if attempt and rank == 0:  # what comes from memory needs no file
    os.rename("checkpoints", "away")
wait()
print("memory", os.environ["DDPGRAD_SNAPSHOTS"])
first = checkpoints.resume(**state) or 0
print("from", first)
for step in range(first, 8):
    loss = ddp(torch.randn(7, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    distributed.all_reduce(loss := loss.detach())
    losses.append(loss.item())
    if attempt == 0 and rank == 1 and step == 5:
        BEFORE
    checkpoints.step(step, **state)
    if attempt == 0 and step == 5 and checkpoints._snapshots is not None:  # they are whole on all ranks
        checkpoints._snapshots.wait()
        wait()
    if attempt == 0 and rank == 1 and step == 5:
        DISTURBED = True
        DEED
        if DISTURBED: os.kill(os.getpid(), signal.SIGKILL)
result = hashlib.sha256(repr(losses).encode())
for parameter in model.parameters():
    result.update(parameter.detach().numpy().tobytes())
print("result", result.hexdigest())
"""
# One byte of an array in the snapshot of step 5.
FLIP = """pid, fd, _ = os.environ["DDPGRAD_SNAPSHOTS"].split(":")
        memory = open(f"/proc/{pid}/fd/{fd}", "r+b", buffering=0)
        for slot in 2, 3:
            memory.seek(slot << 40)
            if rb'step\\",5' in memory.read(4096):
                memory.seek((slot << 40) + (1 << 24) + 50_000)
                byte = memory.read(1)[0]
                memory.seek(-1, 1)
                memory.write(bytes([byte ^ 1]))"""
# It is killed when the first array has been written.
KILL_WRITER = """from ddpgrad.files import tensor_file
        write = tensor_file.write
        tensor_file.write = lambda *words, **options: (write(*words, **options), os.kill(os.getpid(), signal.SIGKILL))"""
KILL_LAUNCHER = """launcher = os.getppid()
        children = lambda: open(f"/proc/{launcher}/task/{launcher}/children").read()
        while len(children().split()) < 5: time.sleep(0.05)
        open("children", "w").write(children())
        os.kill(launcher, signal.SIGKILL)
        time.sleep(600)"""
CASES = {
    "whole": ("pass", "pass", "6", ""),
    "changed": ("pass", FLIP, "5", "in the snapshot of step 5 is damaged"),
    "torn": (KILL_WRITER, "time.sleep(600)", "5", ""),
}


def run(ddprun, deed: str, *options: str, before: str = "pass"):
    script = TRAIN.replace("DEED", deed).replace("BEFORE", before)
    return ddprun.run("-n", "2", *options, ddprun.script(script))


def said(out: str, word: str) -> list[str]:
    return [line.split()[-1] for line in sorted(out.splitlines()) if f"] {word} " in line]


def held(out: str) -> list[str]:
    """The processes that still hold memory of a job."""
    names = {address.split(":")[2] for address in said(out, "memory")}
    assert len(names) == 1
    found = []
    for entry in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has just been closed, or is another user's
            found += [entry] * (names <= set(re.split("[: ]", os.readlink(entry))))
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list[str]:
    result = run(Ddprun(tmp_path_factory.mktemp("undisturbed")), "DISTURBED = False")
    assert result.code == 0, result.err
    return said(result.out, "result")


@pytest.mark.parametrize("case", thinned(CASES, "torn"))
def test_a_restart_goes_on_from_memory_with_the_same_bits(ddprun, undisturbed, case):
    before, deed, first, warning = CASES[case]
    result = run(ddprun, deed, "--max-restarts", "1", "--spares", "1", before=before)
    assert result.code == 0, result.err
    assert said(result.out, "from") == ["0", first, "0", first]
    # Rank 0's place was taken by a process that had loaded what it had.
    assert said(result.out, "warm") == ["False", "True", "False", "False"]
    assert said(result.out, "result") == undisturbed
    assert warning in result.err
    assert not held(result.out)


def test_nothing_stays_of_a_launcher_that_was_killed(ddprun):
    result = run(ddprun, KILL_LAUNCHER, "--max-restarts", "1", "--spares", "2")
    assert result.code == -signal.SIGKILL
    children = (ddprun.folder / "children").read_text().split()
    assert len(children) == 5  # ranks, spares, and the process that cleans up
    until = time.monotonic() + LEFT_S
    while any(Path("/proc", child).exists() for child in children):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert not held(result.out)


def test_memory_that_does_not_suffice_is_a_warning_and_files_go_on(ddprun, undisturbed):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))\n"
    script = TRAIN.replace("DEED", "pass").replace("BEFORE", "pass")
    script = script.replace('os.rename("checkpoints", "away")', "None")
    result = ddprun.run("-n", "2", "--max-restarts", "1", ddprun.script(limit + script))
    assert result.code == 0, result.err
    assert said(result.out, "from") == ["0", "6", "0", "6"]
    assert said(result.out, "result") == undisturbed
    assert "rank 1 cannot keep the state after step 0 in memory" in result.err


# Rank 0 asks ddprun for PROCS processes after the first step, and then for what cannot be.
RESIZE = """DISTURBED = False
    if attempt == 0 and rank == 0 and step in (0, 3):
        import subprocess
        for procs in (5, PROCS, PROCS) if step else (PROCS,):
            words = "-m", "ddpgrad.launcher", "resize", str(os.getppid()), "--procs", str(procs)
            asked = subprocess.run([sys.executable, *words], capture_output=True, text=True)
            print("asked", asked.returncode, (asked.stdout + asked.stderr).splitlines()[-1])
    checkpoints.step("""


@pytest.mark.parametrize(("before", "after"), thinned([(1, 2), (2, 1)], (1, 2)))
def test_a_job_goes_on_in_other_processes_with_the_same_bits(ddprun, undisturbed, before, after):
    asking = RESIZE.replace("PROCS", str(after))
    body = (
        TRAIN.replace("    checkpoints.step(", f"    {asking}", 1)
        .replace("BEFORE", "pass")
        .replace("DEED", "pass")
    )
    body = body.replace("DISTURBED = True", "pass")
    result = ddprun.run("-n", "2", "--procs", str(before), "--max-restarts", "1", ddprun.script(body))
    assert result.code == 0, result.err
    assert f"whose checkpoint is saved; going on in {after} processes" in result.err
    assert said(result.out, "from") == ["0", "4", "0", "4"]  # the files were not there any more
    assert said(result.out, "result") == undisturbed
    answers = re.findall(r"asked (\d) (.*)", result.out)
    assert [code for code, _ in answers] == ["2", "2", "0", "2"]
    assert "not all ranks have called Checkpointer.step yet" in answers[0][1]
    assert "--procs 5 is more than -n 2 ranks" in answers[1][1]
    assert "is ending, or being resized" in answers[3][1]


def test_only_a_job_that_runs_can_be_resized(ddprun):
    result = ddprun.run("resize", str(os.getpid()), "--procs", "2")
    assert result.code == 2
    assert f"no ddprun of yours with process number {os.getpid()} answers on this host" in result.err


@given(
    size=st.integers(0, 20_000),
    places=st.sets(st.integers(0, 19_999), min_size=1, max_size=4),
    change=st.sampled_from([1, 128, 255]),
)
def test_every_accident_changes_the_checksum(size: int, places: set[int], change: int):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    before = checksum_of(data.data)
    places = {place for place in places if place < size}
    for place in places:
        data[place] ^= change
    assert (checksum_of(data.data) != before) == bool(places)
    assert checksum_of(np.append(data, np.uint8(0)).data) != checksum_of(data.data)


def test_signs_that_change_together_change_the_checksum():
    numbers = np.tile([1.0, -1.0], 2048)  # each sum of highest bits stays the same
    assert checksum_of(numbers.view(np.uint8).data) != checksum_of((-numbers).view(np.uint8).data)
