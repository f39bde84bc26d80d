"""Probability distributions: draws, densities, entropies and divergences, batched and differentiable."""

from ...core.face import serve

serve(__name__)
