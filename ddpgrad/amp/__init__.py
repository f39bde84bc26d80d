"""Automatic mixed precision: `autocast` chooses the types that ops compute in, `GradScaler` keeps gradients from 0."""

from ..core.face import serve

serve(__name__)
