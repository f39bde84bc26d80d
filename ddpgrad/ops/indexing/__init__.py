"""Ops that read and write elements by their place."""
