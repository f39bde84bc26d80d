"""What every transport must do, as a program: `contract.py TRANSPORT|auto [BYTES]`; prints a digest of all results.

BYTES is taken for the most that a transport hands over at once, so that a test reaches the
limits that otherwise need more than 2^31 elements.
"""

from __future__ import annotations

import sys

import collective_contract
import group_contract

from ddpgrad.distributed import host


def check(backend: str | None = None) -> str:
    """Run the whole contract as one rank; returns a digest that is the same on all ranks."""
    digest = collective_contract.check(host.current().communicator(backend))
    group_contract.check(backend)
    return digest


def _limit(size: int) -> None:
    from ddpgrad.distributed.transports import mail, mailbox, mpi, mpi_mail, shm

    mpi._PIECE = mpi_mail._PIECE = shm._SCRATCH_TOTAL = size
    mpi._SMALL = shm.SMALL = mail.EAGER = size // 64
    mailbox._CAPACITY = size // 16


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _limit(int(sys.argv[2]))
    sys.stdout.write(f"digest {check(None if sys.argv[1] == 'auto' else sys.argv[1])}\n")
