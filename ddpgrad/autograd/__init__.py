"""Automatic differentiation: the graph, the engine that walks it, and their public functions."""

from ..core.face import serve

serve(__name__)
