// A row of DSpark: its logits and what the token before adds to them (rows of `after` times the one of
// `earlier`), in the target's vocabulary; -inf for ids that are not guessed (REDUCED: `places` says
// which guess each id is). What is no number counts as 0. EACH ids for a simdgroup; each number of the
// tables is read once.

// body
const uint lane = thread_index_in_simdgroup;
const uint first = thread_position_in_grid.x / 32 * EACH, width = WIDTH;
const uint rank = after_shape[1], guesses = after_shape[0];
const uint start = uint(previous[0]) * rank;

for (uint id = first; id < min(first + EACH, width); id++) {
  const uint guess = REDUCED ? uint(places[id]) : id;
  float sum = 0;
  if (guess < guesses) {
    for (uint i = lane; i < rank; i += 32) {
      sum = fma(float(after[guess * rank + i]), float(earlier[start + i]), sum);
    }
  }
  sum = simd_sum(sum);
  if (lane == 0) {
    float y = -INFINITY;
    if (guess < guesses) {
      y = float(logits[guess]) + sum;
      y = isnan(y) ? 0.0f : min(y, 3e38f);
    }
    out[id] = y;
  }
}
