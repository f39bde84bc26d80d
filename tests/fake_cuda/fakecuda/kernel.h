// CUDA C++ for g++: what NVRTC knows without being told, on the machine's fibers.
#pragma once
#include <crt/host_defines.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "machine/fibers.h"

// `extern __shared__` is rewritten before g++ sees it. One block runs at a time.
#define __shared__ static

static const fakecuda_triple &threadIdx = fakecuda_now.thread, &blockIdx = fakecuda_now.block;
static const fakecuda_triple &blockDim = fakecuda_now.block_size, &gridDim = fakecuda_now.grid_size;
static const int warpSize = 32;

static inline void __syncthreads() { fakecuda_barrier(); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline long long clock64() { return 0; }

// ------------------------------------------------------------------ warps
static inline int fakecuda_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }
template <class T> T fakecuda_from(unsigned mask, T value, int lane) {
  T taken;
  fakecuda_exchange(&value, &taken, sizeof(T), lane, mask);
  return taken;
}
template <class T> T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  return fakecuda_from(mask, value, fakecuda_lane() / width * width + from % width);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = fakecuda_lane(), from = lane ^ bits;
  return fakecuda_from(mask, value, from / width <= lane / width ? from : lane);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, int step, int width = 32) {
  const int lane = fakecuda_lane();
  return fakecuda_from(mask, value, lane % width + step < width ? lane + step : lane);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int step, int width = 32) {
  const int lane = fakecuda_lane();
  return fakecuda_from(mask, value, lane % width >= step ? lane - step : lane);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { fakecuda_from(mask, 0, fakecuda_lane()); }
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned votes = 0;
  for (int lane = 0; lane < 32; lane++) {
    if (mask >> lane & 1) votes |= unsigned(fakecuda_from(mask, predicate != 0, lane)) << lane;
  }
  return votes;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// What PTX's ldmatrix and mma do with the registers of a warp (PTX ISA, "Warp-level matrix instructions"): lane 4 r + c
// has the elements 2 c and 2 c + 1 of row r of 8.
struct fakecuda_words { unsigned word[6]; };
static fakecuda_words fakecuda_left[32][32];
static fakecuda_words* fakecuda_all(const fakecuda_words& own) {
  fakecuda_words* warp = fakecuda_left[(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32];
  warp[fakecuda_lane()] = own;
  __syncwarp();
  return warp;
}
template <bool transposed> void fakecuda_matrices(unsigned* words, const void* row) {
  fakecuda_words own;
  if ((uintptr_t)row % 16) fakecuda_misaligned(row, 16);
  memcpy(own.word, &row, sizeof(row));
  const fakecuda_words* warp = fakecuda_all(own);
  const int r = fakecuda_lane() / 4, c = fakecuda_lane() % 4 * 2;
  for (int which = 0; which < 4; which++) {
    uint16_t two[2];
    for (int k = 0; k < 2; k++) {
      const uint16_t* from;
      memcpy(&from, warp[which * 8 + (transposed ? c + k : r)].word, sizeof(from));
      two[k] = from[transposed ? r : c + k];
    }
    memcpy(words + which, two, sizeof(two));
  }
  __syncwarp();
}
static inline void warp_matrices(unsigned* words, const void* row) { fakecuda_matrices<false>(words, row); }
static inline void warp_matrices_transposed(unsigned* words, const void* row) { fakecuda_matrices<true>(words, row); }
template <class T> void warp_product(float* sum, const unsigned* a, const unsigned* b, T) {
  const fakecuda_words* warp = fakecuda_all({a[0], a[1], a[2], a[3], b[0], b[1]});
  const auto half = [&](int lane, int word, int k) -> float {
    T two[2];
    memcpy(two, &warp[lane].word[word], sizeof(two));
    return (float)two[k % 2];
  };
  for (int j = 0; j < 4; j++) {
    const int row = fakecuda_lane() / 4, column = fakecuda_lane() % 4 * 2 + j % 2;
    for (int k = 0; k < 16; k++) {
      sum[j] += half(row * 4 + k % 8 / 2, j / 2 + k / 8 * 2, k) * half(column * 4 + k % 8 / 2, 4 + k / 8, k);
    }
  }
  __syncwarp();
}

// ------------------------------------------------------------------ atomics: no two threads run at once
template <class T, class F> T fakecuda_update(T* place, F change) {
  const T old = *place;
  *place = change(old);
  return old;
}
#define FAKECUDA_ATOMIC(name, change) \
  template <class T, class U> T name(T* place, U given) { \
    const T value = (T)given; \
    return fakecuda_update(place, [=](T old) -> T { return change; }); \
  }
FAKECUDA_ATOMIC(atomicAdd, (T)(old + value))
FAKECUDA_ATOMIC(atomicSub, (T)(old - value))
FAKECUDA_ATOMIC(atomicMax, value > old ? value : old)
FAKECUDA_ATOMIC(atomicMin, value < old ? value : old)
FAKECUDA_ATOMIC(atomicAnd, (T)(old & value))
FAKECUDA_ATOMIC(atomicOr, (T)(old | value))
FAKECUDA_ATOMIC(atomicXor, (T)(old ^ value))
FAKECUDA_ATOMIC(atomicExch, value)
template <class T> T atomicCAS(T* place, T expected, T value) {
  return fakecuda_update(place, [=](T old) { return old == expected ? value : old; });
}

// ------------------------------------------------------------------ bits
template <class To, class From> To fakecuda_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
static inline unsigned __float_as_uint(float x) { return fakecuda_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return fakecuda_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return fakecuda_bits<float>(x); }
static inline float __int_as_float(int x) { return fakecuda_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return fakecuda_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return fakecuda_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class T> static inline T __ldg(const T* place) { return *place; }

// ------------------------------------------------------------------ functions, in the global namespace as in CUDA
using std::abs; using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atan2;
using std::atanh; using std::cbrt; using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::erf;
using std::erfc; using std::exp; using std::exp2; using std::expm1; using std::floor; using std::fmax; using std::fmin;
using std::fmod; using std::frexp; using std::hypot; using std::isfinite; using std::isinf; using std::isnan;
using std::ldexp; using std::lgamma; using std::log; using std::log10; using std::log1p; using std::log2; using std::modf;
using std::nextafter; using std::pow; using std::remainder; using std::rint; using std::round; using std::signbit;
using std::sin; using std::sinh; using std::sqrt; using std::tan; using std::tanh; using std::tgamma; using std::trunc;

template <class A, class B> using fakecuda_common = std::enable_if_t<
    std::is_arithmetic<A>::value && std::is_arithmetic<B>::value, typename std::common_type<A, B>::type>;
// Of a number and a nan CUDA's max and min give the number.
template <class A, class B> fakecuda_common<A, B> max(A left, B right) {
  const fakecuda_common<A, B> a = left, b = right;
  return a != a ? b : b > a ? b : a;
}
template <class A, class B> fakecuda_common<A, B> min(A left, B right) {
  const fakecuda_common<A, B> a = left, b = right;
  return a != a ? b : b < a ? b : a;
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float rsqrt(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline double cospi(double x) { return cos(x * 3.141592653589793); }
static inline double sinpi(double x) { return sin(x * 3.141592653589793); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.7071067811865476); }
#include "special.h"

// ------------------------------------------------------------------ how the machine calls a kernel
template <class... A, size_t... I> void fakecuda_call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*(std::remove_cv_t<std::remove_reference_t<A>>*)arguments[I]...);
}
template <class... A> void fakecuda_call(void (*kernel)(A...), void** arguments) {
  fakecuda_call(kernel, arguments, std::index_sequence_for<A...>{});
}
template <class... A> const unsigned* fakecuda_sizes(void (*)(A...)) {
  static const unsigned sizes[] = {unsigned(sizeof(A))..., 0};
  return sizes;
}

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
