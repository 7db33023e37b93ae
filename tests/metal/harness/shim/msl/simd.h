// Operations across the lanes of a simdgroup (32) and of a quad (4).
#pragma once
namespace metal {

template <class T>
struct msl_accumulator {
  typedef T type;
};
// MLX's overloads for bfloat16_t reduce in float.
template <>
struct msl_accumulator<bfloat> {
  typedef float type;
};
template <class T>
struct msl_block {
  T in, out;
  uint argument;
  T fill;
};
#if MSL_SPACES == 2
template <class T>
MSL_INLINE void msl_cross(msl_block<T>& block) {
  if constexpr (sizeof(T) < 4)
    block.out = (T)msl_opaque((float)block.in, block.argument);
  else
    block.out = msl_opaque(block.in, block.argument);
  block.fill = block.out;
}
#endif
#define MSL_EACH_ACTIVE(i) for (uint i = 0; i < 32; i++) if (active >> i & 1)
#define MSL_BLOCK(i) ((msl_block<T>*)blocks[i])
#define MSL_CALL(T, OPERATION, ARGUMENT, FILL, WIDTH)    \
  msl_block<T> block{x, x, (uint)(ARGUMENT), FILL};      \
  msl_collective(OPERATION, &block, site, WIDTH);        \
  return block.out;

// Reductions are an ascending butterfly (xor 1, 2, 4, 8, 16), the order that mlx-lm's
// gated_delta.py states for simd_sum on Apple GPUs.
#define MSL_REDUCTION(NAME, COMBINED, WIDTH)                                              \
  template <class V>                                                                      \
  MSL_UNCHECKED void msl_##NAME(void** blocks, uint active, uint width) {                 \
    typedef typename msl_accumulator<V>::type T;                                          \
    for (uint base = 0; base < 32; base += width) {                                       \
      T v[32];                                                                            \
      bool on[32];                                                                        \
      for (uint i = 0; i < width; i++) {                                                  \
        on[i] = active >> (base + i) & 1;                                                 \
        if (on[i]) v[i] = (T)((msl_block<V>*)blocks[base + i])->in;                       \
      }                                                                                   \
      for (uint d = 1; d < width; d *= 2)                                                 \
        for (uint i = 0; i < width; i += 2 * d) {                                         \
          if (on[i] && on[i + d]) {                                                       \
            T a = v[i], b = v[i + d];                                                     \
            v[i] = COMBINED;                                                              \
          } else if (on[i + d]) {                                                         \
            v[i] = v[i + d];                                                              \
            on[i] = true;                                                                 \
          }                                                                               \
        }                                                                                 \
      for (uint i = 0; i < width; i++)                                                    \
        if (active >> (base + i) & 1) ((msl_block<V>*)blocks[base + i])->out = (V)v[0];   \
    }                                                                                     \
  }                                                                                       \
  template <class T>                                                                      \
  MSL_INLINE T NAME(T x, MSL_SITE) {                                                      \
    MSL_CALL(T, &msl_##NAME<T>, 0, x, WIDTH)                                              \
  }
#define MSL_REDUCTIONS(NAME, COMBINED) \
  MSL_REDUCTION(simd_##NAME, COMBINED, 32) MSL_REDUCTION(quad_##NAME, COMBINED, 4)
MSL_REDUCTIONS(sum, (T)(a + b))
MSL_REDUCTIONS(product, (T)(a* b))
MSL_REDUCTIONS(min, metal::min(a, b))
MSL_REDUCTIONS(max, metal::max(a, b))
MSL_REDUCTIONS(and, (T)(a & b))
MSL_REDUCTIONS(or, (T)(a | b))
MSL_REDUCTIONS(xor, (T)(a ^ b))

#define MSL_SCAN(NAME, FIRST, COMBINED, INCLUSIVE)                             \
  template <class V>                                                           \
  MSL_UNCHECKED void msl_##NAME(void** blocks, uint active, uint) {            \
    typedef typename msl_accumulator<V>::type T;                               \
    T so_far = (T)FIRST;                                                       \
    MSL_EACH_ACTIVE(i) {                                                       \
      auto* block = (msl_block<V>*)blocks[i];                                  \
      T a = so_far, b = (T)block->in, next = COMBINED;                         \
      block->out = (V)(INCLUSIVE ? next : so_far);                             \
      so_far = next;                                                           \
    }                                                                          \
  }                                                                            \
  template <class T>                                                           \
  MSL_INLINE T NAME(T x, MSL_SITE) {                                           \
    MSL_CALL(T, &msl_##NAME<T>, 0, x, 32)                                      \
  }
MSL_SCAN(simd_prefix_inclusive_sum, 0, (T)(a + b), true)
MSL_SCAN(simd_prefix_exclusive_sum, 0, (T)(a + b), false)
MSL_SCAN(simd_prefix_inclusive_product, 1, (T)(a* b), true)
MSL_SCAN(simd_prefix_exclusive_product, 1, (T)(a* b), false)

// Reading an inactive lane is undefined in Metal, so it is a fault here.
#define MSL_SHUFFLE(NAME, SOURCE, KEEPS, WIDTH)                                      \
  template <class T>                                                                 \
  MSL_UNCHECKED void msl_##NAME(void** blocks, uint active, uint width) {            \
    MSL_EACH_ACTIVE(i) {                                                             \
      int k = (int)MSL_BLOCK(i)->argument, w = (int)width;                           \
      int base = (int)(i / width * width), lane = (int)i - base, source = SOURCE;    \
      MSL_BLOCK(i)->out = MSL_BLOCK(i)->fill;                                        \
      if (source < 0 || source >= w) {                                               \
        if (!KEEPS) msl_complain(#NAME ": source lane out of range");                \
      } else if (!(active >> (base + source) & 1)) {                                 \
        msl_complain(#NAME " reads an inactive lane");                               \
      } else {                                                                       \
        MSL_BLOCK(i)->out = MSL_BLOCK(base + source)->in;                            \
      }                                                                              \
    }                                                                                \
  }                                                                                  \
  template <class T>                                                                 \
  MSL_INLINE T NAME(T x, ushort k, MSL_SITE) {                                       \
    MSL_CALL(T, &msl_##NAME<T>, k, x, WIDTH)                                         \
  }
#define MSL_SHUFFLES(NAME, SOURCE, KEEPS) \
  MSL_SHUFFLE(simd_##NAME, SOURCE, KEEPS, 32) MSL_SHUFFLE(quad_##NAME, SOURCE, KEEPS, 4)
MSL_SHUFFLES(shuffle, k, false)
MSL_SHUFFLES(broadcast, k, false)
MSL_SHUFFLES(shuffle_xor, lane ^ k, false)
MSL_SHUFFLES(shuffle_down, lane + k, true)
MSL_SHUFFLES(shuffle_up, lane - k, true)
MSL_SHUFFLES(shuffle_rotate_down, (lane + k) % w, false)
MSL_SHUFFLES(shuffle_rotate_up, (lane - k % w + w) % w, false)

template <class T>
MSL_UNCHECKED void msl_fill_up(void** blocks, uint active, uint width) {
  MSL_EACH_ACTIVE(i) {
    int source = (int)i - (int)MSL_BLOCK(i)->argument;
    bool kept = source >= 0;
    if (!kept) source += (int)width;
    MSL_BLOCK(i)->out = MSL_BLOCK(i)->fill;
    if (!(active >> source & 1))
      msl_complain("simd_shuffle_and_fill_up reads an inactive lane");
    else
      MSL_BLOCK(i)->out = kept ? MSL_BLOCK(source)->in : MSL_BLOCK(source)->fill;
  }
}
template <class T>
MSL_INLINE T simd_shuffle_and_fill_up(T x, T fill, ushort k, MSL_SITE) {
  MSL_CALL(T, &msl_fill_up<T>, k, fill, 32)
}
template <class T>
MSL_UNCHECKED void msl_first(void** blocks, uint active, uint) {
  T v = MSL_BLOCK(__builtin_ctz(active))->in;
  MSL_EACH_ACTIVE(i) MSL_BLOCK(i)->out = v;
}
template <class T>
MSL_INLINE T simd_broadcast_first(T x, MSL_SITE) {
  MSL_CALL(T, &msl_first<T>, 0, x, 32)
}

struct simd_vote {
  ulong bits;
  explicit operator ulong() const { return bits; }
  bool all() const { return bits == 0xffffffffu; }
  bool any() const { return bits; }
};
MSL_UNCHECKED inline void msl_ballot(void** blocks, uint active, uint) {
  typedef uint T;
  uint votes = 0;
  MSL_EACH_ACTIVE(i) votes |= (MSL_BLOCK(i)->in & 1) << i;
  MSL_EACH_ACTIVE(i) {
    MSL_BLOCK(i)->out = votes;
    MSL_BLOCK(i)->fill = active;
  }
}
MSL_INLINE msl_block<uint> msl_vote(bool p, uint site) {
  msl_block<uint> block{p, 0, 0, 0};
  msl_collective(&msl_ballot, &block, site, 32);
  return block;
}
MSL_INLINE simd_vote simd_ballot(bool p, MSL_SITE) { return {msl_vote(p, site).out}; }
MSL_INLINE simd_vote simd_active_threads_mask(MSL_SITE) { return {msl_vote(true, site).fill}; }
MSL_INLINE bool simd_any(bool p, MSL_SITE) { return msl_vote(p, site).out != 0; }
MSL_INLINE bool simd_all(bool p, MSL_SITE) {
  msl_block<uint> block = msl_vote(p, site);
  return block.out == block.fill;
}
MSL_INLINE bool simd_is_first(MSL_SITE) {
  return (uint)__builtin_ctz(msl_vote(true, site).fill) == msl_lane();
}

}  // namespace metal
