"""The version of this package, and of the PyTorch whose vocabulary it speaks."""

from __future__ import annotations

__version__ = "0.1.0"
vocabulary = "2.13.0"
"""The release of PyTorch that names, signatures and numbers are taken from."""

cuda: str | None = None
hip: str | None = None
debug = False
git_version = "unknown"
