"""CUDA's libraries as functions of Python: cuBLAS, cuSOLVER, cuFFT, NCCL and NVRTC's version, by NumPy and SciPy."""
