// Address spaces, qualifiers and scalar types.
#pragma once
#ifndef MSL_SPACES
#define MSL_SPACES 0
#endif

#if MSL_SPACES
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(MSL_SPACES == 2 ? 4 : 2)))
#define threadgroup __attribute__((address_space(3)))
#if MSL_SPACES == 2
#define MSL_THREADGROUP_VARIABLE \
  static __attribute__((address_space(3), loader_uninitialized))
#else
// extern, so that a class type needs no constructor for its address space
#define MSL_THREADGROUP_VARIABLE extern __attribute__((address_space(3)))
#endif
#else
#define device
#define constant const
#define threadgroup
#ifdef __APPLE__
#define MSL_THREADGROUP_VARIABLE static __attribute__((used, section("__DATA,msl_tg")))
#else
#define MSL_THREADGROUP_VARIABLE static __attribute__((used, section("msl_tg")))
#endif
#endif
#define thread
#define kernel
#define METAL_FUNC inline __attribute__((always_inline))
#define MSL_INLINE inline __attribute__((always_inline))
#define MSL_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
#define __METAL_VERSION__ 310

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.1920928955e-7f
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979f
#define M_LN2_F 0.693147180559945f
#define M_LOG2E_F 1.44269504088896f

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef long ptrdiff_t;
typedef _Float16 half;
typedef __bf16 bfloat;
