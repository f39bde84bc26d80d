"""A cluster in a box: hosts on one machine, to try things on. Needs root.

    python -m cluster.box up                                        three hosts: host1, host2, host3
    python -m cluster.box exec host1 -- ddprun -n 2 --hosts host1:1,host2:1 train.py
    python -m cluster.box exec all -- ddprun --nnodes 3 --rdzv-endpoint host1:29500 train.py
    python -m cluster.box cut host2                                 and heal host2
    python -m cluster.box down

Hosts are network namespaces: each has its name, its address and its link, and all have one file system and one /dev/shm.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock, Thread
from types import FrameType
from typing import NoReturn

sys.path.append(str(Path(__file__).parent))

import namespaces
from namespaces import Box, BoxError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.box",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument(
        "--name",
        default=os.environ.get("CLUSTER_BOX", "box"),
        help="the box, where there are several (default: CLUSTER_BOX of the environment, or box)",
    )
    speed = argparse.ArgumentParser(add_help=False)
    speed.add_argument("--link", metavar="RATE", help="what a host may send: 1Gbit, 50Mbit")
    speed.add_argument("--delay", metavar="TIME", help="how long a packet is on its way: 1ms")
    host = argparse.ArgumentParser(add_help=False)
    host.add_argument("host", metavar="HOST", help="a host's name or its address")

    up = commands.add_parser("up", parents=[named, speed], help="make a box")
    up.add_argument("--hosts", type=int, default=3, metavar="N", help="how many hosts (default 3)")
    usage = "%(prog)s [-h] [--name NAME] HOST|all -- COMMAND..."
    run = commands.add_parser(
        "exec", parents=[named], usage=usage, help="run a command on a host, or on all at once"
    )
    run.add_argument("host", metavar="HOST|all")
    commands.add_parser(
        "cut", parents=[host, named], help="take a host's link away, as if it were switched off"
    )
    commands.add_parser("heal", parents=[host, named], help="let a host's link be as `up` made it")
    commands.add_parser(
        "slow", parents=[host, named, speed], help="give a host's link another rate and delay; none: no limit"
    )
    commands.add_parser(
        "kill", parents=[host, named], help="end all processes of a host at once, as a reset does"
    )
    commands.add_parser("down", parents=[named], help="remove a box, with all that it runs")
    commands.add_parser("status", aliases=["list"], help="show all boxes: hosts, links, processes")
    return parser


def main() -> None:
    # What follows a first `--` is the command of `exec`, with options of its own.
    ours, words = sys.argv[1:], list[str]()
    if "--" in ours:
        at = ours.index("--")
        ours, words = ours[:at], ours[at + 1 :]
    given = _parser().parse_args(ours)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as `| head` expects of any command, those of `exec` too
    # Let a box that is half made be removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        if reason := namespaces.missing(getattr(given, "link", None), getattr(given, "delay", None)):
            how = f': sudo env "PATH=$PATH" python -m cluster.box {given.command}' if os.geteuid() else ""
            raise BoxError(reason + how)
        _carry_out(given, words)
    except BoxError as error:
        sys.exit(f"cluster.box {given.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _carry_out(given: argparse.Namespace, words: list[str]) -> None:
    match given.command:
        case "up":
            _up(given)
        case "exec":
            _exec(_box(given.name), given.host, words)
        case "slow":
            _box(given.name).slow(given.host, given.link, given.delay)
        case "cut" | "heal" | "kill":
            getattr(_box(given.name), given.command)(given.host)
        case "down":
            there = namespaces.remove(given.name)
            print(
                f"box {given.name!r} is removed"
                if there
                else f"there is no box {given.name!r}: nothing to remove"
            )
        case _:
            boxes = namespaces.all_boxes()
            for box in boxes:
                _show(box)
            if not boxes:
                print("there is no box; `python -m cluster.box up` makes one")


def _box(name: str) -> Box:
    if box := namespaces.find(name):
        return box
    others = ", ".join(box.name for box in namespaces.all_boxes())
    raise BoxError(
        f"there is no box {name!r}; `python -m cluster.box up --name {name}` makes it"
        + (f". There are: {others}" if others else "")
    )


def _up(given: argparse.Namespace) -> None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    complete = all(shutil.which(command) for command in ("ssh", "ssh-keygen"))
    sshd = shutil.which("sshd", path=path) if complete else None
    box = namespaces.make(given.name, given.hosts, given.link, given.delay, sshd)
    _show(box)
    name = "" if box.name == os.environ.get("CLUSTER_BOX", "box") else f" --name {box.name}"
    slots = ",".join(f"{host}:1" for host in list(box.places)[:2])
    print(f"\nOn a host:\n  python -m cluster.box exec{name} host1 -- ddprun -n 2 --hosts {slots} train.py")
    exports = " ".join(f"{key}={shlex.quote(value)}" for key, value in box.variables.items())
    print(f"From this machine, which knows the hosts by address:\n  export {exports}")
    how = (
        f"ssh, with {box.folder}/ssh_config"
        if sshd
        else "entering their namespaces, as OpenSSH's sshd is not installed"
    )
    print(f"  ddprun -n 2 --hosts {','.join(f'{a}:1' for a in box.addresses[:2])} train.py")
    print(f"{box.enter} HOST COMMAND reaches hosts by {how}.")


def _show(box: Box) -> None:
    print(f"box {box.name!r} ({box.folder}/box.json)")
    for host, address in box.places.items():
        try:
            up, rate, delay = box.state(host)
        except (BoxError, OSError):
            print(
                f"  {host}  {address}  not there: `python -m cluster.box down --name {box.name}` removes what is"
            )
            continue
        link = f"link {rate or 'without limit'}" + (f", delay {delay}" if delay else "") if up else "cut"
        print(f"  {host}  {address}  {link}  {len(box.processes(host))} processes")


def _exec(box: Box, host: str, command: list[str]) -> NoReturn:
    if not command:
        raise BoxError("give a command: exec HOST -- COMMAND...")
    environment = {**os.environ, **box.variables}
    if host != "all":
        inside = box.inside(host, command)
        sys.stdout.flush()
        os.execvpe(inside[0], inside, environment)
    sys.exit(_exec_all(box, command, environment))


def _exec_all(box: Box, command: list[str], environment: dict[str, str]) -> int:
    """Run a command on all hosts, with their names before its lines. Returns the first exit code that is not 0."""
    running = {
        host: subprocess.Popen(
            box.inside(host, command), env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for host in box.places
    }  # fmt: skip

    def pass_on(number: int, _: FrameType | None) -> None:
        for popen in running.values():
            popen.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, pass_on)
    lock = Lock()
    threads = [Thread(target=_relay, args=(host, popen, lock)) for host, popen in running.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [popen.wait() for popen in running.values()]
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _relay(host: str, popen: subprocess.Popen[bytes], lock: Lock) -> None:
    assert popen.stdout is not None
    for line in popen.stdout:
        with lock:
            sys.stdout.buffer.write(f"[{host}] ".encode() + line.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
