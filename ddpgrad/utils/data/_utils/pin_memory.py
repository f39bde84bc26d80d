"""`utils.data.pinning`, under the name that PyTorch programs import it by."""

from ..pinning import pin_memory

__all__ = ["pin_memory"]
