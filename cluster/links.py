"""What boxes ask of the commands `ip` and `tc`, and how fast the link of a host is."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MTU = 9000  # as clusters set it
DEADLINE_S = 30.0


class BoxError(RuntimeError):
    """What is asked of a box cannot be done; the message says what to do."""


def run(command: str | list[str], check: bool = True) -> str:
    """What a command says. Without `check` it may fail."""
    words = command.split() if isinstance(command, str) else command
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise BoxError(f"{shlex.join(words)} did not end within {DEADLINE_S:.0f} s") from None
    if check and done.returncode:
        raise BoxError(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout


def check(rate: str | None, delay: str | None) -> None:
    """Refuse what `Link.shape` does not take."""
    if rate:
        _burst(rate)
    if delay and not re.fullmatch(r"\d+(\.\d+)?(us|ms|s)", delay):
        raise BoxError(f"delay {delay!r} must be a number with us, ms or s, such as 1ms")


@dataclass(frozen=True)
class Link:
    """The link of a host: eth0 in its `namespace`, whose other end is the port `port` of `bridge`.

    waiting: the name of the device that holds its frames where it has a delay and the kernel has no sch_netem.
    """

    namespace: str
    port: str
    bridge: str
    waiting: str

    def shape(self, rate: str | None, delay: str | None) -> None:
        """Limit what the host sends, and delay it; None: no limit, no delay."""
        check(rate, delay)
        replace = f"tc -n {self.namespace} qdisc replace dev eth0 root"
        self._undelay()
        if delay:
            try:
                run(f"{replace} netem delay {delay}" + (f" rate {rate}" if rate else ""))
                return
            except BoxError:  # most likely there is no sch_netem
                self._delay(delay)
        if rate:
            run(f"{replace} tbf rate {rate} burst {_burst(rate)} latency 50ms")
        elif self._said("rate"):
            run(f"tc -n {self.namespace} qdisc del dev eth0 root")

    def shown(self) -> tuple[str | None, str | None]:
        """The rate and the delay of the link, as the kernel says."""
        waiting = Path("/sys/class/net", self.waiting, "ifalias")
        if waiting.exists():
            return self._said("rate"), waiting.read_text().strip()
        if shutil.which("tc") and self._redirected():
            return self._said(
                "rate"
            ), "lost with the process that made it, and nothing passes: `heal` mends it"
        return self._said("rate"), self._said("delay")

    def _redirected(self) -> bool:
        return " ingress " in run(f"tc qdisc show dev {self.port}")

    def _said(self, word: str) -> str | None:
        if shutil.which("tc") is None:  # so none was set
            return None
        found = re.search(rf"\b{word} (\S+)", run(f"tc -n {self.namespace} qdisc show dev eth0"))
        return found and found[1]

    def _delay(self, delay: str) -> None:
        """Let what comes out of the host wait in a process before the bridge sees it."""
        number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", delay).groups()  # pyright: ignore[reportOptionalMemberAccess]
        seconds = float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
        program = Path(__file__).with_name("delaying.py")
        try:
            run([sys.executable, "-S", str(program), self.waiting, str(seconds)])
        except BoxError as error:
            raise BoxError(f"{error}. A delay needs the kernel's sch_netem, or TAP devices") from None
        # The bridge must not look for the host behind this port, where frames only come from.
        silent = "type bridge_slave learning off flood off mcast_flood off bcast_flood off"
        [eth0] = json.loads(run(f"ip -n {self.namespace} -json link show dev eth0"))
        run(f"ip link set {self.waiting} alias {delay} mtu {MTU} txqueuelen 20000 master {self.bridge} up")
        run(f"ip link set {self.waiting} {silent}")
        run(f"bridge fdb replace {eth0['address']} dev {self.port} master static")
        run(f"tc qdisc add dev {self.port} ingress")
        everything = f"tc filter add dev {self.port} parent ffff: protocol all u32 match u32 0 0"
        run(f"{everything} action mirred egress redirect dev {self.waiting}")

    def _undelay(self) -> None:
        if self._redirected():
            run(f"tc qdisc del dev {self.port} ingress", check=False)
            run(f"ip link del {self.waiting}", check=False)
        elif self._said("delay"):
            run(f"tc -n {self.namespace} qdisc del dev eth0 root")


def _burst(rate: str) -> int:
    """Bytes that may pass at once, of 2 ms: a bucket must not fit in, or links would seem faster than they are."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate.lower())
    if found is None or float(found[1]) == 0:
        raise BoxError(f"link {rate!r} must be a number with kbit, mbit or gbit, such as 200mbit")
    return max(4 * MTU, int(float(found[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[found[2]] / 8 * 2e-3))
