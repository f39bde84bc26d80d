"""What the kernel is asked to see to on a connection between hosts: that the loss of either is noticed.

A host that is switched off or cut off closes no connection. Imports nothing of ddpgrad; see agent.py.
"""

from __future__ import annotations

import os
import socket

_IDLE_S = 5
_INTERVAL_S = 2
_PROBES = 5
# They take 0.2 s, 0.4 s, ..., 6.4 s where the network is fast.
_RETRANSMISSIONS = 6


def probe(connection: socket.socket, *, answers: bool) -> None:
    """Let `connection` fail with OSError some 15 s after the last sign of life of the other host.

    answers: whether the other side always reads what it is sent. Otherwise nothing fails as long as data
    is on its way: that may be because the other side does not read. `unheard` can tell.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    if answers:
        longest = 1000 * (_IDLE_S + _INTERVAL_S * _PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, longest)


def unheard(fd: int) -> bool:
    """Whether the other host has let some 13 s pass without a sign that it got what this one sends."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        # The third byte of the kernel's `struct tcp_info` is how often it has sent the same in vain.
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)[2] >= _RETRANSMISSIONS
