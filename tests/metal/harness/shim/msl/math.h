// Math, integer, relational and geometric functions. Halves and bfloats go through float, as
// Metal's own (half) and MLX's overloads (bfloat) do; the last bits of transcendentals are those
// of the C library, not of a GPU.
#pragma once
namespace metal {

#define MSL_MATH1(NAME, F)                                            \
  MSL_INLINE float NAME(float x) { return F(x); }                     \
  MSL_INLINE half NAME(half x) { return (half)F((float)x); }          \
  MSL_INLINE bfloat NAME(bfloat x) { return (bfloat)F((float)x); }    \
  template <class T, int N>                                           \
  MSL_INLINE vec<T, N> NAME(vec<T, N> x) {                            \
    for (int i = 0; i < N; i++) x[i] = (T)F((float)x[i]);             \
    return x;                                                         \
  }
#define MSL_MATH2(NAME, F)                                                              \
  MSL_INLINE float NAME(float x, float y) { return F(x, y); }                           \
  MSL_INLINE half NAME(half x, half y) { return (half)F((float)x, (float)y); }          \
  MSL_INLINE bfloat NAME(bfloat x, bfloat y) { return (bfloat)F((float)x, (float)y); }  \
  template <class T, int N>                                                             \
  MSL_INLINE vec<T, N> NAME(vec<T, N> x, vec<T, N> y) {                                 \
    for (int i = 0; i < N; i++) x[i] = (T)F((float)x[i], (float)y[i]);                  \
    return x;                                                                           \
  }
MSL_INLINE float msl_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
MSL_INLINE float msl_sign(float x) { return x > 0 ? 1.f : x < 0 ? -1.f : 0.f; }
MSL_INLINE float msl_fract(float x) {
  return __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f);
}
MSL_INLINE float msl_divide(float x, float y) { return x / y; }
#define MSL_MATH                                                                         \
  MSL_MATH1(exp, __builtin_expf) MSL_MATH1(exp2, __builtin_exp2f)                        \
  MSL_MATH1(exp10, __builtin_exp10f) MSL_MATH1(log, __builtin_logf)                      \
  MSL_MATH1(log2, __builtin_log2f) MSL_MATH1(log10, __builtin_log10f)                    \
  MSL_MATH1(sqrt, __builtin_sqrtf) MSL_MATH1(rsqrt, msl_rsqrt)                           \
  MSL_MATH1(sin, __builtin_sinf) MSL_MATH1(cos, __builtin_cosf)                          \
  MSL_MATH1(tan, __builtin_tanf) MSL_MATH1(tanh, __builtin_tanhf)                        \
  MSL_MATH1(sinh, __builtin_sinhf) MSL_MATH1(cosh, __builtin_coshf)                      \
  MSL_MATH1(asin, __builtin_asinf) MSL_MATH1(acos, __builtin_acosf)                      \
  MSL_MATH1(atan, __builtin_atanf) MSL_MATH1(floor, __builtin_floorf)                    \
  MSL_MATH1(ceil, __builtin_ceilf) MSL_MATH1(round, __builtin_roundf)                    \
  MSL_MATH1(rint, __builtin_rintf) MSL_MATH1(trunc, __builtin_truncf)                    \
  MSL_MATH1(fabs, __builtin_fabsf) MSL_MATH1(fract, msl_fract)                           \
  MSL_MATH1(sign, msl_sign) MSL_MATH2(pow, __builtin_powf)                               \
  MSL_MATH2(powr, __builtin_powf) MSL_MATH2(fmod, __builtin_fmodf)                       \
  MSL_MATH2(atan2, __builtin_atan2f) MSL_MATH2(copysign, __builtin_copysignf)            \
  MSL_MATH2(fmax, __builtin_fmaxf) MSL_MATH2(fmin, __builtin_fminf)                      \
  MSL_MATH2(divide, msl_divide)
MSL_MATH
namespace fast {
MSL_MATH
}
namespace precise {
MSL_MATH
}
MSL_MATH2(max, __builtin_fmaxf)
MSL_MATH2(min, __builtin_fminf)

MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_INLINE half fma(half a, half b, half c) { return (half)__builtin_fmaf(a, b, c); }
template <class T, int N>
MSL_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  for (int i = 0; i < N; i++) a[i] = (T)__builtin_fmaf(a[i], b[i], c[i]);
  return a;
}

#define MSL_CLAMP(T) \
  MSL_INLINE T clamp(T x, T low, T high) { return min(max(x, low), high); }
#define MSL_INTEGER(T)                                      \
  MSL_INLINE T max(T a, T b) { return a > b ? a : b; }      \
  MSL_INLINE T min(T a, T b) { return a < b ? a : b; }      \
  MSL_CLAMP(T)
MSL_INTEGER(int) MSL_INTEGER(uint) MSL_INTEGER(short) MSL_INTEGER(ushort)
MSL_INTEGER(char) MSL_INTEGER(uchar) MSL_INTEGER(long) MSL_INTEGER(ulong)
MSL_CLAMP(float) MSL_CLAMP(half)
template <class T, int N>
MSL_INLINE vec<T, N> clamp(vec<T, N> x, vec<T, N> low, vec<T, N> high) {
  return min(max(x, low), high);
}

MSL_INLINE float abs(float x) { return __builtin_fabsf(x); }
MSL_INLINE half abs(half x) { return (half)__builtin_fabsf(x); }
MSL_INLINE bfloat abs(bfloat x) { return (bfloat)__builtin_fabsf(x); }
MSL_INLINE int abs(int x) { return x < 0 ? -x : x; }
MSL_INLINE long abs(long x) { return x < 0 ? -x : x; }

template <class T>
MSL_INLINE bool isnan(T x) {
  return x != x;
}
template <class T>
MSL_INLINE bool isinf(T x) {
  return __builtin_fabsf((float)x) == __builtin_inff();
}
template <class T>
MSL_INLINE bool isfinite(T x) {
  return __builtin_fabsf((float)x) < __builtin_inff();
}
template <class T>
MSL_INLINE bool signbit(T x) {
  return __builtin_signbit((float)x);
}
template <class T>
MSL_INLINE T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, class C, int N>
MSL_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<C, N> c) {
  for (int i = 0; i < N; i++) a[i] = c[i] ? b[i] : a[i];
  return a;
}
template <class T, int N>
MSL_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T s = a[0] * b[0];
  for (int i = 1; i < N; i++) s += a[i] * b[i];
  return s;
}
template <class V>
MSL_INLINE bool any(V v) {
  bool r = false;
  for (int i = 0; i < msl_size<V>::value; i++) r |= v[i] != 0;
  return r;
}
template <class V>
MSL_INLINE bool all(V v) {
  bool r = true;
  for (int i = 0; i < msl_size<V>::value; i++) r &= v[i] != 0;
  return r;
}

MSL_INLINE uint popcount(uint x) { return __builtin_popcount(x); }
MSL_INLINE int popcount(int x) { return __builtin_popcount(x); }
MSL_INLINE ulong popcount(ulong x) { return __builtin_popcountl(x); }
MSL_INLINE uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
MSL_INLINE ulong clz(ulong x) { return x ? __builtin_clzl(x) : 64; }
MSL_INLINE uint ctz(uint x) { return x ? __builtin_ctz(x) : 32; }
MSL_INLINE ulong ctz(ulong x) { return x ? __builtin_ctzl(x) : 64; }
MSL_INLINE uint mulhi(uint a, uint b) { return (uint)(((ulong)a * b) >> 32); }
MSL_INLINE ulong mulhi(ulong a, ulong b) { return (ulong)(((unsigned __int128)a * b) >> 64); }
MSL_INLINE uint rotate(uint v, uint s) {
  s &= 31;
  return s ? (v << s) | (v >> (32 - s)) : v;
}
MSL_INLINE uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
MSL_INLINE uint extract_bits(uint x, uint offset, uint bits) {
  return bits ? (x >> offset) & (bits >= 32 ? ~0u : (1u << bits) - 1) : 0;
}

}  // namespace metal
