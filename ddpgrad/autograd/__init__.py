"""Automatic differentiation: the graph, the engine that walks it, and how users talk to both."""

from ..core.face import serve

serve(__name__)
