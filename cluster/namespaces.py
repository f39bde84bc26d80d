"""Hosts on one machine, a *box*: network namespaces joined by a bridge. Needs root.

    with hosts(2, rate="1gbit") as box:
        ended = box(1, [sys.executable, "train.py"])     # one process on each host, by MPICH's mpiexec

`python -m cluster.box` makes boxes that outlive the command. Both are `make` and `Box.remove`, and both write what they are
about to make to /run/ddpgrad-box/NAME/box.json first, so that a box can be removed whatever happened to who made it.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path

import links
import reaching
from links import DEADLINE_S, MTU, BoxError, run

BOXES = Path("/run/ddpgrad-box")
_NETWORK = ip_network("198.18.0.0/15")  # RFC 2544: for tests of networks, in use nowhere else
_ETC = Path(
    "/etc/netns"
)  # `ip netns exec` puts the files in its folder for a namespace in place of those in /etc

# By itself MPICH sees through the namespaces that it is one machine, and goes past the network.
NETWORK_VARIABLES = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPIR_CVAR_CH4_NETMOD": "ofi",
              "FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self"}  # fmt: skip


@dataclass(frozen=True)
class Box:
    """The hosts, which are named host1, host2 ...; called, it runs a command in `procs` processes on each of them.

    A host is given by its name or its address. What they share are processors, memory, files, /dev/shm and process numbers.
    """

    name: str
    number: int
    """Tells its network and its links from those of other boxes."""
    count: int
    link: str | None = None
    """What each host may send, as `tc` writes it: 200mbit, 1gbit."""
    delay: str | None = None
    """How long a packet is on its way from a host: 1ms."""
    sshd: str | None = None
    """The OpenSSH server that each host runs, if any."""
    timeout: float = 180
    """Of a call, in seconds."""

    @property
    def folder(self) -> Path:
        return _folder(self.name)

    @property
    def enter(self) -> Path:
        """Called as ssh is, runs a command on one of the hosts: with their sshd by ssh itself."""
        return self.folder / "ssh"

    @property
    def bridge(self) -> str:
        """The address of this machine as the hosts see it."""
        return f"{self._net}.254"

    @cached_property
    def places(self) -> dict[str, str]:
        """The addresses of the hosts, by name."""
        return {f"host{k}": f"{self._net}.{k}" for k in range(1, self.count + 1)}

    @property
    def addresses(self) -> list[str]:
        return list(self.places.values())

    @property
    def variables(self) -> dict[str, str]:
        """What mpiexec needs in its environment to reach the hosts, and to use the network between them."""
        # Of MPICH's mpiexec, and of Open MPI's.
        ssh = {
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(self.enter),
            "PRTE_MCA_plm_ssh_agent": str(self.enter),
        }
        return {**NETWORK_VARIABLES, **ssh}

    def __call__(self, procs: int, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        places = ",".join(f"{address}:{procs}" for address in self.addresses)
        words = [_mpiexec(), "-localhost", self.bridge, "-hosts", places, "-n", self.count * procs, *command]
        return subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=self.timeout,
            env={**os.environ, **self.variables},
        )  # fmt: skip

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a host. It wants `variables` in its environment where it starts mpiexec."""
        return ["ip", "netns", "exec", self.namespace(host), *reaching.AS_HOST, self._name(host), *command]

    def namespace(self, host: str) -> str:
        """The network namespace that is this host."""
        return f"{self.name}-{self._name(host)}"

    def processes(self, host: str) -> list[int]:
        """The numbers of the processes that run on a host, its sshd included."""
        namespace = self.namespace(host)
        return [int(pid) for pid in run(f"ip netns pids {namespace}").split()] if _exists(namespace) else []

    def kill(self, host: str) -> None:
        """Let a host be as if it had been reset: all processes and their shared memory are gone, without a word."""
        self._end_processes(host)
        self._start_sshd(host)

    def cut(self, host: str) -> None:
        """Let a host be as if it had been switched off: nothing comes from it any more, not even the end of a connection."""
        run(f"ip link set {self._link(host)} down")

    def heal(self, host: str) -> None:
        """Let the link of a host be as it was at the beginning."""
        run(f"ip link set {self._link(host)} up")
        self.slow(host, self.link, self.delay)
        # Who asked for an address in vain would say "no route to host" once more.
        run(f"ip neigh flush dev {self._bridge}")
        for each in self.places:
            run(f"ip -n {self.namespace(each)} neigh flush dev eth0")

    def slow(self, host: str, link: str | None, delay: str | None) -> None:
        """Limit what a host sends, and delay it; None: no limit, no delay."""
        self._shaped(host).shape(link, delay)

    def state(self, host: str) -> tuple[bool, str | None, str | None]:
        """Whether a host's link is up, its rate and its delay, as the kernel says."""
        flags = int(Path(f"/sys/class/net/{self._link(host)}/flags").read_text(), 16)
        return bool(flags & 1), *self._shaped(host).shown()

    def remove(self) -> None:
        """Remove all of it, also what is there of a box that was half made, with the processes that it holds."""
        for host in self.places:
            self._end_processes(host)
        for host in self.places:
            # By itself the link goes some time after the namespace.
            run(f"ip link del {self._shaped(host).waiting}", check=False)
            run(f"ip link del {self._link(host)}", check=False)
            run(f"ip netns del {self.namespace(host)}", check=False)
            shutil.rmtree(_ETC / self.namespace(host), ignore_errors=True)
        with suppress(OSError):  # there are others
            _ETC.rmdir()
        run(f"ip link del {self._bridge}", check=False)
        if left := self._there():
            raise BoxError(f"box {self.name!r}: {', '.join(left)} could not be removed; try `down` again")
        shutil.rmtree(self.folder)

    @property
    def _net(self) -> str:
        return str(_NETWORK[self.number * 256]).rpartition(".")[0]

    @property
    def _bridge(self) -> str:
        return f"ddpb{self.number}"

    def _link(self, host: str) -> str:
        """The bridge's end of a host's link; names of links have 15 letters at most."""
        return f"{self._bridge}h{self._name(host).removeprefix('host')}"

    def _shaped(self, host: str) -> links.Link:
        port = self._link(host)
        return links.Link(self.namespace(host), port, self._bridge, f"{port}w")

    def _name(self, host: str) -> str:
        for name, address in self.places.items():
            if host in (name, address):
                return name
        known = ", ".join(f"{name} ({address})" for name, address in self.places.items())
        raise BoxError(f"box {self.name!r} has no host {host!r}; it has {known}")

    def _there(self) -> list[str]:
        """What there is of its links and namespaces."""
        ports = list(map(self._link, self.places))
        names = [self._bridge, *ports, *(f"{port}w" for port in ports)]
        found = [f"link {name}" for name in names if Path("/sys/class/net", name).exists()]
        return found + [f"namespace {name}" for name in map(self.namespace, self.places) if _exists(name)]

    def _make(self) -> None:
        if self.sshd:
            reaching.write_ssh(self.enter, self.places, self.variables)
        else:
            reaching.write_program(self.enter, self.name, self.places)
        # An address of its own: else it would be that of one of its ports, and change as these come and go.
        address = f"02:dd:{self.number.to_bytes(4, 'big').hex(':')}"
        run(f"ip link add {self._bridge} address {address} type bridge")
        run(f"ip addr add {self.bridge}/24 dev {self._bridge}")
        run(f"ip link set {self._bridge} mtu {MTU} up")
        for host, address in self.places.items():
            namespace, link = self.namespace(host), self._link(host)
            reaching.write_names(_ETC / namespace / "hosts", self.places)
            run(f"ip netns add {namespace}")
            run(f"ip link add {link} type veth peer name eth0 netns {namespace}")
            run(f"ip link set {link} mtu {MTU} master {self._bridge} up")
            run(f"ip -n {namespace} link set eth0 mtu {MTU}")
            run(f"ip -n {namespace} addr add {address}/24 dev eth0")
            run(f"ip -n {namespace} link set eth0 up")
            run(f"ip -n {namespace} link set lo up")
            if self.link or self.delay:
                self.slow(host, self.link, self.delay)
            self._start_sshd(host)

    def _start_sshd(self, host: str) -> None:
        if self.sshd:
            Path("/run/sshd").mkdir(exist_ok=True)  # OpenSSH's, which its service makes
            run(self.inside(host, [self.sshd, "-f", f"{self.folder}/sshd_config"]))

    def _end_processes(self, host: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        memory: set[str] = set()
        while pids := self.processes(host):  # again, as those that die may have started others
            if os.getpid() in pids:
                raise BoxError(f"this runs on {host} of box {self.name!r} itself: leave it first")
            if time.monotonic() > deadline:
                raise BoxError(f"processes {pids} of {host} do not end by SIGKILL; try again when they have")
            memory |= {path for pid in pids for path in re.findall(r"/dev/shm/\S+", _maps(pid))}
            # All stand still before the first dies, or another would tell of it.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.01)
        for path in memory:
            Path(path).unlink(missing_ok=True)


def make(
    name: str, count: int, link: str | None = None, delay: str | None = None, sshd: str | None = None
) -> Box:
    """A new box of `count` hosts. If it cannot be made, nothing of it stays."""
    if not 1 <= count <= 200:
        raise BoxError(f"a box has 1 to 200 hosts, not {count}")
    links.check(link, delay)
    with _lock():
        if _folder(name).exists():
            raise BoxError(
                f"there is a box {name!r} already: `python -m cluster.box down --name {name}` removes it"
            )
        box = Box(name, _free_number(), count, link, delay, sshd)
        if there := box._there():
            raise BoxError(f"{', '.join(there)} is there and no box's: remove it, or give another --name")
        box.folder.mkdir()
        try:
            state = box.folder / "box.json.new"
            state.write_text(json.dumps(asdict(box), indent=1) + "\n")
            state.rename(box.folder / "box.json")
            box._make()
        except BaseException:
            box.remove()
            raise
    return box


def _folder(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}", name):
        raise BoxError(f"the name of a box has up to 40 letters, digits and '-', got {name!r}")
    return BOXES / name


def find(name: str) -> Box | None:
    """The box of this name, if there is one; it may be half made."""
    try:
        return Box(**json.loads((_folder(name) / "box.json").read_text()))
    except FileNotFoundError:
        return None


def all_boxes() -> list[Box]:
    boxes = [find(folder.name) for folder in sorted(BOXES.glob("*/"))]
    return [box for box in boxes if box is not None]


def remove(name: str) -> bool:
    """Remove a box, in whatever state it is. Returns whether there was one."""
    with _lock():
        if box := find(name):
            box.remove()
        elif _folder(name).exists():  # who made it was killed before anything else was made
            shutil.rmtree(_folder(name))
        else:
            return False
    return True


@contextmanager
def hosts(
    count: int, rate: str | None = None, timeout: float = 180, delay: str | None = None
) -> Iterator[Box]:
    """A box for as long as the context lasts; `rate` limits what each host sends, `delay` keeps it, as `tc` writes them."""
    box = make(f"hosts-{os.getpid()}-{secrets.token_hex(2)}", count, rate, delay)
    try:
        yield replace(box, timeout=timeout)
    finally:
        remove(box.name)


def missing(link: str | None = None, delay: str | None = None) -> str | None:
    """What is missing here for a box; None if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    for command, package in (
        ("ip", "iproute2"),
        *([("tc", "iproute2")] if link or delay else []),
        ("unshare", "util-linux"),
        ("hostname", "hostname"),
    ):
        if shutil.which(command) is None:
            return f"needs the command {command} (Debian: {package})"
    probe = f"ddpg-{secrets.token_hex(3)}"
    try:
        run(f"ip netns add {probe}")
    except BoxError as error:
        return f"no network namespaces here: {error}"
    run(f"ip netns del {probe}")
    return None


def why_not(rate: str | None = None) -> str | None:
    """What is missing here for `hosts`, and for calling them; None if nothing is."""
    mpiexec = _mpiexec()
    if not mpiexec.exists():
        return f"needs MPICH beside this Python ({mpiexec} is not there): pip install mpich"
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    if "HYDRA" not in version:
        return "needs MPICH's mpiexec beside this Python: pip install mpich"
    return missing(rate)


@contextmanager
def _lock() -> Iterator[None]:
    """Boxes are made and removed one at a time: each looks for a network that is free."""
    BOXES.mkdir(parents=True, exist_ok=True)
    with (BOXES / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _free_number() -> int:
    words = [line.split()[0] for line in run("ip -4 route").splitlines()]
    routes = [ip_network(word) for word in words if word[0].isdigit()]
    taken = {box.number for box in all_boxes()}
    for number, network in enumerate(_NETWORK.subnets(new_prefix=24)):
        if number not in taken and not any(network.overlaps(route) for route in routes):
            return number
    raise BoxError(f"no network of {_NETWORK} is free here: see `ip route`")


def _mpiexec() -> Path:
    return Path(sys.executable).parent / "mpiexec"


def _exists(namespace: str) -> bool:
    return Path("/run/netns", namespace).exists()


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""
