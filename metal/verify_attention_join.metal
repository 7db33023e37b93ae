// Joins what verify_attention made of the stretches of a context: a simdgroup for every row and head.
// `norms`: of each stretch the largest score, in powers of 2, and the sum of weights relative to it.

// body
const int lines = partial_shape[1] * partial_shape[2], blocks = partial_shape[0];
const int line = int(threadgroup_position_in_grid.y), lane = int(thread_index_in_simdgroup);

float top = -MAXFLOAT;
for (int b = 0; b < blocks; b++) {
  top = max(top, norms[(b * lines + line) * 2]);
}
float total = 0, mixed[(E + 31) / 32] = {};
for (int b = 0; b < blocks; b++) {
  const int place = b * lines + line;
  const float weight = fast::exp2(norms[place * 2] - top);
  total += weight * norms[place * 2 + 1];
  #pragma unroll
  for (int i = 0; i < (E + 31) / 32; i++) {
    if (lane + 32 * i < E) {
      mixed[i] += weight * partial[place * E + lane + 32 * i];
    }
  }
}
#pragma unroll
for (int i = 0; i < (E + 31) / 32; i++) {
  if (lane + 32 * i < E) {
    out[line * E + lane + 32 * i] = T(mixed[i] / total);
  }
}
