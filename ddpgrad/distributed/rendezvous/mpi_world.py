"""Ranks of several hosts, which no mpiexec started, begin MPI together.

Rank 0 starts their process manager (`process_manager`), and tells the others in the store where it is. The MPI
library of each rank gets a connection to it by PMI_FD, as from mpiexec: so MPICH does, and libraries made of it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from ...core import environment
from ...core.errors import TransportError
from .. import mpi_shared_memory
from ..failure import tcp_keepalive
from ..store import Store
from ..transports.mpi import library
from ..transports.mpi.roll_call import Lost
from .gathering import Roster, hosts_of
from .place import Place
from .process_manager import Task

_KEY = "process manager"
# How long a rank may go on after another was lost: time for its report.
_GRACE_S = 20.0
_CONNECT_S = 5.0

_begun = ""


def begin(place: Place, roster: Roster, store: Store, until: float) -> None:
    """Make the ranks of `roster` one MPI world. Collective. Raises TransportError if this MPI library cannot do it.

    MPI begins once in a process: the same processes may meet again, and others may not.
    """
    global _begun
    if _begun:
        if _begun != roster.who:
            raise TransportError(
                f"rank {place.rank} has begun MPI with other processes before, and MPI begins once in a process: "
                "start a new process for each world of several hosts"
            )
        return
    if "mpi4py.MPI" in sys.modules:
        raise TransportError(
            f"the ranks run on {roster.hosts} hosts, and MPI had begun in rank {place.rank} before it met the "
            "others: call init_process_group before importing mpi4py.MPI"
        )
    if place.rank == 0:
        store.set(f"{_KEY} {roster.token}", json.dumps(_start(place, roster, until)))
    store.wait([f"{_KEY} {roster.token}"])
    told = json.loads(store.get(f"{_KEY} {roster.token}"))
    news = _connect(place, told, "news", until)
    tcp_keepalive.enable(news, peer_reads=True)
    lines = news.makefile("r")
    connection = _connect(place, told, "mpi", until)
    # MPI itself would wait for ever for a rank that does not come.
    if not lines.readline():
        raise TransportError(f"rank {place.rank}: another rank ended, or did not come, before MPI began")
    with environment.as_process_manager(connection.detach(), place.rank, place.world_size):
        world = library.library().COMM_WORLD
    if world.Get_size() != place.world_size:
        raise TransportError(_other_library(place, roster))
    _begun = roster.who
    if place.rank == 0:  # all have read it, else MPI had not begun
        store.delete_key(f"{_KEY} {roster.token}")
    threading.Thread(
        target=_listen, args=(lines, place.rank), name="ddpgrad news of ranks", daemon=True
    ).start()


def _start(place: Place, roster: Roster, until: float) -> dict[str, Any]:
    """Start the process manager; where it is, and its secret."""
    near = place.near
    secret = secrets.token_hex(16)
    patience = min(until - time.monotonic() + _GRACE_S, 1e6)
    task = Task(place.world_size, secret, _mapping(roster), near, patience)
    # In a session of its own: Ctrl-C is for the ranks, which need it until they have left MPI.
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "ddpgrad.distributed.rendezvous.process_manager"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=_its_environment(),
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
    child.stdin.close()
    port = child.stdout.readline()
    child.stdout.close()
    if not port:
        raise TransportError("the process manager of the ranks could not start; its message is above")
    # It outlives this process by a moment, and nobody waits for it.
    child.returncode = 0
    hosts = ["127.0.0.1"] if near else _addresses(place)
    return {"hosts": hosts, "port": int(port), "secret": secret}


def _its_environment() -> dict[str, str]:
    # It finds this package where this process did, and needs no other.
    return environment.child_environment(PYTHONPATH=str(Path(__file__).parents[3]))


def _addresses(place: Place) -> list[str]:
    """Where other hosts may reach this one: by the name that all were given, or by its own."""
    found = [place.tcp[0]] if place.tcp is not None else []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; which address a packet to elsewhere would have
        found.append(probe.getsockname()[0])
    return list(dict.fromkeys([*found, socket.gethostname(), socket.getfqdn()]))


def _mapping(roster: Roster) -> str:
    """Which ranks share a host, as MPICH writes it: blocks of (first host, hosts, ranks on each)."""
    hosts = hosts_of(roster.everyone).values()
    host_of = {entry.rank: host for host, entries in enumerate(hosts) for entry in entries}
    runs = [
        (host, len(list(ranks))) for host, ranks in itertools.groupby(host_of[r] for r in sorted(host_of))
    ]
    blocks: list[tuple[int, int, int]] = []
    for host, count in runs:
        if blocks and blocks[-1][0] + blocks[-1][1] == host and blocks[-1][2] == count:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + 1, count)
        else:
            blocks.append((host, 1, count))
    return f"(vector,{','.join(f'({first},{many},{count})' for first, many, count in blocks)})"


def _connect(place: Place, told: dict[str, Any], kind: str, until: float) -> socket.socket:
    while True:
        for host in told["hosts"] if place.rank != 0 else ["127.0.0.1"]:
            try:
                connection = socket.create_connection((host, told["port"]), timeout=_CONNECT_S)
            except OSError:
                continue  # a name that only other hosts know
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(f"{told['secret']} {kind} {place.rank}\n".encode())
            return connection
        if time.monotonic() > until:
            raise TransportError(
                f"rank {place.rank} cannot reach rank 0's host for MPI: tried port {told['port']} of "
                f"{', '.join(told['hosts'])}. Ports between the hosts of a job must be open."
            )
        time.sleep(0.1)


def _other_library(place: Place, roster: Roster) -> str:
    version = library.library().Get_library_version().splitlines()[0]
    hosts = hosts_of(roster.everyone).values()  # which rank 0 knows
    slots = ",".join(f"{entries[0].host}:{len(entries)}" for entries in hosts) or "HOST:RANKS,..."
    script = sys.argv[0] or "script.py"
    return (
        f"the {place.world_size} ranks run on {roster.hosts} hosts, and MPI joins processes that no mpiexec started only "
        f"if it is MPICH or made of it; here mpi4py has loaded {version}. Install MPICH (`pip install "
        f'"ddpgrad[mpich]"`), or start the job once, with `ddprun -n {place.world_size} --hosts {slots} {script}`; '
        f"with MPICH also `ddprun --nnodes {roster.hosts} -n {len(roster.here)} --rdzv-endpoint HOST:PORT {script}` on each host."
    )


def _listen(lines: TextIO, rank: int) -> None:
    """Hear of ranks that ended without leaving MPI; then this process ends, too, as mpiexec would see to."""
    with contextlib.suppress(OSError):
        for line in lines:
            told = json.loads(line)
            if told["rank"] != rank:
                _count_down(rank, told["rank"], told["how"])
    _count_down(rank, 0, "is lost, or its host: their process manager is gone")


def _count_down(rank: int, who: int, how: str) -> None:
    if not Lost.how:
        timer = threading.Timer(_GRACE_S, _end, (rank, who, how))
        timer.daemon = True
        timer.start()
    Lost.how.setdefault(who, how)


def _end(rank: int, who: int, how: str) -> None:
    stream = sys.__stderr__ or sys.stderr
    stream.write(f"ddpgrad: rank {rank} is ended: rank {who} {how}, {_GRACE_S:.0f} s ago\n")
    stream.flush()
    mpi_shared_memory.remove_mapped()
    os.kill(os.getpid(), signal.SIGKILL)
