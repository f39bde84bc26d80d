"""Indexing: ops that read and write elements by position."""
