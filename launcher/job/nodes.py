"""Several ddprun instances, one on each host, that are one job: `--nnodes N --rdzv-endpoint HOST:PORT`.

The first node listens at the endpoint, starts mpiexec and supervises. The others join it, offer slots for
processes, run the commands that mpiexec needs on them (the proxies of Hydra, which start the ranks' agents),
and end with the job's exit code. Messages are lines of JSON:

    join      from a node: its number, if it was given one, its processes, and the job's --rdzv-id
    refused   to a node: the reason why it cannot take part
    run       to a node: a command line
    signal    from a node: a signal that its ddprun got, as if the first had got it
    end       to a node: the job's exit code
"""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddpgrad.core.errors import LaunchError
from ddpgrad.distributed.failure import exit_codes, tcp_keepalive

from . import child_process
from .hosts import Host, slots
from .plan import Plan
from .signals import Signals
from .spawn import popen_in_group

_READ = 64 * 1024
# No message is longer than a command line; a connection that sends more is no node.
_LONGEST = 1 << 20
_RETRY_S = 0.2
_FIRST = "node0"


@dataclass(eq=False)
class Node:
    """A node that has joined, or a connection that has not sent its `join` yet."""

    connection: socket.socket
    rank: int | None = None
    procs: int = 0
    received: bytes = b""
    """The beginning of an incomplete message."""

    @property
    def name(self) -> str:
        """Its name among the plan's hosts."""
        return f"node{self.rank}"

    def send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # `receive` notices the end of the connection
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are complete by now; ConnectionError at its end."""
        try:
            data = self.connection.recv(_READ)
        except OSError as error:  # such as that its host has not answered for long
            raise ConnectionResetError(str(error)) from error
        if not data:
            raise ConnectionResetError("the connection has ended")
        *lines, self.received = (self.received + data).split(b"\n")
        if len(self.received) > _LONGEST:
            raise ConnectionResetError("no message is that long")
        return [json.loads(line) for line in lines]


@dataclass(eq=False)
class Nodes:
    """The nodes of a job, as the first of them sees it, whose own ranks are `procs`."""

    endpoint: tuple[str, int]
    count: int
    procs: int
    ident: str
    joined: list[Node] = field(default_factory=list)
    """The others, in the order of their ranks."""
    gone: set[str] = field(default_factory=set)
    """The names, as among the plan's hosts, of those whose connection has ended."""
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """The address of the first node as the others know it."""
        return self.joined[0].connection.getsockname()[0]

    def gather(self, timeout: float) -> None:
        """Wait until all nodes have joined; LaunchError after `timeout` seconds."""
        until = time.monotonic() + timeout
        pending: list[Node] = []
        with self._listen(until) as server, selectors.DefaultSelector() as selector:
            selector.register(server, selectors.EVENT_READ)
            while len(self.joined) < self.count - 1:
                left = until - time.monotonic()
                if left <= 0:
                    raise LaunchError(
                        f"only {len(self.joined) + 1} of {self.count} nodes came to {self.endpoint[0]}:{self.endpoint[1]} "
                        f"within {timeout:g} s"
                    )
                for key, _ in selector.select(min(left, 1.0)):
                    if key.fileobj is server:
                        connection, _ = server.accept()
                        tcp_keepalive.enable(connection, peer_reads=True)
                        pending.append(Node(connection))
                        selector.register(connection, selectors.EVENT_READ, pending[-1])
                    else:
                        self._meet(key.data, selector)
        for node in pending:
            if node not in self.joined:
                node.connection.close()
        ranks = iter(rank for rank in range(1, self.count) if rank not in {n.rank for n in self.joined})
        for node in self.joined:
            node.rank = next(ranks) if node.rank is None else node.rank
        self.joined.sort(key=lambda node: node.rank or 0)

    def _listen(self, until: float) -> socket.socket:
        host, port = self.endpoint
        while True:
            try:
                return socket.create_server((host, port), backlog=128)
            except OSError as error:
                # The name of a pod is known some seconds after it has begun.
                if not isinstance(error, socket.gaierror) or time.monotonic() > until:
                    raise self._unusable(error) from None
            time.sleep(_RETRY_S)

    def _unusable(self, error: OSError) -> LaunchError:
        host, port = self.endpoint
        return LaunchError(
            f"--rdzv-endpoint {host}:{port} cannot be listened to on this host, which is node 0: {error}. "
            "Give the first node's address and a port that is free there"
        )

    def _meet(self, node: Node, selector: selectors.BaseSelector) -> None:
        try:
            messages = node.receive()
            for message in messages:
                self._take(node, message)
        except (OSError, ValueError, KeyError, TypeError):  # it has gone, or is no node
            selector.unregister(node.connection)
            node.connection.close()
            if node in self.joined:
                self.joined.remove(node)

    def _take(self, node: Node, message: dict[str, Any]) -> None:
        rank, procs = message["join"], int(message["procs"])
        reason = ""
        if message["id"] != self.ident:
            reason = f"the job at this endpoint has another --rdzv-id than {message['id']!r}"
        elif message["nnodes"] != self.count:
            reason = (
                f"the first node was started with --nnodes {self.count}, this one with {message['nnodes']}"
            )
        elif rank is not None and (rank in {n.rank for n in self.joined} or not 0 < rank < self.count):
            reason = f"--node-rank {rank} is taken, or not below --nnodes {self.count}"
        if reason:
            node.send(refused=reason)
            raise ConnectionRefusedError(reason)
        node.rank, node.procs = rank, procs
        self.joined.append(node)

    def plan(self, plan: Plan) -> Plan:
        """`plan` for all nodes."""
        hosts = (Host(_FIRST, self.procs), *(Host(node.name, node.procs) for node in self.joined))
        ranks = slots(hosts)
        whole = replace(plan, world_size=ranks, procs=ranks, hosts=hosts, mpi=True, nodes=self)
        whole.check()
        return whole

    def run(self, name: str, command: Sequence[str]) -> None:
        """Run a command line on the node that has this name among the plan's hosts."""
        if name == _FIRST:
            self.children.append(popen_in_group(list(command), None, stdout=None, stderr=None))
        else:
            next(node for node in self.joined if node.name == name).send(run=list(command))

    def watch(self, selector: selectors.BaseSelector, on_signal: Callable[[signal.Signals], None]) -> None:
        """Take in, in the loop of `selector`, signals that other nodes got."""

        def read(node: Node) -> None:
            try:
                for message in node.receive():
                    on_signal(signal.Signals(message["signal"]))
            except (OSError, ValueError, KeyError, TypeError):
                # The agents of its ranks end with it, and report if they can.
                selector.unregister(node.connection)
                self.gone.add(node.name)

        for node in self.joined:
            selector.register(node.connection, selectors.EVENT_READ, lambda _, node=node: read(node))

    def end(self, code: int) -> None:
        """Tell all nodes that the job has ended."""
        for node in self.joined:
            node.send(end=code)
            node.connection.close()
        for child in self.children:
            child_process.send_group(child.pid, signal.SIGKILL)
            child.wait()


def is_first(endpoint: tuple[str, int], node_rank: int | None) -> bool:
    """Whether this host is the first node: by its number or, without one, as the one that has the endpoint's address."""
    if node_rank is not None:
        return node_rank == 0
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(endpoint)
        return True
    return False


def join(
    endpoint: tuple[str, int], nnodes: int, node_rank: int | None, procs: int, ident: str, timeout: float
) -> int:
    """Take part in the job of the first node, to its end; returns its exit code."""
    node = Node(_connect(endpoint, timeout))
    node.send(join=node_rank, nnodes=nnodes, procs=procs, id=ident)
    begun: list[subprocess.Popen[bytes]] = []
    code = exit_codes.RANK_FAILED
    try:
        with selectors.DefaultSelector() as selector, Signals(selector) as signals:
            selector.register(node.connection, selectors.EVENT_READ, lambda _: None)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is not node.connection:
                        key.data(key.fd)
                        continue
                    for message in node.receive():
                        if "refused" in message:
                            raise LaunchError(message["refused"])
                        if "end" in message:
                            code = message["end"]
                            return code
                        begun.append(popen_in_group(message["run"], None, stdout=None, stderr=None))
                while signals.pending:
                    node.send(signal=int(signals.pending.pop(0)))
    except ConnectionError as error:
        print(f"ddprun: lost the first node at {endpoint[0]}:{endpoint[1]} ({error})", file=sys.stderr)
        return code
    finally:
        for process in begun:
            if code != 0:
                child_process.send_group(process.pid, signal.SIGKILL)
            process.wait()


def _connect(endpoint: tuple[str, int], timeout: float) -> socket.socket:
    until = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(endpoint, timeout=5)
        except OSError as error:
            if time.monotonic() > until:
                raise LaunchError(
                    f"no first node at --rdzv-endpoint {endpoint[0]}:{endpoint[1]} within {timeout:g} s: {error}"
                ) from None
            time.sleep(_RETRY_S)
            continue
        connection.settimeout(None)
        tcp_keepalive.enable(connection, peer_reads=False)
        return connection
