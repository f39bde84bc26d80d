"""A link with a delay, where the kernel has no sch_netem: a process that holds the frames of a host for some time.

    python cluster/delaying.py NAME SECONDS

It makes the TAP device NAME. What is sent to that it gives back to the kernel after the time, as if it had come in there. So
where NAME is a port of a bridge, and the frames of a host are redirected to NAME before the bridge sees them, they
reach the bridge late. Both live equally long: the device goes with the process, and the process ends when the device is deleted.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

# From linux/if_tun.h.
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_LARGEST = 1 << 16
_MOST_AT_ONCE = 64  # frames taken in before those that are due go out
_MOST_HELD = 256 << 20  # bytes: more than 25 Gbit/s send in 80 ms


def make(name: str) -> int:
    """A TAP device of this name, which lives as long as the descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


def forward(device: int, seconds: float) -> None:
    """Give each frame back `seconds` after it was sent to the device, in order, until the device is deleted."""
    held: deque[tuple[float, bytes]] = deque()
    nbytes = 0
    poll = select.poll()
    poll.register(device, select.POLLIN)
    while True:
        # select takes fractions of a millisecond, which poll does not.
        pause = max(0.0, held[0][0] - time.monotonic()) if held else None
        select.select([device], [], [], pause)
        if any(state & (select.POLLERR | select.POLLNVAL) for _, state in poll.poll(0)):
            return
        for _ in range(_MOST_AT_ONCE):
            try:
                frame = os.read(device, _LARGEST)
            except BlockingIOError:
                break
            except OSError:  # deleted
                return
            if nbytes + len(frame) <= _MOST_HELD:  # else it is lost, as in any full queue
                held.append((time.monotonic() + seconds, frame))
                nbytes += len(frame)
        now = time.monotonic()
        while held and held[0][0] <= now:
            frame = held.popleft()[1]
            nbytes -= len(frame)
            try:
                os.write(device, frame)
            except OSError:  # the device is down: its frames are lost, as in a cut cable
                continue


def main() -> None:
    try:
        device = make(sys.argv[1])
    except OSError as error:
        sys.exit(f"/dev/net/tun: {error}")
    if os.fork():
        return  # the device is there
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # nobody is to wait for their end
        os.dup2(nothing, descriptor)
    forward(device, float(sys.argv[2]))


if __name__ == "__main__":
    main()
