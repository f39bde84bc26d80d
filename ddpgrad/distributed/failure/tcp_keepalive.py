"""TCP keepalive: the kernel notices that the other host of a connection is lost.

A host that is switched off or cut off closes no connection. This module imports the standard library only, as the
launcher's agents (`launcher/job/agent.py`) must stay small.
"""

from __future__ import annotations

import os
import socket

_IDLE_S = 5
_INTERVAL_S = 2
_PROBES = 5
# They take 0.2 s, 0.4 s, ..., 6.4 s where the network is fast.
_RETRANSMISSIONS = 6


def enable(connection: socket.socket, *, peer_reads: bool) -> None:
    """Let `connection` fail with OSError about 15 s after the other host stops answering.

    peer_reads: whether the other side always reads promptly. Otherwise the connection does not fail while
    data is on its way, since the other side may just not read; `unanswered` can tell.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    if peer_reads:
        longest = 1000 * (_IDLE_S + _INTERVAL_S * _PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, longest)


def unanswered(fd: int) -> bool:
    """Whether the other host has not acknowledged sent data for about 13 s."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        # The third byte of the kernel's `struct tcp_info` counts retransmissions without an answer.
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)[2] >= _RETRANSMISSIONS
