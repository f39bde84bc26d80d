"""A host that is small, crowded or unfriendly: too little shared memory, a taken port, other programs that connect."""

import errno
import fcntl
import os
import random
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.launcher import Checkpointer
from ddpgrad.launcher.__main__ import main as ddprun_main

SHARED = """\
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
total = torch.ones(1_000_000)
dist.all_reduce(total)
print("total", total[0].item(), dist.get_backend())
"""


def in_small_memory(command: list[str], size: str = "1m", place: str = "/dev/shm") -> list[str]:
    """`command` where the folder `place` has so little; skips where nobody may mount."""
    mount = f"mount -t tmpfs -o size={size} tmpfs {place}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("needs root, or the right to make a mount namespace")
    return ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


def test_shared_memory_of_1_mb_is_an_error_that_says_what_is_needed(ddprun):
    script = ddprun.script(SHARED, prelude="")
    result = ddprun.run(command=in_small_memory(ddprun.command("-n", "2", script)))
    assert result.code == 1
    said = r"not enough shared memory in /dev/shm: \d+ bytes wanted, \d+ available.*--shm-size"
    assert re.search(said, result.said[-1]), result.err


@pytest.mark.parametrize("end", ["pass", "raise ValueError('boom')"])
def test_a_log_folder_on_a_disk_that_fills_up(ddprun, end):
    """The job goes on, the screen has all, and the end says that the files have not."""
    (ddprun.folder / "logs").mkdir()
    script = ddprun.script(f"for _ in range(3000): print('x' * 499)\nwait()\nif rank == 1: {end}\nwait()\n")
    command = ddprun.command("-n", "2", "--log-dir", str(ddprun.folder / "logs"), script)
    result = ddprun.run(command=in_small_memory(command, place=str(ddprun.folder / "logs")))
    assert result.code == (end != "pass"), result.err
    assert len(result.out) == 3000 * len("[rank 0] " + "x" * 499 + "\n")
    said = f"ddprun: the logs in {ddprun.folder / 'logs'} are incomplete: [Errno 28] No space left on device"
    assert said in result.said


def test_mpi_needs_less_shared_memory(ddprun, mpiexec):
    """MPICH itself takes 2 MB for two ranks, and crashes where there is less."""
    script = ddprun.script(SHARED, prelude="")
    ddprun.environment["DDPGRAD_TRANSPORT"] = "mpi"
    ddprun.environment["OMPI_MCA_btl"] = "self,tcp"
    result = ddprun.run(command=in_small_memory(ddprun.command("--mpi", "-n", "2", script), "4m"))
    assert result.code == 0, result.err
    assert result.out.count("total 2.0 mpi") == 2


def test_loader_workers_need_no_room_in_dev_shm(ddprun):
    script = ddprun.script(
        """
import ddpgrad as torch
from ddpgrad.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.ones(64, 100_000)), 16, num_workers=1)
    print("sum", sum(batch.sum().item() for (batch,) in loader))
""",
        prelude="",
    )
    result = ddprun.run(command=in_small_memory(ddprun.command("-n", "1", script)))
    assert (result.code, result.out) == (0, "sum 6400000.0\n"), result.err


def test_folders_on_a_file_system_without_locks(tmp_path, monkeypatch, capsys):
    """As on some network file systems: jobs run, and are told that nothing keeps two of them apart."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    script = tmp_path / "s.py"
    script.write_text("print('fine')")
    assert ddprun_main(["-n", "1", "--log-dir", str(tmp_path / "logs"), str(script)]) == 0
    assert "fine" in (tmp_path / "logs" / "rank_0.log").read_text()
    assert re.search(r"--log-dir .* cannot be locked \(.*No locks available\)", capsys.readouterr().err)
    with pytest.warns(UserWarning, match=r"cannot be locked .*let no other job write"):
        Checkpointer(tmp_path / "checkpoints").save(1, model={"weight": torch.ones(2)})
    with pytest.raises(dist.DistStoreError, match=r"cannot be locked .*use a TCPStore"):
        dist.FileStore(str(tmp_path / "store")).set("key", "value")


def test_a_taken_port_disturbs_nobody(ddprun):
    """Ranks of one host meet in shared memory; MASTER_PORT is for programs that want one."""
    script = ddprun.script(SHARED + "import os; print(os.environ['MASTER_PORT'])\n", prelude="")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ddprun.run("-n", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", script)
    assert result.code == 0, result.err
    assert result.out.count("total 2.0 shm") == 2 and result.out.count(str(port)) == 2


def beside(ddprun, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A job that ends while another one of the same folder goes on."""
    return subprocess.run(
        ddprun.command(*arguments), cwd=ddprun.folder, env=ddprun.environment, capture_output=True, text=True
    )


def test_two_jobs_with_the_same_endpoint_are_apart(ddprun):
    script = ddprun.script(
        "print('size', me.world_size)\nopen(f'ready-{rank}', 'w').close()\n"
        "while me.world_size == 2 and not os.path.exists('go'): time.sleep(0.05)\nwait()\n"
    )
    first = ddprun.start("-n", "2", "--rdzv-endpoint", "127.0.0.1:29400", script)
    second = beside(ddprun, "-n", "3", "--rdzv-endpoint", "127.0.0.1:29400", script)
    (ddprun.folder / "go").touch()
    assert second.returncode == 0 and second.stdout.count("size 3") == 3
    assert ddprun.end(first).code == 0


def test_a_second_job_that_saves_into_the_same_folder_is_refused(ddprun):
    script = ddprun.script("""
from ddpgrad import distributed
from ddpgrad.launcher import Checkpointer
distributed.init_process_group()
checkpoints = Checkpointer("checkpoints", keep=None)
step = checkpoints.resume() or 0
checkpoints.save(step)
checkpoints.save(step + 1)
open(f"ready-{rank}", "w").close()
deadline = time.monotonic() + 60
while len(sys.argv) > 1 and not os.path.exists("go") and time.monotonic() < deadline:
    time.sleep(0.05)
""")
    first = ddprun.start("-n", "2", script, "stay")
    second = beside(ddprun, "-n", "2", script)
    assert second.returncode == 5, second.stderr
    assert "another job writes there" in second.stderr
    (ddprun.folder / "go").touch()
    assert ddprun.end(first).code == 0
    third = ddprun.run("-n", "2", script)
    assert third.code == 0, third.err
    assert len(list((ddprun.folder / "checkpoints").glob("step_*"))) == 4


def addresses(folder: Path) -> set[tuple[str, int]]:
    """Where launchers of jobs in `folder` listen, as the kernel shows it."""
    listening = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            listening[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.joinpath("cwd").readlink() != folder:
                continue
            for link in process.joinpath("fd").iterdir():
                inode = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
                if inode and inode[1] in listening:
                    found.add(("127.0.0.1", listening[inode[1]]))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def test_garbage_and_slow_bytes_on_every_open_socket_of_a_job(ddprun, mpiexec):
    """A job whose ranks connect over TCP is told nonsense on all its ports, and trains as if nothing were."""
    script = ddprun.script("""
open(f"ready-{rank}", "w").close()
for _ in range(60):
    time.sleep(0.05)
    wait()
print("fine")
""")
    running = ddprun.start("-n", "2", "--hosts", "localhost:2", script)
    chance = random.Random(0)
    found = addresses(ddprun.folder)
    assert found, "the job listens nowhere"
    connections = []

    def talk(place: tuple[str, int], data: bytes, pause: float) -> None:
        try:
            connection = socket.create_connection(place, timeout=5)
            connections.append(connection)
            for byte in data if pause else ():
                connection.sendall(bytes([byte]))
                time.sleep(pause)
            connection.sendall(b"" if pause else data)
        except OSError:  # shown the door
            return

    nonsense = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
        b"\0" * 70_000,
        chance.randbytes(200_000),
        b'{"kind": "hello"}\n',
    ]
    threads = [
        threading.Thread(target=talk, args=(place, data, pause))
        for place in found
        for data, pause in [*((data, 0.0) for data in nonsense), (b'{"kind": "done"}\n' * 2, 0.02)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    result = ddprun.end(running)
    assert result.code == 0, result.err
    assert result.out.count("fine") == 2
