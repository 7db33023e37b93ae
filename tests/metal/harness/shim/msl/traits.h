// <metal_type_traits> and <metal_limits>.
#pragma once
namespace metal {

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  typedef integral_constant type;
  constexpr operator T() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
typedef bool_constant<true> true_type;
typedef bool_constant<false> false_type;

template <class A, class B>
struct is_same : bool_constant<__is_same(A, B)> {};
template <class A, class B>
constexpr bool is_same_v = __is_same(A, B);
template <class A, class B>
constexpr bool is_convertible_v = __is_convertible(A, B);
template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
constexpr bool is_integral_v = __is_integral(T);
template <class T>
constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T>
constexpr bool is_signed_v = __is_signed(T);
template <class T>
constexpr bool is_unsigned_v = __is_unsigned(T);
template <class T>
constexpr bool is_pointer_v = __is_pointer(T);
template <class T>
constexpr bool is_enum_v = __is_enum(T);

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <bool B, class X, class Y>
struct conditional {
  typedef X type;
};
template <class X, class Y>
struct conditional<false, X, Y> {
  typedef Y type;
};
template <bool B, class X, class Y>
using conditional_t = typename conditional<B, X, Y>::type;

template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
using remove_addrspace_t = T;
template <class T>
struct remove_addrspace {
  typedef T type;
};

template <class T>
struct numeric_limits;
#define MSL_INTEGER_LIMITS(T, MIN, MAX)        \
  template <>                                  \
  struct numeric_limits<T> {                   \
    static constexpr T max() { return MAX; }   \
    static constexpr T min() { return MIN; }   \
    static constexpr T lowest() { return MIN; } \
  };
MSL_INTEGER_LIMITS(int8_t, -128, 127)
MSL_INTEGER_LIMITS(uint8_t, 0, 255)
MSL_INTEGER_LIMITS(int16_t, -32768, 32767)
MSL_INTEGER_LIMITS(uint16_t, 0, 65535)
MSL_INTEGER_LIMITS(int32_t, -2147483647 - 1, 2147483647)
MSL_INTEGER_LIMITS(uint32_t, 0u, 4294967295u)
MSL_INTEGER_LIMITS(int64_t, -9223372036854775807l - 1, 9223372036854775807l)
MSL_INTEGER_LIMITS(uint64_t, 0ul, ~0ul)
#define MSL_FLOAT_LIMITS(T, MAX, MIN, EPSILON)                         \
  template <>                                                          \
  struct numeric_limits<T> {                                           \
    static constexpr T max() { return (T)MAX; }                        \
    static constexpr T min() { return (T)MIN; }                        \
    static constexpr T lowest() { return (T)-MAX; }                    \
    static constexpr T epsilon() { return (T)EPSILON; }                \
    static constexpr T infinity() { return (T)__builtin_inff(); }      \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }   \
  };
MSL_FLOAT_LIMITS(float, 3.402823466e+38f, 1.175494351e-38f, 1.1920928955e-7f)
MSL_FLOAT_LIMITS(half, 65504.f, 6.103515625e-5f, 9.765625e-4f)
MSL_FLOAT_LIMITS(bfloat, 3.38953139e+38f, 1.175494351e-38f, 7.8125e-3f)

}  // namespace metal
