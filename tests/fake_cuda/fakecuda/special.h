// Functions that CUDA has and the C library has not, or has by another name.
#pragma once
#include <cmath>

static inline float j0(float x) { return j0f(x); }
static inline float j1(float x) { return j1f(x); }
static inline float y0(float x) { return y0f(x); }
static inline float y1(float x) { return y1f(x); }

// Modified Bessel functions of the first kind, by their power series: every term is positive.
static inline double fakecuda_bessel_i(int order, double x) {
  const double half = x / 2;
  double term = order ? half : 1, sum = term;
  for (int k = 1; k < 1000 && std::abs(term) > 1e-17 * std::abs(sum); k++) sum += term *= half / k * (half / (k + order));
  return sum;
}
static inline double cyl_bessel_i0(double x) { return fakecuda_bessel_i(0, x); }
static inline double cyl_bessel_i1(double x) { return fakecuda_bessel_i(1, x); }
static inline float cyl_bessel_i0f(float x) { return (float)fakecuda_bessel_i(0, x); }
static inline float cyl_bessel_i1f(float x) { return (float)fakecuda_bessel_i(1, x); }

// The inverse of erf: Winitzki, "A handy approximation for the error function and its inverse", 2008, then Newton's method.
static inline double erfinv(double x) {
  if (!(std::abs(x) < 1)) return x == 1 || x == -1 ? x * INFINITY : NAN;
  if (x == 0) return x;
  const double size = std::abs(x), log = std::log((1 - size) * (1 + size)), shift = 4.330746750799873 + log / 2;
  double y = std::sqrt(std::sqrt(shift * shift - log / 0.147) - shift);
  for (int step = 0; step < 4; step++) {
    // Near 1 the complements are subtracted, which do not cancel.
    const double error = size < 0.5 ? std::erf(y) - size : (1 - size) - std::erfc(y);
    y -= error / (1.1283791670955126 * std::exp(-y * y));
  }
  return std::copysign(y, x);
}
static inline float erfinvf(float x) { return (float)erfinv((double)x); }
static inline float erfinv(float x) { return (float)erfinv((double)x); }
static inline double erfcinv(double y) {
  if (y > 0.5) return erfinv(1 - y);
  if (!(y > 0)) return y == 0 ? INFINITY : NAN;
  double x = std::sqrt(-std::log(y));
  for (int step = 0; step < 60; step++) {
    const double change = (std::erfc(x) - y) / (1.1283791670955126 * std::exp(-x * x));
    x += change;
    if (std::abs(change) < 1e-16 * x) break;
  }
  return x;
}
static inline float erfcinv(float y) { return (float)erfcinv((double)y); }
static inline double normcdfinv(double p) { return -1.4142135623730951 * erfcinv(2 * p); }
static inline float normcdfinvf(float p) { return (float)normcdfinv((double)p); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }

// exp(x^2) erfc(x): as it stands where that loses no digits, else by its continued fraction (DLMF 7.9.1).
static inline double erfcx(double x) {
  if (x < 5) return std::exp(x * x) * std::erfc(x);
  double fraction = x;
  for (int k = 60; k > 0; k--) fraction = x + k / (2 * fraction);
  return 0.5641895835477563 / fraction;
}
static inline float erfcx(float x) { return (float)erfcx((double)x); }
static inline float erfcxf(float x) { return (float)erfcx((double)x); }
