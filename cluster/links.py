"""What boxes ask of the commands `ip` and `tc`, and how fast the link of a host is."""

import re
import shlex
import shutil
import subprocess

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
    """Refuse what `shape` does not take."""
    if rate:
        _burst(rate)
    if delay and not re.fullmatch(r"\d+(\.\d+)?(us|ms|s)", delay):
        raise BoxError(f"delay {delay!r} must be a number with us, ms or s, such as 1ms")


def shape(namespace: str, rate: str | None, delay: str | None) -> None:
    """Limit what the host sends that is this namespace, and delay it; None: no limit, no delay."""
    check(rate, delay)
    replace = f"tc -n {namespace} qdisc replace dev eth0 root"
    if delay:
        try:
            run(f"{replace} netem delay {delay}" + (f" rate {rate}" if rate else ""))
        except BoxError as error:
            raise BoxError(
                f"{error} A delay needs the kernel's sch_netem: `modprobe sch_netem`, or leave --delay out"
            ) from None
    elif rate:
        run(f"{replace} tbf rate {rate} burst {_burst(rate)} latency 50ms")
    elif shown(namespace) != (None, None):
        run(f"tc -n {namespace} qdisc del dev eth0 root")


def shown(namespace: str) -> tuple[str | None, str | None]:
    """The rate and the delay of a host's link, as the kernel says."""
    if shutil.which("tc") is None:  # so none was set
        return None, None
    said = run(f"tc -n {namespace} qdisc show dev eth0")
    rate, delay = (re.search(rf"\b{word} (\S+)", said) for word in ("rate", "delay"))
    return rate and rate[1], delay and delay[1]


def _burst(rate: str) -> int:
    """Bytes that may pass at once, of 2 ms: a bucket must not fit in, or links would seem faster than they are."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate.lower())
    if found is None or float(found[1]) == 0:
        raise BoxError(f"link {rate!r} must be a number with kbit, mbit or gbit, such as 200mbit")
    return max(4 * MTU, int(float(found[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[found[2]] / 8 * 2e-3))
