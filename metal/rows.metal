// What the sampling kernels do with one row of logits, the threadgroup together.
// A sum adds the same numbers in the same order on every run, and every thread gets the same bits.

namespace macspec {

// The noise of macspec/noise.py, bit for bit.
enum Stream : uint { TARGET = 0, DRAFT = 1, ACCEPT = 2, RESIDUAL = 3 };

inline uint scramble(uint x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The key of a row's noise. `place`: low and high word of the seed, position of the pass, its draw.
template <typename P>
inline uint2 row_key(P place, uint stream, uint row) {
  const uint words[5] = {
      place[0], place[1], stream, place[2] + row, stream == TARGET ? 0u : place[3]};
  uint first = 0, second = 0;
  for (uint i = 0; i < 5; i++) {
    first = scramble((first ^ words[i]) + 0x9e3779b9u);
    second = scramble((second ^ words[i]) + 0x85ebca6bu);
  }
  return uint2(first, second);
}

inline uint bits_at(uint2 key, uint id) {
  return scramble(scramble(id * 0x9e3779b9u + key.x) ^ key.y);
}

// In (0, 1).
inline float uniform_at(uint2 key, uint id) {
  return min((float(bits_at(key, id)) + 0.5f) * 2.3283064365386963e-10f, 0.99999994f);
}

inline float gumbel_at(uint2 key, uint id) {
  return -metal::log(-log1p(-uniform_at(key, id)));
}

// Bounds that one pass over a row tries.
constant constexpr uint BOUNDS = 8;

// A thread's place in its threadgroup, and the memory that this shares: BOUNDS for each simdgroup.
struct Team {
  threadgroup float* numbers;
  threadgroup uint* counts;
  uint index, lane, group;
};

struct Best {
  float score;
  uint id;
};

// Kept are the ids whose key is higher, and of equals those up to `last`.
struct Cut {
  uint key, last;
};

// Logits that are drawn from: ids below `width`, kept ones at (logit - top) * inverse.
template <typename P>
struct Row {
  P logits;
  uint width;
  float top, inverse, floor;
  Cut cut;
};

// Keys are ordered as the values are; both zeros have the same.
inline uint ordered(float x) {
  const uint raw = x == 0 ? 0u : as_type<uint>(x);
  return raw & 0x80000000u ? ~raw : raw | 0x80000000u;
}

inline uint ordered16(uint raw) {
  raw = raw == 0x8000u ? 0u : raw;
  return raw & 0x8000u ? raw ^ 0xffffu : raw | 0x8000u;
}

inline uint ordered(float16_t x) {
  return ordered16(as_type<ushort>(x));
}

inline uint ordered(bfloat16_t x) {
  return ordered16(as_type<ushort>(x));
}

template <uint GROUPS>
inline float sum_of_all(float x, Team me) {
  x = simd_sum(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (me.lane == 0) me.numbers[me.group] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(me.lane < GROUPS ? me.numbers[me.lane] : 0.0f);
}

// The best score; of equals the lowest id.
template <uint GROUPS>
inline Best best_of_all(Best mine, Team me) {
  float score = simd_max(mine.score);
  uint id = simd_min(mine.score == score ? mine.id : ~0u);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (me.lane == 0) {
    me.numbers[me.group] = score;
    me.counts[me.group] = id;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint from = min(me.lane, GROUPS - 1);
  score = me.numbers[from];
  id = me.counts[from];
  const float best = simd_max(score);
  return Best{best, simd_min(score == best ? id : ~0u)};
}

// The largest logit and where it is; not finite if nothing can be drawn from the row, which is so
// where it holds NaN or +inf, or nothing but -inf.
template <uint THREADS, typename P>
inline Best top_of(P logits, uint width, Team me) {
  Best mine = {-INFINITY, 0};
  for (uint i = me.index; i < width; i += THREADS) {
    const float x = float(logits[i]);
    if (!(x <= mine.score)) mine = Best{x < INFINITY ? x : INFINITY, i};
  }
  return best_of_all<THREADS / 32>(mine, me);
}

// The id of the `room`-th element, in order of ids, whose key is `key`; there are more of them.
template <typename T, uint THREADS, typename P>
inline uint last_of_equals(P logits, uint width, uint key, uint room, Team me) {
  // Each simdgroup takes one stretch, so that ids ascend with the simdgroups.
  const uint stretch = (width + THREADS - 1) / THREADS * 32;
  const uint begin = min(me.group * stretch, width), end = min(begin + stretch, width);
  uint mine = 0;
  for (uint i = begin + me.lane; i < end; i += 32) mine += ordered(T(logits[i])) == key;
  mine = simd_sum(mine);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (me.lane == 0) me.counts[me.group] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint before = 0;
  for (uint group = 0; group < me.group; group++) before += me.counts[group];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (before < room && room <= before + mine) {
    for (uint base = begin; before < room; base += 32) {
      const uint i = base + me.lane;
      const uint equal = i < end && ordered(T(logits[i])) == key;
      const uint earlier = before + simd_prefix_exclusive_sum(equal);
      if (equal && earlier + 1 == room) me.counts[0] = i;
      before += simd_sum(equal);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return me.counts[0];
}

// Top-p and top-k: keeps an id if the mass above it is below `top_p` of all and fewer than `top_k`
// ids are better. Both get truer as the key ascends, so the lowest such key is searched for, eight
// bounds at a time. `top_p` of 1 and `top_k` above the width are off.
template <typename T, uint THREADS, typename P>
inline Cut cut_of(P logits, uint width, float top, float top_p, uint top_k, Team me) {
  const uint j = me.lane % BOUNDS;
  uint low = ordered(T(-INFINITY)), high = ordered(T(top));  // it lies above low, up to high
  uint from_low = 0, above_high = 0;
  float enough = INFINITY;
  bool first = true;
  do {
    const uint span = high - low;
    const float nats = float((BOUNDS - j) * (BOUNDS - j)) / 4;
    uint bound = low + span / BOUNDS * j + span % BOUNDS * j / BOUNDS;
    if (first) bound = j == 0 ? low : clamp(ordered(T(top - nats)), low, high);

    uint bounds[BOUNDS], number[BOUNDS];
    float mass[BOUNDS];
    MLX_MTL_PRAGMA_UNROLL
    for (uint k = 0; k < BOUNDS; k++) {
      bounds[k] = simd_broadcast(bound, ushort(k));
      number[k] = 0;
      mass[k] = 0;
    }
    for (uint i = me.index; i < width; i += THREADS) {
      const T x = logits[i];
      const uint key = ordered(x);
      const float share = metal::exp(float(x) - top);
      MLX_MTL_PRAGMA_UNROLL
      for (uint k = 0; k < BOUNDS; k++) {
        number[k] += key > bounds[k];
        mass[k] += key > bounds[k] ? share : 0.0f;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    MLX_MTL_PRAGMA_UNROLL
    for (uint k = 0; k < BOUNDS; k++) {
      const uint n = simd_sum(number[k]);
      const float m = simd_sum(mass[k]);
      if (me.lane == 0) {
        me.counts[me.group * BOUNDS + k] = n;
        me.numbers[me.group * BOUNDS + k] = m;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint n = 0;
    float m = 0;
    for (uint group = 0; group < THREADS / 32; group++) {
      n += me.counts[group * BOUNDS + j];
      m += me.numbers[group * BOUNDS + j];
    }

    if (first && top_p < 1) enough = top_p * simd_broadcast(m, ushort(0));
    const uint holds = simd_or(m < enough && n < top_k ? 1u << j : 0u);
    if (holds & 1) return Cut{low + 1, ~0u};
    const uint lowest = holds ? ctz(holds) : BOUNDS;
    if (holds) {
      high = simd_shuffle(bound, ushort(lowest));
      above_high = simd_shuffle(n, ushort(lowest));
    }
    low = simd_shuffle(bound, ushort(lowest - 1));
    from_low = simd_shuffle(n, ushort(lowest - 1));
    if (from_low - above_high == 1) return Cut{low + 1, ~0u};
    first = false;
  } while (high - low > 1);
  if (from_low <= top_k) return Cut{high, ~0u};
  const uint room = top_k - above_high;
  return Cut{high, last_of_equals<T, THREADS>(logits, width, high, room, me)};
}

// A row and what is drawn from. `options`: see `sampling_options` of accept.py.
template <typename T, uint THREADS, bool TRUNCATED, typename P, typename O>
inline Row<P> row_of(P logits, uint width, float top, O options, Team me) {
  Cut cut = {0, ~0u};
  if (TRUNCATED) {
    cut = cut_of<T, THREADS>(logits, width, top, options[1], uint(options[3]), me);
  }
  return Row<P>{logits, width, top, options[0], options[2], cut};
}

template <typename P, typename T>
inline bool keeps(Row<P> row, T x, uint id) {
  const uint key = ordered(x);
  const bool ranked = key > row.cut.key || (key == row.cut.key && id <= row.cut.last);
  return ranked && float(x) - row.top >= row.floor;
}

// The row's log-probability of an id, up to `log_z`.
template <typename T, typename P>
inline float log_chance(Row<P> row, float log_z, uint id) {
  const T x = row.logits[id];
  return keeps(row, x, id) ? fma(float(x) - row.top, row.inverse, -log_z) : -INFINITY;
}

// The logarithm of what the kept ids' weights add up to.
template <typename T, uint THREADS, typename P>
inline float log_z_of(Row<P> row, Team me) {
  float z = 0;
  for (uint i = me.index; i < row.width; i += THREADS) {
    z += metal::exp(log_chance<T>(row, 0.0f, i));
  }
  return metal::log(sum_of_all<THREADS / 32>(z, me));
}

// A draw: the best of log-probabilities and Gumbel noise.
template <typename T, uint THREADS, typename P>
inline Best drawn_from(Row<P> row, uint2 key, Team me) {
  Best mine = {-INFINITY, ~0u};
  for (uint i = me.index; i < row.width; i += THREADS) {
    const T x = row.logits[i];
    if (!keeps(row, x, i)) continue;
    const float score = fma(float(x) - row.top, row.inverse, gumbel_at(key, i));
    if (score > mine.score) mine = Best{score, i};
  }
  return best_of_all<THREADS / 32>(mine, me);
}

}  // namespace macspec
