"""Two hosts on one machine: network namespaces, joined by a bridge, and MPICH between them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_contract import DIGEST, digest_of_one_process

from ddpgrad import environment

pytestmark = pytest.mark.netns
HERE = Path(__file__).parent

# mpiexec calls it as it would call ssh: [options] HOST COMMAND...
_ENTER = """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
exec ip netns exec {prefix}${{host##*.}} sh -c "$*"
"""


def sh(command: str) -> None:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs the command ip (Debian: iproute2)"
    probe = f"ddpg-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=30)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    sh(f"ip netns del {probe}")
    return None


@pytest.fixture(scope="module")
def two_hosts(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., subprocess.CompletedProcess]]:
    """`two_hosts(procs, program, *arguments)` runs it on as many processes of each of two hosts."""
    if reason := _why_not():
        pytest.skip(reason)
    mpiexec = Path(sys.executable).parent / "mpiexec"
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    if "HYDRA" not in version:
        pytest.skip("needs MPICH's mpiexec beside this Python: pip install mpich")
    token = secrets.token_hex(2)
    bridge, prefix, net = f"ddpb{token}", f"ddpg{token}-", f"10.{int(token[:2], 16)}.{int(token[2:], 16)}"
    enter = tmp_path_factory.mktemp("hosts") / "enter"
    enter.write_text(_ENTER.format(prefix=prefix))
    enter.chmod(0o755)
    try:
        sh(
            f"ip link add {bridge} type bridge && ip addr add {net}.1/24 dev {bridge} && ip link set {bridge} up"
        )
        for host in (2, 3):
            name, link = f"{prefix}{host}", f"dv{token}{host}"
            sh(f"ip netns add {name} && ip link add {link} type veth peer name eth0 netns {name}")
            sh(f"ip link set {link} master {bridge} up")
            sh(f"ip -n {name} addr add {net}.{host}/24 dev eth0 && ip -n {name} link set eth0 up")
            sh(f"ip -n {name} link set lo up")

        def run(procs: int, program: str, *arguments: str) -> subprocess.CompletedProcess:
            hosts = ",".join(f"{net}.{host}:{procs}" for host in (2, 3))
            command = [
                mpiexec, "-localhost", f"{net}.1", "-launcher", "ssh", "-launcher-exec", enter, "-hosts", hosts,
                "-n", str(2 * procs), sys.executable, HERE / program, *arguments,
            ]  # fmt: skip
            return subprocess.run(
                [str(word) for word in command], capture_output=True, text=True, timeout=180,
                env=environment.child_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
            )  # fmt: skip

        yield run
    finally:
        for host in (2, 3):
            subprocess.run(["ip", "netns", "del", f"{prefix}{host}"], capture_output=True, timeout=30)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, timeout=30)


@pytest.mark.parametrize(
    "transport", ["auto", "mpi"], ids="by-{}".format
)  # pytest-mpi skips what is called mpi
def test_the_contract_over_two_hosts(two_hosts, transport):
    ended = two_hosts(2, "contract.py", transport)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert set(DIGEST.findall(ended.stdout)) == {digest_of_one_process(4)}
    if transport == "auto":
        assert re.search("taken: hierarchical", ended.stdout), ended.stdout
