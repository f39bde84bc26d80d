"""The hosts of a job: parses --hosts and --hostfile, and assigns processes to hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from ddpgrad.core.errors import LaunchError


@dataclass(frozen=True)
class Host:
    """A host, and its slots: the number of processes that it may run."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse(text: str) -> tuple[Host, ...]:
    """The hosts of `--hosts A:4,B:4`; one without a number has one slot, one that comes twice has the sum."""
    try:
        return _merged(_host(entry) for entry in text.split(","))
    except ValueError:
        raise LaunchError(f"--hosts takes HOST:PROCESSES,..., got {text!r}") from None


def read(file: str, option: str = "--hostfile") -> tuple[Host, ...]:
    """The hosts of a file with a line for each: `A:4`, as MPICH writes it, or `A slots=4`, as Open MPI does.

    option: what named the file, for errors.
    """
    if not Path(file).is_file():
        raise LaunchError(f"{option} {file}: there is no such file")
    hosts = []
    for number, line in enumerate(Path(file).read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            hosts.append(_host(":".join(words).replace(":slots=", ":")))
        except ValueError:
            raise LaunchError(
                f"{option} {file}, line {number}: give HOST, HOST:PROCESSES or HOST slots=PROCESSES, got {line.strip()!r}"
            ) from None
    if not hosts:
        raise LaunchError(f"{option} {file} names no host")
    return _merged(hosts)


def _host(entry: str) -> Host:
    name, colon, count = entry.partition(":")
    slots = int(count) if colon else 1
    if not name or slots < 1:
        raise ValueError(entry)
    return Host(name, slots)


def _merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """`hosts` with each name once, where it stands first."""
    found: dict[str, int] = {}
    for host in hosts:
        found[host.name] = found.get(host.name, 0) + host.slots
    return tuple(starmap(Host, found.items()))


def slots(hosts: Iterable[Host]) -> int:
    """The slots of all `hosts` together."""
    return sum(host.slots for host in hosts)


def spelt(hosts: Iterable[Host]) -> str:
    """`hosts` as `--hosts` takes them."""
    return ",".join(map(str, hosts))


def deal(hosts: Sequence[Host], procs: int) -> list[tuple[Host, range]]:
    """The processes of each host. The first host is filled first, then the second; hosts without a process are left out."""
    dealt: list[tuple[Host, range]] = []
    begin = 0
    for host in hosts:
        end = min(begin + host.slots, procs)
        if begin < end:
            dealt.append((host, range(begin, end)))
        begin = end
    return dealt
