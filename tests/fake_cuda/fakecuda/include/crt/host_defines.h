// What CUDA's headers ask of the compiler, said for g++. The wheel nvidia-cuda-runtime-cu12 has no crt/ folder.
#pragma once
#define __CRT_HOST_DEFINES_H__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __forceinline__ inline
#define __noinline__
#define __inline_hint__
#define __restrict__
#define __launch_bounds__(...)
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __specialization_static static
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __thread__ __thread
