// Attention of a verify pass. A threadgroup takes one head of keys and values, one stretch of the
// context, and the rows of all the query heads that share it: 8 to a simdgroup, one 8x8 matrix high.
// Where these are few, SHARE simdgroups divide the keys of each tile and give a part each.
// Keys and values go through threadgroup memory, so each is read from device memory once.
// Those of a quantized cache are unpacked on the way, each word once.
// Softmax runs along with the keys (Milakov and Gimelshein 2018, arXiv:1805.02867), in powers of 2.

namespace macspec {

// The other lanes of a matrix row differ in these two bits.
inline float row_max(float x) {
  x = max(x, simd_shuffle_xor(x, ushort(1)));
  return max(x, simd_shuffle_xor(x, ushort(8)));
}

inline float row_sum(float x) {
  x += simd_shuffle_xor(x, ushort(1));
  return x + simd_shuffle_xor(x, ushort(8));
}

// Keys in threadgroup memory at a time: with values, a good half of its 32 KB.
template <typename T>
constexpr int tile_keys(int width) {
  return width * int(sizeof(T)) <= 256 ? 32 : width * int(sizeof(T)) <= 512 ? 16 : 8;
}

// Where the rows of a slice of the cache lie, in elements.
struct Steps {
  size_t row;
  int column;
};

template <typename P>
inline Steps steps_of(P strides) {
  return Steps{size_t(strides[2]), int(strides[3])};
}

// KEYS rows of WIDTH, quantized to BITS in groups of GROUP, of which `count` exist; zeros for the
// others. Scales and biases lie in memory of their own, each by its own steps.
template <
    typename T, int KEYS, int WIDTH, int STRIDE, int BITS, int GROUP, typename W, typename S,
    typename B>
inline void unpack(
    W words, Steps steps, S scales, Steps scale_steps, B biases, Steps bias_steps,
    threadgroup T* to, int tile, int count, int thread_index, int threads) {
  constexpr int each = 32 / BITS;
  constexpr uint mask = (1u << BITS) - 1;
  for (int i = thread_index; i < KEYS * WIDTH / each; i += threads) {
    const int key = i / (WIDTH / each), chunk = i % (WIDTH / each), group = chunk * each / GROUP;
    uint word = 0;
    float scale = 0, bias = 0;
    if (key < count) {
      word = words[(tile + key) * steps.row + chunk * steps.column];
      scale = float(scales[(tile + key) * scale_steps.row + group * scale_steps.column]);
      bias = float(biases[(tile + key) * bias_steps.row + group * bias_steps.column]);
    }
    #pragma unroll
    for (int j = 0; j < each; j++) {
      to[key * STRIDE + chunk * each + j] = T(scale * number(word >> (j * BITS) & mask) + bias);
    }
  }
}

// KEYS rows of WIDTH from device memory, of which `count` exist; zeros for the others.
template <typename T, int KEYS, int WIDTH, int STRIDE, typename P>
inline void stage(P from, Steps steps, threadgroup T* to, int count, int thread_index, int threads) {
  constexpr int chunk = 16 / int(sizeof(T));
  for (int i = thread_index; i < KEYS * WIDTH / chunk; i += threads) {
    const int key = i / (WIDTH / chunk), column = i % (WIDTH / chunk) * chunk;
    threadgroup T* const line = to + key * STRIDE + column;
    if (key >= count) {
      #pragma unroll
      for (int j = 0; j < chunk; j++) {
        line[j] = T(0);
      }
    } else if (steps.column == 1) {
      #pragma unroll
      for (int j = 0; j < chunk; j++) {
        line[j] = from[key * steps.row + column + j];
      }
    } else {
      #pragma unroll
      for (int j = 0; j < chunk; j++) {
        line[j] = from[key * steps.row + (column + j) * steps.column];
      }
    }
  }
}

// A tile of keys or values in threadgroup memory, from a plain cache or a quantized one.
template <
    typename T, int KEYS, int WIDTH, int STRIDE, int BITS, int GROUP, typename P, typename S,
    typename B>
inline void hold(
    P from, Steps steps, S scales, Steps scale_steps, B biases, Steps bias_steps,
    threadgroup T* to, int tile, int count, int thread_index, int threads) {
  if constexpr (BITS > 0) {
    unpack<T, KEYS, WIDTH, STRIDE, BITS, GROUP>(
        from, steps, scales, scale_steps, biases, bias_steps, to, tile, count, thread_index,
        threads);
  } else {
    stage<T, KEYS, WIDTH, STRIDE>(
        from + tile * steps.row, steps, to, count, thread_index, threads);
  }
}

}  // namespace macspec

// body
using macspec::matrix_row;
using macspec::matrix_column;
using macspec::row_max;
using macspec::row_sum;
using macspec::tile_keys;
using macspec::steps_of;
using macspec::hold;
using macspec::Steps;
constexpr int BITS = PACKING & 15, GROUP = PACKING >> 4;
constexpr int KEYS = tile_keys<T>(D > E ? D : E), PAD = 16 / int(sizeof(T));
constexpr int KEY_STRIDE = D + PAD, VALUE_STRIDE = E + PAD;
// Queries in registers, where those of the sums leave room; otherwise few addresses at a time.
constexpr bool HELD = D + E <= 256;
constexpr int AHEAD = HELD ? D / 8 : 4;
constexpr int OWN = KEYS / 8 / SHARE;
threadgroup T key_tile[KEYS * KEY_STRIDE];
threadgroup T value_tile[KEYS * VALUE_STRIDE];

const int rows = queries_shape[2], heads = keys_shape[1], length = keys_shape[2];
const int lines = queries_shape[1] / heads * rows;
const int parts = int(threadgroups_per_grid.x) / heads;
const int head = int(threadgroup_position_in_grid.x) / parts;
const int part = int(threadgroup_position_in_grid.x) % parts;
const int block = int(threadgroup_position_in_grid.y), blocks = int(threadgroups_per_grid.y);
const int threads = int(threads_per_threadgroup.x), thread_index = int(thread_index_in_threadgroup);
const int at = matrix_row(thread_index_in_simdgroup);
const int column = matrix_column(thread_index_in_simdgroup);

const int simdgroups = threads / 32 / SHARE, share = simdgroup_index_in_threadgroup / simdgroups;
const int first = (part * simdgroups + int(simdgroup_index_in_threadgroup) % simdgroups) * 8;
const int line = min(first + at, lines - 1);
const uint mine = sees[line % rows];
const auto query = queries + (head * (lines / rows) + line / rows) * size_t(queries_strides[1]) +
    line % rows * size_t(queries_strides[2]);
const int query_step = int(queries_strides[3]);
const auto head_keys = keys + head * size_t(keys_strides[1]);
const auto head_values = values + head * size_t(values_strides[1]);
const Steps key_steps = steps_of(keys_strides), value_steps = steps_of(values_strides);
const int before = length - rows, own = before + line % rows;
const int span = (length + KEYS * blocks - 1) / (KEYS * blocks) * KEYS;
const int end = min((block + 1) * span, length);
const float unit = scale * 1.44269504f;

float held[HELD ? D / 4 : 1];
if (HELD) {
  #pragma unroll
  for (int d = 0; d < D / 8; d++) {
    held[d * 2] = float(query[(d * 8 + column) * query_step]) * unit;
    held[d * 2 + 1] = float(query[(d * 8 + column + 1) * query_step]) * unit;
  }
}
simdgroup_matrix<float, 8, 8> mixed[E / 8];
#pragma unroll
for (int e = 0; e < E / 8; e++) {
  mixed[e] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
float top = -MAXFLOAT, total = 0;

for (int tile = block * span; tile < end; tile += KEYS) {
  const int count = min(KEYS, end - tile);
  hold<T, KEYS, D, KEY_STRIDE, BITS, GROUP>(
      head_keys, key_steps,
      key_scales + head * size_t(key_scales_strides[1]), steps_of(key_scales_strides),
      key_biases + head * size_t(key_biases_strides[1]), steps_of(key_biases_strides),
      key_tile, tile, count, thread_index, threads);
  hold<T, KEYS, E, VALUE_STRIDE, BITS, GROUP>(
      head_values, value_steps,
      value_scales + head * size_t(value_scales_strides[1]), steps_of(value_scales_strides),
      value_biases + head * size_t(value_biases_strides[1]), steps_of(value_biases_strides),
      value_tile, tile, count, thread_index, threads);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (first < lines) {
    simdgroup_matrix<float, 8, 8> scores[OWN];
    #pragma unroll
    for (int n = 0; n < OWN; n++) {
      scores[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    #pragma unroll(AHEAD)
    for (int d = 0; d < D / 8; d++) {
      simdgroup_matrix<float, 8, 8> q;
      const auto from_query = query + (d * 8 + column) * query_step;
      q.thread_elements()[0] = HELD ? held[d * 2] : float(from_query[0]) * unit;
      q.thread_elements()[1] = HELD ? held[d * 2 + 1] : float(from_query[query_step]) * unit;
      #pragma unroll
      for (int n = 0; n < OWN; n++) {
        const threadgroup T* from = key_tile + ((share * OWN + n) * 8 + column) * KEY_STRIDE + d * 8 + at;
        simdgroup_matrix<float, 8, 8> k;
        k.thread_elements()[0] = float(from[0]);
        k.thread_elements()[1] = float(from[KEY_STRIDE]);
        simdgroup_multiply_accumulate(scores[n], q, k, scores[n]);
      }
    }

    float best = top;
    #pragma unroll
    for (int n = 0; n < OWN; n++) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const int key = tile + (share * OWN + n) * 8 + column + i;
        const bool seen = key < before || key == own || (key < own && (mine >> (key - before) & 1));
        const float score = seen ? scores[n].thread_elements()[i] : -INFINITY;
        scores[n].thread_elements()[i] = score;
        best = max(best, score);
      }
    }
    best = row_max(best);
    const float factor = fast::exp2(top - best);
    top = best;
    total *= factor;
    #pragma unroll
    for (int n = 0; n < OWN; n++) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const float weight = fast::exp2(scores[n].thread_elements()[i] - top);
        scores[n].thread_elements()[i] = weight;
        total += weight;
      }
    }
    #pragma unroll
    for (int e = 0; e < E / 8; e++) {
      mixed[e].thread_elements()[0] *= factor;
      mixed[e].thread_elements()[1] *= factor;
      #pragma unroll
      for (int n = 0; n < OWN; n++) {
        const threadgroup T* from = value_tile + ((share * OWN + n) * 8 + at) * VALUE_STRIDE + e * 8 + column;
        simdgroup_matrix<float, 8, 8> v;
        v.thread_elements()[0] = float(from[0]);
        v.thread_elements()[1] = float(from[1]);
        simdgroup_multiply_accumulate(mixed[e], scores[n], v, mixed[e]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

if (first < lines) {
  total = row_sum(total);
  if (first + at < lines) {
    const size_t place = (size_t(block * SHARE + share) * heads + head) * lines + line;
    const float divisor = SPLIT ? 1.0f : total;
    #pragma unroll
    for (int e = 0; e < E / 8; e++) {
      out[place * E + e * 8 + column] = U(mixed[e].thread_elements()[0] / divisor);
      out[place * E + e * 8 + column + 1] = U(mixed[e].thread_elements()[1] / divisor);
    }
    if (column == 0) {
      norms[place * 2] = top;
      norms[place * 2 + 1] = total;
    }
  }
}
