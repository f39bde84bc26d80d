"""What every rank did when: recorded in each process, put together afterwards."""

from ...core.face import serve

serve(__name__)
