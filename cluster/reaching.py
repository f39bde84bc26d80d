"""How the hosts of a box are reached: their names, and a program in place of ssh, or ssh with a key and an sshd's settings."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

# Follows `ip netns exec NAMESPACE`; takes the host's name and a command.
AS_HOST = ("unshare", "--uts", "--", "sh", "-c", 'hostname "$0" && exec "$@"')

_ENTER = """#!/bin/sh
# In place of ssh: [options] HOST [COMMAND...], on a host of the box {box}.
while getopts 46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w: _; do :; done
shift $((OPTIND - 1))
host=${{1#*@}}
case $host in
{cases}
*) echo "ssh: the box {box} has no host '$host'" >&2; exit 255 ;;
esac
shift
[ $# -gt 0 ] || set -- "${{SHELL:-/bin/sh}}"
exec ip netns exec "{box}-$name" {as_host} "$name" sh -c "$*"
"""
_SSHD = """Port 22
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
AuthenticationMethods publickey
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
SetEnv {variables}
"""
_SSH = """Host *
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  ConnectionAttempts 5
  LogLevel ERROR
"""


def write_names(file: Path, addresses: Mapping[str, str]) -> None:
    """What a host has in place of /etc/hosts."""
    file.parent.mkdir(parents=True)
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    file.write_text("\n".join(lines) + "\n")


def write_program(file: Path, box: str, addresses: Mapping[str, str]) -> None:
    """A program that is called as ssh is, and enters the namespace of a host."""
    cases = "\n".join(f"{name} | {address}) name={name} ;;" for name, address in addresses.items())
    _write(file, _ENTER.format(box=box, cases=cases, as_host=shlex.join(AS_HOST)))


def write_ssh(file: Path, addresses: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """The same by OpenSSH, and beside it the settings of ssh and of the hosts' sshd.

    One key is for all: the hosts trust each other, as those of a cluster do. `variables` are what sessions begin with.
    """
    folder = file.parent
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True, timeout=30
    )
    (folder / "known_hosts").write_text(f"* {(folder / 'key.pub').read_text()}")
    places = "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
    (folder / "ssh_config").write_text(places + _SSH.format(folder=folder))
    passed = " ".join(
        f'"{name}={value}"' for name, value in {"PATH": os.environ["PATH"], **variables}.items()
    )
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder, variables=passed))
    _write(file, f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
