"""Policies on top of the collectives, under the names that PyTorch gives them."""

from ...core.face import serve

serve(__name__)
