"""Traces of runs: each process records what its ranks do; the files are put together afterwards."""

from ...core.face import serve

serve(__name__)
