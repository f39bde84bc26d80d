"""What every transport must do, as a program; prints a digest of all results.

    contract.py TRANSPORT|auto [BYTES|0] [HOSTS]

BYTES is taken for the most that a transport hands over at once, so that a test reaches the
limits that otherwise need more than 2^31 elements. The processes are taken to be on HOSTS hosts.
"""

import sys

import collective_contract
import group_contract

import ddpgrad as torch
from ddpgrad.distributed.ranks import host


def check(backend: str | None = None) -> str:
    """Run the whole contract as one rank; returns a digest that is the same on all ranks."""
    if backend == "nccl":
        torch.cuda.set_device(host.current().rank)
    digest = collective_contract.check(host.current().communicator(backend))
    if backend == "nccl":
        torch.set_default_device("cuda")
    group_contract.check(backend)
    return digest


def _limit(size: int) -> None:
    from ddpgrad.distributed.transports import mail
    from ddpgrad.distributed.transports.mpi import mail as mpi_mail
    from ddpgrad.distributed.transports.mpi import transport as mpi
    from ddpgrad.distributed.transports.shm import mailbox, slots
    from ddpgrad.distributed.transports.shm import transport as shm

    mpi._PIECE = mpi_mail._PIECE = shm._SCRATCH_TOTAL = size
    mpi.SMALL = slots.LARGE = mail.EAGER = size // 64
    slots.SMALL = size // 256
    mailbox._CAPACITY = size // 16


def pretend_hosts(count: int) -> None:
    """Let the transports believe that the processes are on `count` hosts, as many on each."""
    from ddpgrad.distributed.transports.mpi import library

    real = library.hosts

    def hosts(launch):
        if launch.group is not None:
            return real(launch)
        here = launch.procs // count
        return [list(range(h * here, (h + 1) * here)) for h in range(count)]

    library.hosts = hosts


if __name__ == "__main__":
    if int(sys.argv[2] if len(sys.argv) > 2 else 0):
        _limit(int(sys.argv[2]))
    if len(sys.argv) > 3:
        pretend_hosts(int(sys.argv[3]))
    backend = None if sys.argv[1] == "auto" else sys.argv[1]
    sys.stdout.write(f"digest {check(backend)} taken: {host.current().communicator(backend).transport}\n")
