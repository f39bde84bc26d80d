"""Transforms: invertible functions with the logarithm of their Jacobian determinant."""

from ....core.face import serve

serve(__name__)
