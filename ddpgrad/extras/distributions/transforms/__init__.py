"""Transforms: invertible functions with the logarithm of the volume that they stretch by."""

from ....core.face import serve

serve(__name__)
