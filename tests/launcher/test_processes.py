"""The process that died first, when several connections have ended; and connections without the job's token."""

import json
import selectors
import socket

import pytest

from ddpgrad.distributed.failure.channel import Failure
from ddpgrad.launcher.cli.ddprun import parse
from ddpgrad.launcher.job.processes import JobProcesses


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_connection_that_ends_is_the_rank_at_fault(first: int, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    failures: list[Failure] = []
    with selectors.DefaultSelector() as selector:
        processes = JobProcesses(parse(["-n", "3", "--mpi", str(script)]), selector, failures.append)
        address = processes.listen().removeprefix("unix:")
        ranks = []
        for rank in range(3):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(f"\0{address}")
            hello = {"kind": "hello", "ranks": [rank], "host": "here", "pid": 1}
            connection.sendall(json.dumps(hello).encode() + b"\n")
            ranks.append(connection)
        processes.read_all()
        for rank in (first, *{0, 1, 2} - {first}):
            ranks[rank].close()
        processes.read_all()  # all have ended by now
        processes.close()
    assert [failure.ranks for failure in failures] == [(first,)]


def test_a_connection_without_the_token_is_ignored(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    failures: list[Failure] = []
    with selectors.DefaultSelector() as selector:
        processes = JobProcesses(
            parse(["-n", "2", "--hosts", "localhost:2", str(script)]), selector, failures.append
        )
        kind, _, rest = processes.listen().partition(":")
        token, port, host = rest.split("@")
        assert (kind, host) == ("tcp", "127.0.0.1")
        said = [b"GET / HTTP/1.1\r\n", b"\xff" * 100_000, token[:9].encode(), b"x" * len(token) + b"\n"]
        said.append(f'{token}\n{{"kind": "hello", "ranks": [1], "host": "here", "pid": 1}}\n'.encode())
        connections = [socket.create_connection((host, int(port))) for _ in said]
        for connection, data in zip(connections, said, strict=True):
            connection.sendall(data)
        for _ in range(20):
            for key, _ in selector.select(0.05):
                key.data(key.fd)
        assert len(processes) == 1 and list(processes.progress()) == [1]
        processes.close()
        for connection in connections:
            connection.close()
    assert failures == []
