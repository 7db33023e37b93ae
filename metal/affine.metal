// MLX's affine quantized matrices: weight = scale * q + bias in groups along K, q a stream of bits.
// A lane takes a row of the matrix in chunks that are whole words and lie in one group.

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

// The chunk of row n that begins with weight k, or one of zeros.
template <int BITS, int GROUP, typename W, typename S>
inline Chunk<BITS> read_chunk(W w, S scales, S biases, int K, int n, int k, bool real) {
  constexpr int count = chunk_words<BITS>();
  Chunk<BITS> chunk = {};
  if (real) {
    const int first = n * (K / 32 * BITS) + k / chunk_values<BITS>() * count;
    #pragma unroll
    for (int i = 0; i < count; i++) {
      chunk.words[i] = w[first + i];
    }
    chunk.scale = float(scales[n * (K / GROUP) + k / GROUP]);
    chunk.bias = float(biases[n * (K / GROUP) + k / GROUP]);
  }
  return chunk;
}

// Bits below 2^23 as a float, by way of the mantissa of 2^23: a conversion takes four times as long
// as either step on the M1 and M2.
inline float number(uint bits) { return as_type<float>(0x4b000000u | bits) - 8388608.0f; }

// The i-th weight of a chunk. Where words hold whole values, each stays where it lies in its half of
// the word, and the scale is divided to meet it: both are exact.
template <int BITS>
inline float weight(const thread Chunk<BITS>& chunk, int i) {
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
