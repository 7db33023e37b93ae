// MLX's quantized matrices, in groups along K: affine, weight = scale * q + bias, q a stream of bits;
// FLOAT, weight = scale * q, q and scale small floats: E2M1 and E8M0 (mxfp4), E4M3 and E8M0 (mxfp8),
// E2M1 and E4M3 in groups of 16 (nvfp4). NaN, which MLX never writes, is not told apart.
// A lane takes a row of the matrix in chunks that are whole words and lie in one group.

namespace macspec {

template <int BITS>
constexpr int chunk_words() {
  return BITS == 2 ? 1 : BITS == 4 || BITS == 8 ? 2 : BITS == 6 ? 3 : BITS;
}

template <int BITS>
constexpr int chunk_values() {
  return chunk_words<BITS>() * 32 / BITS;
}

template <int BITS>
struct Chunk {
  uint words[chunk_words<BITS>()];
  float scale, bias;
};

// Small floats as halves, which have a smaller exponent for the same value: what to multiply them by.
constant constexpr float E2M1 = 16384.0f, E4M3 = 256.0f;

template <int GROUP>
inline float small_scale(uint bits) {
  if (GROUP == 16) {
    return float(as_type<half>(ushort(bits << 7))) * E4M3;
  }
  return as_type<float>(bits << 23);
}

// The chunk of row n that begins with weight k, or one of zeros. FLOAT has no biases.
template <int BITS, int GROUP, bool FLOAT, typename W, typename S>
inline Chunk<BITS> read_chunk(W w, S scales, S biases, int K, int n, int k, bool real) {
  constexpr int count = chunk_words<BITS>();
  Chunk<BITS> chunk = {};
  if (real) {
    // Unsigned, an index takes one register beside a base that all lanes share.
    const auto from = w + uint(n * (K / 32 * BITS) + k / chunk_values<BITS>() * count);
    const uint group = uint(n * (K / GROUP) + k / GROUP);
    #pragma unroll
    for (int i = 0; i < count; i++) {
      chunk.words[i] = from[i];
    }
    if constexpr (FLOAT) {
      chunk.scale = small_scale<GROUP>(scales[group]) * (BITS == 4 ? E2M1 : E4M3);
    } else {
      chunk.scale = float(scales[group]);
      chunk.bias = float(biases[group]);
    }
  }
  return chunk;
}

// Bits below 2^23 as a float, by way of the mantissa of 2^23: a conversion takes four times as long
// as either step on the M1 and M2.
inline float number(uint bits) { return as_type<float>(0x4b000000u | bits) - 8388608.0f; }

// The i-th small float of a chunk, as a half: taken from both halves of a word at once.
template <int BITS>
inline half small_half(const thread Chunk<BITS>& chunk, int i) {
  constexpr int each = 16 / BITS;
  constexpr uint sign = 1u << (BITS - 1) | 1u << (BITS + 15);
  constexpr uint rest = sign - (1u | 1u << 16);
  constexpr int exponent = BITS == 4 ? 9 : 7;  // where the lowest bit of the rest belongs
  const uint word = chunk.words[i / (2 * each)];
  const int at = i % each * BITS, up = exponent - at;
  const uint magnitude = up < 0 ? (word & rest << at) >> -up : (word & rest << at) << up;
  const uint both = magnitude | (word & sign << at) << (16 - BITS - at);
  return as_type<half2>(both)[i / each % 2];
}

// The i-th weight of a chunk. Where words hold whole values, each stays where it lies in its half of
// the word, and the scale is divided to meet it: both are exact.
template <int BITS, bool FLOAT>
inline float weight(const thread Chunk<BITS>& chunk, int i) {
  if constexpr (FLOAT) {
    return chunk.scale * float(small_half<BITS>(chunk, i));
  }
  constexpr uint mask = (1u << BITS) - 1;
  const int word = i * BITS / 32, shift = i * BITS % 32, at = shift % 16;
  if (32 % BITS == 0) {
    const uint bits = shift < 16 ? chunk.words[word] : chunk.words[word] >> 16;
    return chunk.scale * (1.0f / float(1 << at)) * number(bits & mask << at) + chunk.bias;
  }
  uint q = chunk.words[word] >> shift;
  if (shift + BITS > 32) {
    q |= chunk.words[word + 1] << (32 - shift);
  }
  return chunk.scale * number(q & mask) + chunk.bias;
}

// A product in the type of `y`.
template <typename Y>
inline void store(device Y* y, float sum) {
  *y = static_cast<Y>(sum);
}

}  // namespace macspec
