"""Utilities: data loading, and activation checkpointing."""

from ..core.face import serve

serve(__name__)
