"""`torch.cuda`: GPUs, the current device, memory, streams and random numbers.

An op runs on this rank's current GPU, where its tensors must be: `set_device` chooses it, and
`init_process_group` deals the GPUs of a host out to its ranks. CuPy is loaded by the first call
here that needs a GPU, or by the first tensor on one.
"""

from __future__ import annotations

from ..core.face import serve


def _unlisted(name: str) -> object:
    """`_initialized`, which libraries read where `is_initialized()` is meant; classes such as `FloatTensor`."""
    if name == "_is_in_bad_fork":
        return lambda: False  # who asks wants to seed GPUs, and seeds are only kept until one is used
    if name == "_initialized":
        from .devices import is_initialized

        return is_initialized()
    if name.endswith("Tensor"):
        from ..ops.creation.interop import CUDA_TYPED

        return CUDA_TYPED.get(name)
    return None


serve(__name__, unlisted=_unlisted)
