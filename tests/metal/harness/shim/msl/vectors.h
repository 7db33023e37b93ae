// Vector types: clang's extended vectors bring swizzles and element-wise operators. Comparisons of
// vectors give vectors of int here, of bool in Metal.
#pragma once
#define MSL_VECTORS(T)                                \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(float) MSL_VECTORS(half) MSL_VECTORS(bfloat)
MSL_VECTORS(int) MSL_VECTORS(uint) MSL_VECTORS(short) MSL_VECTORS(ushort) MSL_VECTORS(char)
MSL_VECTORS(uchar) MSL_VECTORS(long) MSL_VECTORS(ulong) MSL_VECTORS(bool)

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <class T>
struct msl_size {
  static constexpr int value = 1;
};
template <class T, int N>
struct msl_size<T __attribute__((ext_vector_type(N)))> {
  static constexpr int value = N;
};

template <class T, int N, int K>
MSL_INLINE void msl_fill(vec<T, N>&) {
  static_assert(K == N, "wrong number of components");
}
template <class T, int N, int K, class A, class... Rest>
MSL_INLINE void msl_fill(vec<T, N>& v, A a, Rest... rest) {
  if constexpr (msl_size<A>::value == 1)
    v[K] = static_cast<T>(a);
  else
    for (int i = 0; i < msl_size<A>::value; i++) v[K + i] = static_cast<T>(a[i]);
  msl_fill<T, N, K + msl_size<A>::value>(v, rest...);
}
// T4(x), T4(x, y, z, w), T4(xy, z, w), T4(other vector)
template <class T, int N, class... A>
MSL_INLINE vec<T, N> msl_make(A... a) {
  vec<T, N> v;
  if constexpr (sizeof...(A) == 0) {
    for (int i = 0; i < N; i++) v[i] = T(0);
  } else if constexpr (sizeof...(A) == 1 && (msl_size<A>::value + ...) == 1) {
    for (int i = 0; i < N; i++) v[i] = (static_cast<T>(a), ...);
  } else {
    msl_fill<T, N, 0>(v, a...);
  }
  return v;
}
}  // namespace metal

// float4(a, b, c, d) is no C++ for an extended vector; a function-like macro is, and leaves the
// type's name alone where no parenthesis follows.
#define float2(...) metal::msl_make<float, 2>(__VA_ARGS__)
#define float3(...) metal::msl_make<float, 3>(__VA_ARGS__)
#define float4(...) metal::msl_make<float, 4>(__VA_ARGS__)
#define half2(...) metal::msl_make<half, 2>(__VA_ARGS__)
#define half3(...) metal::msl_make<half, 3>(__VA_ARGS__)
#define half4(...) metal::msl_make<half, 4>(__VA_ARGS__)
#define bfloat2(...) metal::msl_make<bfloat, 2>(__VA_ARGS__)
#define bfloat3(...) metal::msl_make<bfloat, 3>(__VA_ARGS__)
#define bfloat4(...) metal::msl_make<bfloat, 4>(__VA_ARGS__)
#define int2(...) metal::msl_make<int, 2>(__VA_ARGS__)
#define int3(...) metal::msl_make<int, 3>(__VA_ARGS__)
#define int4(...) metal::msl_make<int, 4>(__VA_ARGS__)
#define uint2(...) metal::msl_make<uint, 2>(__VA_ARGS__)
#define uint3(...) metal::msl_make<uint, 3>(__VA_ARGS__)
#define uint4(...) metal::msl_make<uint, 4>(__VA_ARGS__)
#define short2(...) metal::msl_make<short, 2>(__VA_ARGS__)
#define short3(...) metal::msl_make<short, 3>(__VA_ARGS__)
#define short4(...) metal::msl_make<short, 4>(__VA_ARGS__)
#define ushort2(...) metal::msl_make<ushort, 2>(__VA_ARGS__)
#define ushort3(...) metal::msl_make<ushort, 3>(__VA_ARGS__)
#define ushort4(...) metal::msl_make<ushort, 4>(__VA_ARGS__)
#define char2(...) metal::msl_make<char, 2>(__VA_ARGS__)
#define char3(...) metal::msl_make<char, 3>(__VA_ARGS__)
#define char4(...) metal::msl_make<char, 4>(__VA_ARGS__)
#define uchar2(...) metal::msl_make<uchar, 2>(__VA_ARGS__)
#define uchar3(...) metal::msl_make<uchar, 3>(__VA_ARGS__)
#define uchar4(...) metal::msl_make<uchar, 4>(__VA_ARGS__)
#define long2(...) metal::msl_make<long, 2>(__VA_ARGS__)
#define long3(...) metal::msl_make<long, 3>(__VA_ARGS__)
#define long4(...) metal::msl_make<long, 4>(__VA_ARGS__)
#define ulong2(...) metal::msl_make<ulong, 2>(__VA_ARGS__)
#define ulong3(...) metal::msl_make<ulong, 3>(__VA_ARGS__)
#define ulong4(...) metal::msl_make<ulong, 4>(__VA_ARGS__)
#define bool2(...) metal::msl_make<bool, 2>(__VA_ARGS__)
#define bool3(...) metal::msl_make<bool, 3>(__VA_ARGS__)
#define bool4(...) metal::msl_make<bool, 4>(__VA_ARGS__)

template <class T, class U>
MSL_INLINE T as_type(U u) {
  return __builtin_bit_cast(T, u);
}
