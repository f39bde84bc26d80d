"""Automatic mixed precision: `autocast` chooses the dtype of ops, `GradScaler` prevents underflow of gradients."""

from ..core.face import serve

serve(__name__)
