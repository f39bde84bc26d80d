"""What every rank did when: recorded in each process, put together afterwards."""

from .recorder import recording as recording, start as start, stop as stop
