"""Where PyTorch users look for optimizers of distributed programs."""

from __future__ import annotations

from ..zero import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
