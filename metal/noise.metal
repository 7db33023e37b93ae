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
