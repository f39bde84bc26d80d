"""`torch.nn.attention`: the choice of an attention backend, of which there is one here."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__path__: list[str] = []  # absent modules are found below


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of `scaled_dot_product_attention`, by name."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | Sequence[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Accepted for PyTorch's sake: all its kernels compute the same, and so does the one here."""
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    for backend in chosen:
        if not isinstance(backend, SDPBackend):
            raise TypeError(f"sdpa_kernel(): expected SDPBackend or a list of them, got {backend!r}")
    if not chosen:
        raise ValueError("sdpa_kernel(): expected at least one backend")
    yield
