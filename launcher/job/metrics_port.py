"""`ddprun --metrics PORT`: a job's status in Prometheus's text format, over HTTP, in the launcher's own loop.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpgrad.core.errors import LaunchError

if TYPE_CHECKING:
    from .status import Status

# Connections that are served at once, the oldest makes room for the next; and the bytes of a request.
_MOST_CLIENTS = 32
_LONGEST = 8192

Samples = Iterator[tuple[dict[str, object], float]]


def _of_job(key: str) -> Callable[[Status], Samples]:
    return lambda status: iter([({}, status[key])])


def _of_ranks(key: str) -> Callable[[Status], Samples]:
    return lambda status: (
        ({"rank": row["rank"]}, row[key]) for row in status["ranks"] if row[key] is not None
    )


def _of_processes(key: str) -> Callable[[Status], Samples]:
    """One sample for each process, so that sums are right where a process hosts several ranks."""
    return lambda status: (
        ({"process": proc}, row[key])
        for proc, row in sorted({row["process"]: row for row in status["ranks"]}.items())
        if row[key] is not None
    )


def _info(status: Status) -> Samples:
    yield {"script": status["script"], "pid": status["pid"], "host": status["host"]}, 1


def _places(status: Status) -> Samples:
    for row in status["ranks"]:
        if row["host"]:
            yield {key: row[key] for key in ("rank", "process", "pid", "host")}, 1


def _logged(status: Status) -> Samples:
    for row in status["ranks"]:
        for name, value in row["logged"].items():
            yield {"rank": row["rank"], "name": name}, value


# Name below ddpgrad_, type, help, samples.
_METRICS: tuple[tuple[str, str, str, Callable[[Status], Samples]], ...] = (
    ("job_info", "gauge", "The job of this launcher.", _info),
    ("job_start_time_seconds", "gauge", "When the launcher started, since 1970.", _of_job("started")),
    ("job_restarts_total", "counter", "Restarts and resizes of all ranks.", _of_job("restarts")),
    ("world_size", "gauge", "Ranks of the job.", _of_job("world_size")),
    ("processes", "gauge", "Processes that host them.", _of_job("processes")),
    ("rank_info", "gauge", "Where the rank runs, once that is known.", _places),
    ("rank_alive", "gauge", "1 while the process of the rank runs.", _of_ranks("alive")),
    ("rank_steps_total", "counter", "Optimizer steps since the last restart.", _of_ranks("steps")),
    ("rank_collectives_total", "counter", "Collectives begun since the last restart.", _of_ranks("collectives")),
    ("rank_last_progress_timestamp_seconds", "gauge", "When the rank last went on, since 1970.", _of_ranks("progress_at")),
    ("rank_last_heartbeat_timestamp_seconds", "gauge", "When its process was last heard, since 1970.", _of_ranks("heartbeat_at")),
    ("rank_wait_seconds_total", "counter", "What its process has waited for other ranks.", _of_ranks("waited")),
    ("process_resident_memory_bytes", "gauge", "Memory of the process.", _of_processes("memory")),
    ("process_gpu_memory_bytes", "gauge", "Memory of GPUs that the process holds.", _of_processes("gpu")),
    ("process_exit_status", "gauge", "Exit code of the process that has ended, or minus a signal.", _of_processes("exit")),
    ("logged_step", "gauge", "The latest step that the program has logged.", _of_ranks("step")),
    ("logged_value", "gauge", "The latest numbers that the program has logged.", _logged),
)  # fmt: skip


def text(status: Status) -> str:
    """A job's status in Prometheus's text format."""
    lines = []
    for name, kind, told, samples in _METRICS:
        lines += [f"# HELP ddpgrad_{name} {told}", f"# TYPE ddpgrad_{name} {kind}"]
        for labels, value in samples(status):
            inner = ",".join(f'{key}="{_escaped(str(said))}"' for key, said in labels.items())
            lines.append(f"ddpgrad_{name}{f'{{{inner}}}' if inner else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value + 0))


@dataclass(eq=False)
class _Client:
    connection: socket.socket
    received: bytes = b""
    answer: bytes = b""


class MetricsPort:
    """Answers as long as it is entered. address: host and port, where 0 is any free one."""

    def __init__(
        self, selector: selectors.BaseSelector, address: tuple[str, int], read: Callable[[], Status]
    ) -> None:
        self._selector, self._address, self._read = selector, address, read
        self._listening: socket.socket | None = None
        self._clients: list[_Client] = []

    def __enter__(self) -> None:
        host, port = self._address
        shown = f"[{host}]" if ":" in host else host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listening = socket.create_server((host, port), family=family, backlog=_MOST_CLIENTS)
        except (OSError, OverflowError) as error:
            raise LaunchError(
                f"--metrics {shown}:{port} cannot be listened to: {error}; give another port, or 0 for any that is free"
            ) from None
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ, lambda fd: self._accept())
        port = self._listening.getsockname()[1]
        print(f"ddprun: metrics at http://{shown}:{port}/metrics", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        for client in self._clients[:]:
            self._drop(client)
        if self._listening is not None:
            self._selector.unregister(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        assert self._listening is not None
        with contextlib.suppress(OSError):  # who asked has gone
            client = _Client(self._listening.accept()[0])
            if len(self._clients) >= _MOST_CLIENTS:
                self._drop(self._clients[0])
            client.connection.setblocking(False)
            self._clients.append(client)
            self._selector.register(
                client.connection, selectors.EVENT_READ, functools.partial(self._serve, client)
            )

    def _serve(self, client: _Client, fd: int) -> None:
        """Read the request on, or send the answer on; the connection ends with either."""
        try:
            if client.answer:
                client.answer = client.answer[client.connection.send(client.answer) :]
                if not client.answer:
                    self._drop(client)
                return
            data = client.connection.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.received += data
        if not data or len(client.received) > _LONGEST:
            self._drop(client)
        elif b"\r\n\r\n" in client.received:
            client.answer = self._answer(client.received.partition(b"\r\n")[0])
            self._selector.modify(
                client.connection, selectors.EVENT_WRITE, functools.partial(self._serve, client)
            )

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        status, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", b""
        if method != b"GET":
            status = "405 Method Not Allowed\r\nAllow: GET"
        elif path != b"/metrics":
            status, body = "404 Not Found", b"the metrics are at /metrics\n"
        else:
            body = text(self._read()).encode(errors="replace")
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

    def _drop(self, client: _Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()
