"""A world that is named and cannot be met is an error, which says who was missing: never a world of one."""

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from started_by_hand import MEETING, ended, free_port

import ddpgrad.distributed as dist
from ddpgrad.core.errors import TransportError


@pytest.fixture(autouse=True)
def no_other_job(monkeypatch):
    for name in (*MEETING, "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


ENV = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}


@pytest.mark.parametrize("missing", ENV)
def test_an_incomplete_environment_is_no_world_of_one(monkeypatch, missing):
    for name in ENV.keys() - {missing}:
        monkeypatch.setenv(name, ENV[name])
    with pytest.raises(
        ValueError, match=f"environment variable {missing} expected, but not set .*ddprun -n N"
    ):
        dist.init_process_group("gloo")
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"rank": 2, "world_size": 2, "init_method": "tcp://127.0.0.1:1"}, "rank 2 is no rank of a world of 2"),
        ({"rank": 0, "world_size": 2}, "environment variable MASTER_ADDR expected"),
        ({"rank": 0, "world_size": 2, "init_method": "tcp://127.0.0.1"}, "port number missing"),
        ({"rank": 0, "world_size": 2, "init_method": "tcp://127.0.0.1:70000"}, "[Pp]ort"),
        ({"rank": 0, "init_method": "tcp://127.0.0.1:1"}, "world size parameter missing"),
        ({"world_size": 2, "init_method": "file:///nowhere"}, "rank parameter missing"),
        ({"rank": 0, "world_size": 2, "init_method": "tcp://127.0.0.1:1?rank=1"}, "rank=1, and the argument rank=0"),
        ({"rank": 0, "world_size": 2, "init_method": "udp://127.0.0.1:1"}, "No rendezvous handler for udp://"),
        ({"init_method": "env://"}, "environment variable RANK expected"),
        ({"store": dist.HashStore()}, "rank and world_size must be given"),
        ({"store": dist.PrefixStore("x", dist.HashStore()), "rank": 0, "world_size": 2}, "simulate"),
        ({"store": dist.HashStore(), "init_method": "env://"}, "both init_method and store"),
        ({"init_method": 5}, "init_method must be text, got 5"),
        ({"rank": "0", "world_size": 1, "init_method": "tcp://127.0.0.1:1"}, "rank must be an integer, got '0'"),
    ],
)  # fmt: skip
def test_wrong_arguments(how, message):
    with pytest.raises((ValueError, TypeError), match=message):
        dist.init_process_group("gloo", **how)


def test_a_world_of_one_needs_nobody(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=0, world_size=1)
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 1
    dist.destroy_process_group()


def test_who_does_not_come_is_named(tmp_path):
    began = time.monotonic()
    port = free_port()
    with pytest.raises(
        TransportError, match=rf"rank 0 of 3 waited .* at tcp://localhost:{port} for ranks 1, 2"
    ):
        dist.init_process_group("gloo", f"tcp://localhost:{port}", rank=0, world_size=3, timeout=0.4)
    with pytest.raises(
        TransportError, match=rf"rank 1 of 2 could not reach tcp://localhost:{port} .*Rank 0 has not"
    ):
        dist.init_process_group("gloo", f"tcp://localhost:{port}", rank=1, world_size=2, timeout=0.4)
    with pytest.raises(TransportError, match=r"rank 1 of 2 waited .* for rank 0, which did not come"):
        dist.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=1, world_size=2, timeout=0.4)
    assert time.monotonic() - began < 120  # and not the 600 s of a default
    why = "another program does.*Choose another MASTER_PORT"
    with another_program() as taken, pytest.raises(TransportError, match=why):
        dist.init_process_group("gloo", f"tcp://127.0.0.1:{taken}", rank=0, world_size=2, timeout=0.4)


@contextmanager
def another_program() -> Iterator[int]:
    """The port of a program that is none of ours."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


MEETS = "dist.init_process_group('gloo', timeout=float(os.environ['PATIENCE'])); dist.barrier()"


def test_ranks_that_contradict_each_other_are_told_so(program):
    """Two with one number, at once and late; and two that differ in WORLD_SIZE."""
    program.write(MEETS)

    def pair(*ranks_and_sizes: tuple[int, int]) -> list[subprocess.Popen[str]]:
        program.meeting["MASTER_PORT"] = free_port()
        return [program.start({"RANK": r, "WORLD_SIZE": n, "PATIENCE": 60}) for r, n in ranks_and_sizes]

    twice = pair((0, 2), (0, 2))
    differing = pair((0, 3), (1, 2))
    both_ones = pair((0, 3), (1, 3), (1, 3))
    for _, err in ended(twice, 1):
        assert "two processes have RANK 0: process" in err
    for _, err in ended(differing, 1):
        assert "rank 1 (process" in err and "has WORLD_SIZE 2, and rank 0 (process" in err
    for _, err in ended(both_ones, 1):
        assert "two processes have RANK 1: process" in err


def test_a_rank_too_many_is_told_that_all_are_there(program):
    program.write(
        "dist.init_process_group('gloo'); print('met', flush=True); sys.stdin.read(1); dist.barrier()"
    )
    first = [program.start({"RANK": rank, "WORLD_SIZE": 2}) for rank in range(2)]
    assert [process.stdout.readline() for process in first] == ["met\n"] * 2
    for rank, size, why in (
        (1, 2, "two processes have RANK 1"),
        (2, 3, "rank 2 .* has WORLD_SIZE 3"),
        (0, 2, "two .* RANK 0"),
    ):
        [(_, err)] = ended([program.start({"RANK": rank, "WORLD_SIZE": size})], 1)
        assert re.search(why, err), err
    for process in first:
        process.stdin.write("\n")
        process.stdin.flush()
    ended(first)
