"""Hosts on one machine: network namespaces joined by a bridge, and MPICH's mpiexec across them. Needs root.

    with hosts(2, rate="1gbit") as run:
        ended = run(1, [sys.executable, "train.py"])     # one process on each host

`rate` limits what each host sends, as `tc` writes it. Everything is removed at the end.
"""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# mpiexec calls it as it would call ssh: [options] HOST COMMAND...
_ENTER = """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
exec ip netns exec {prefix}${{host##*.}} sh -c "$*"
"""

_MTU = 9000  # as clusters set it

# By itself MPICH sees through the namespaces that it is one machine, and goes past the network.
NETWORK_VARIABLES = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPIR_CVAR_CH4_NETMOD": "ofi",
              "FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self"}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """The hosts, by address; called, it runs a command in `procs` processes on each of them."""

    addresses: Sequence[str]
    bridge: str
    """The address of this host as they see it."""
    enter: Path
    """Runs a command on one of them, in place of ssh."""
    timeout: float
    token: str
    """What tells the names of these hosts from those of others."""

    @property
    def variables(self) -> dict[str, str]:
        """What mpiexec needs in its environment to reach the hosts, and to use the network between them."""
        return {**NETWORK_VARIABLES, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self.enter)}

    def __call__(self, procs: int, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        places = ",".join(f"{address}:{procs}" for address in self.addresses)
        count = str(len(self.addresses) * procs)
        words = [_mpiexec(), "-localhost", self.bridge, "-hosts", places, "-n", count, *command]
        return subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=self.timeout,
            env={**os.environ, **self.variables},
        )  # fmt: skip

    def namespace(self, address: str) -> str:
        """The network namespace that is the host with this address."""
        return f"ddpg{self.token}-{address.rpartition('.')[2]}"

    def reset(self, address: str) -> None:
        """Let a host be as if it had been reset: all processes and their shared memory are gone, without a word."""
        pids = [int(pid) for pid in _sh(f"ip netns pids {self.namespace(address)}").split()]
        memory = {path for pid in pids for path in re.findall(r"/dev/shm/\S+", _maps(pid))}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for path in memory:
            Path(path).unlink(missing_ok=True)

    def switch_off(self, address: str) -> None:
        """Let a host be as if it had been switched off: nothing comes from it any more, not even the end of a connection."""
        _sh(f"ip link set dv{self.token}{address.rpartition('.')[2]} down")


def _sh(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def _maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(errors="replace")


def _burst(rate: str) -> int:
    """Bytes that may pass at once, of 2 ms: a bucket must not fit in, or links would seem faster than they are."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    if found is None:
        raise ValueError(f"rate {rate!r} must be a number with kbit, mbit or gbit, such as 200mbit")
    return max(4 * _MTU, int(float(found[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[found[2]] / 8 * 2e-3))


def why_not(rate: str | None = None) -> str | None:
    """What is missing here for `hosts`; None if nothing is."""
    if os.geteuid() != 0:
        return "needs root"
    for command in ("ip", "tc") if rate else ("ip",):
        if shutil.which(command) is None:
            return f"needs the command {command} (Debian: iproute2)"
    mpiexec = _mpiexec()
    if not mpiexec.exists():
        return f"needs MPICH beside this Python ({mpiexec} is not there): pip install mpich"
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    if "HYDRA" not in version:
        return "needs MPICH's mpiexec beside this Python: pip install mpich"
    probe = f"ddpg-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=30)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    _sh(f"ip netns del {probe}")
    return None


def _mpiexec() -> Path:
    return Path(sys.executable).parent / "mpiexec"


@contextmanager
def hosts(count: int, rate: str | None = None, timeout: float = 180) -> Iterator[Run]:
    """`run(procs, command)` starts `command` in so many processes on each of `count` hosts."""
    token = secrets.token_hex(2)
    bridge, prefix, net = f"ddpb{token}", f"ddpg{token}-", f"10.{int(token[:2], 16)}.{int(token[2:], 16)}"
    numbers = range(2, 2 + count)
    with tempfile.TemporaryDirectory() as folder:
        enter = Path(folder) / "enter"
        enter.write_text(_ENTER.format(prefix=prefix))
        enter.chmod(0o755)

        run = Run([f"{net}.{number}" for number in numbers], f"{net}.1", enter, timeout, token)
        try:
            _sh(f"ip link add {bridge} type bridge")
            _sh(f"ip addr add {net}.1/24 dev {bridge} && ip link set {bridge} mtu {_MTU} up")
            for number in numbers:
                name, link = f"{prefix}{number}", f"dv{token}{number}"
                _sh(f"ip netns add {name} && ip link add {link} type veth peer name eth0 netns {name}")
                _sh(
                    f"ip link set {link} mtu {_MTU} master {bridge} up && ip -n {name} link set eth0 mtu {_MTU}"
                )
                _sh(f"ip -n {name} addr add {net}.{number}/24 dev eth0 && ip -n {name} link set eth0 up")
                _sh(f"ip -n {name} link set lo up")
                if rate:
                    _sh(
                        f"tc -n {name} qdisc add dev eth0 root tbf rate {rate} burst {_burst(rate)} latency 50ms"
                    )
            yield run
        finally:
            for number in numbers:
                subprocess.run(["ip", "netns", "del", f"{prefix}{number}"], capture_output=True, timeout=30)
            subprocess.run(["ip", "link", "del", bridge], capture_output=True, timeout=30)
