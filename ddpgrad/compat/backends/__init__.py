"""`torch.backends`: switches of the libraries that PyTorch computes with.

Programs set them and read them back. Those that trade exactness for speed have no effect,
since nothing here is rounded to TF32 and every kernel gives the same bits each time.
"""

from __future__ import annotations

from . import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
