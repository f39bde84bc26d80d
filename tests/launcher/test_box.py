"""`python -m cluster.box`: hosts that stay, jobs over them, and nothing that is left of them afterwards."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import namespaces
import pytest
from running import LIMIT_S

PROGRAM = Path(__file__).parents[2] / "cluster" / "box.py"
NAME = f"test-{os.getpid()}"
MEET = """
import os, socket, sys
import ddpgrad as torch
import ddpgrad.distributed as dist
dist.init_process_group()
dist.all_reduce(total := torch.tensor([dist.get_rank() + 1.0]))
print(socket.gethostname(), total.item())
if sys.argv[1:]:
    open(f"ready-{dist.get_rank()}", "w").close()
    while True:
        dist.barrier()
"""

pytestmark = pytest.mark.netns


@pytest.fixture
def box(tmp_path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Carries out a command of cluster.box on the box of this test, which is gone afterwards."""

    def run(command: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words_of(command, *words), cwd=tmp_path, env=os.environ | more, capture_output=True, text=True, timeout=LIMIT_S
        )  # fmt: skip

    yield run
    run("down")


def words_of(command: str, *words: str) -> list[str]:
    at = words.index("--") if "--" in words else 0
    # Before `--` or before the host, as users may give it.
    return [sys.executable, str(PROGRAM), command, *words[:at], "--name", NAME, *words[at:]]


def ddprun(*options: str) -> list[str]:
    return ["--", sys.executable, "-m", "ddpgrad.launcher", *options]


def left() -> list[Path]:
    """The files and the namespaces of the box."""
    folders = map(Path, ("/run/ddpgrad-box", "/run/netns", "/etc/netns"))
    return [path for folder in folders for path in folder.glob(f"{NAME}*")]


def links(number: int) -> set[tuple[int, str]]:
    """A box's links by number, of which the kernel gives none twice, and name."""
    return {link for link in socket.if_nameindex() if link[1].partition("h")[0] == f"ddpb{number}"}


def test_a_box_stays_until_it_is_taken_down(box):
    assert box("up", "--hosts", "2", "--link", "1Gbit").returncode == 0
    assert json.loads(Path(f"/run/ddpgrad-box/{NAME}/box.json").read_text())["count"] == 2
    again = box("up")
    assert again.returncode == 1 and f"down --name {NAME}` removes it" in again.stderr
    assert "no host 'host9'; it has host1 (198." in box("cut", "host9").stderr

    said = box("exec", "all", "--", "sh", "-c", "getent hosts host2 | cut -d ' ' -f 1; exit 3")
    (made,) = [found for found in namespaces.all_boxes() if found.name == NAME]
    address, before = made.addresses[1], links(made.number)
    assert said.returncode == 3 and sorted(said.stdout.splitlines()) == [
        f"[host{k}] {address}" for k in (1, 2)
    ]
    by_ssh = [f"/run/ddpgrad-box/{NAME}/ssh", "-x", "root@host1", "hostname", "&&", "echo '2  words'"]
    assert subprocess.run(by_ssh, capture_output=True, text=True).stdout == "host1\n2  words\n"

    def shown() -> str:
        return next(line for line in box_status().splitlines() if f" {address} " in line)

    def box_status() -> str:
        return subprocess.run([sys.executable, PROGRAM, "status"], capture_output=True, text=True).stdout

    for command, state in (
        (["slow", "host2", "--link", "50Mbit"], "link 50Mbit"),
        (["cut", address], "cut"),
        (["heal", "host2"], "link 1Gbit"),
        (["slow", "host2"], "link without limit"),
    ):
        assert box(*command).returncode == 0
        assert f"  {state}  " in shown()

    for command in (["kill", "host2"], ["down"]):
        sleep = words_of("exec", "host2", "--", "sh", "-c", "echo here; sleep 99")
        with subprocess.Popen(sleep, stdout=subprocess.PIPE) as sleeping:
            assert sleeping.stdout and sleeping.stdout.readline() == b"here\n"
            assert box(*command).returncode == 0
        assert sleeping.returncode == -9
    assert not left() and len(before) == 3 and not before & links(made.number)
    assert box("down").returncode == 0
    assert box("down", "--name", "../netns").returncode == 1


# How long a connection to the sshd of a host took, at least: what both hosts send takes part in it.
CONNECT = """
import socket, sys, time
def connect():
    began = time.monotonic()
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 60).close()
    return time.monotonic() - began
print(min(connect() for _ in range(4)))
"""


def test_a_delay_is_on_the_way_and_ends_with_the_box(box, tmp_path):
    assert box("up", "--hosts", "2", "--link", "100Mbit", "--delay", "150ms").returncode == 0
    (made,) = [found for found in namespaces.all_boxes() if found.name == NAME]
    assert [made.state(host) for host in made.places] == [(True, "100Mbit", "150ms")] * 2
    server = [sys.executable, "-m", "http.server", "8123"]
    with subprocess.Popen(words_of("exec", "host2", "--", *server), stderr=subprocess.DEVNULL) as listening:
        while ":8123" not in box("exec", "host2", "--", "ss", "-ltn").stdout:
            assert listening.poll() is None

        def connect() -> float:
            said = box("exec", "host1", "--", sys.executable, "-c", CONNECT, "host2", "8123")
            return float(said.stdout)

        assert connect() >= 0.3
        assert box("slow", "host2", "--delay", "100us").returncode == 0
        assert 0.15 <= connect() < 0.3
        for host in made.places:
            assert box("slow", host).returncode == 0
        assert connect() < 0.15
        assert box("slow", "host1", "--delay", "1min").stderr.count("must be a number with us, ms or s") == 1
        box("heal", "host1")
        before = links(made.number)
        assert box("down").returncode == 0
    assert not left() and not before & links(made.number)


@pytest.mark.parametrize("how", ["exit 1", "kill -9 $PPID"])
def test_of_a_box_that_is_half_made_nothing_stays(box, tmp_path, how):
    (tmp_path / "tc").write_text(f"#!/bin/sh\ncase $* in *host2*replace*) {how};; esac\n")
    (tmp_path / "tc").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert box("up", "--link", "1Gbit", PATH=path).returncode != 0
    assert bool(left()) == ("kill" in how)
    if left():  # nobody was there to remove it
        assert "there is a box" in box("up").stderr
        assert box("down").returncode == 0 and not left()


@pytest.mark.full
@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("host1", ["-n", "2", "--hosts", "host1:1,host2:1"]),
        ("all", ["--nnodes", "2", "--rdzv-endpoint", "host1:29500"]),
    ],
)
def test_a_job_over_two_hosts(box, tmp_path, where, options):
    (tmp_path / "meet.py").write_text(MEET)
    box("up", "--hosts", "2")
    job = box("exec", where, *ddprun(*options, "meet.py"))
    assert job.returncode == 0, job.stderr + job.stdout
    before = "" if where == "host1" else "[host1] "
    assert sorted(job.stdout.splitlines()) == [f"{before}[rank {i}] host{i + 1} 3.0" for i in range(2)]


@pytest.mark.full
def test_a_host_that_is_cut_off_is_named(box, tmp_path):
    (tmp_path / "meet.py").write_text(MEET)
    box("up", "--hosts", "2")
    options = ddprun("-n", "2", "--hosts", "host1:1,host2:1", "meet.py", "stay")
    command = words_of("exec", "host1", *options)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
        while len(list(tmp_path.glob("ready-*"))) < 2:
            assert job.poll() is None
            time.sleep(0.02)
        box("cut", "host2")
        _, said = job.communicate(timeout=LIMIT_S)
    assert (
        job.returncode == 1 and "ddprun: rank 1 failed (host host2 was lost); all ranks were ended." in said
    )
