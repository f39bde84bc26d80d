"""`torch.backends`: switches of the libraries that PyTorch computes with.

Programs set them and read them back. Of those that trade exactness for speed `cuda.matmul.allow_tf32` has an effect;
every kernel gives the same bits each time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

_frozen = False


def disable_global_flags() -> None:
    """Say that switches are to be set within `flags()` only; here they can be set anywhere, as before."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return _frozen


@contextlib.contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which switches can be set after `disable_global_flags`."""
    global _frozen
    before, _frozen = _frozen, False
    try:
        yield
    finally:
        _frozen = before


__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
