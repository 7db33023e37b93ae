// Relaxed atomics. Fibers are never preempted, so an atomic is a read and a write that the checker
// is told about.
#pragma once
namespace metal {

enum memory_order { memory_order_relaxed = 0 };
template <class T>
struct atomic {
  T value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
// `access`: 1 reads, 2 writes, 3 both.
extern "C" void msl_atomic(const volatile void* p, uint size, uint access, uint site);

// The operand's type is not deduced: atomic_fetch_add_explicit(&uint_counter, 1, ...) is Metal.
template <class T>
struct msl_exactly {
  typedef T type;
};
#if MSL_SPACES
#define MSL_ATOMIC(NAME, ACCESS, NEW)                                                           \
  template <class T>                                                                           \
  T NAME(volatile device atomic<T>* p, typename msl_exactly<T>::type x, memory_order);         \
  template <class T>                                                                           \
  T NAME(volatile threadgroup atomic<T>* p, typename msl_exactly<T>::type x, memory_order);
template <class T>
T atomic_load_explicit(const volatile device atomic<T>* p, memory_order);
template <class T>
T atomic_load_explicit(const volatile threadgroup atomic<T>* p, memory_order);
#else
#define MSL_ATOMIC(NAME, ACCESS, NEW)                                                           \
  template <class T>                                                                               \
  MSL_UNCHECKED T NAME(                                                                            \
      volatile atomic<T>* p, typename msl_exactly<T>::type x, memory_order, MSL_SITE) {            \
    msl_atomic(p, sizeof(T), ACCESS, site);                                                        \
    T old = p->value;                                                                              \
    p->value = NEW;                                                                                \
    return old;                                                                                    \
  }
template <class T>
MSL_UNCHECKED T atomic_load_explicit(const volatile atomic<T>* p, memory_order, MSL_SITE) {
  msl_atomic(p, sizeof(T), 1, site);
  return p->value;
}
#endif
MSL_ATOMIC(atomic_store_explicit, 2, x)
MSL_ATOMIC(atomic_exchange_explicit, 3, x)
MSL_ATOMIC(atomic_fetch_add_explicit, 3, old + x)
MSL_ATOMIC(atomic_fetch_sub_explicit, 3, old - x)
MSL_ATOMIC(atomic_fetch_max_explicit, 3, (old > x ? old : x))
MSL_ATOMIC(atomic_fetch_min_explicit, 3, (old < x ? old : x))
MSL_ATOMIC(atomic_fetch_and_explicit, 3, old& x)
MSL_ATOMIC(atomic_fetch_or_explicit, 3, old | x)
MSL_ATOMIC(atomic_fetch_xor_explicit, 3, old ^ x)

}  // namespace metal
