"""`torch.backends.cpu`: the capabilities of the processor."""

from __future__ import annotations

import numpy as np


def get_cpu_capability() -> str:
    """'AVX512', 'AVX2' or 'DEFAULT': the vector instructions that NumPy's kernels use."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if "AVX512_SKX" in found or "X86_V4" in found:
        return "AVX512"
    return "AVX2" if "AVX2" in found or "X86_V3" in found else "DEFAULT"


__all__ = ["get_cpu_capability"]
