// Gated delta nets over a few rows. Of a head's state S, values by keys, each row of the text makes
//   S <- S diag(g),  u = beta (v - S k),  S <- S + u k^T,  y = S q.
// First come `kept` rows of the pass before, without outputs; then S is written; then the new rows.
//
// A row of S is shared by LANES lanes, each with neighbouring columns. Its sums are added in the
// order of mlx-lm's kernels (mlx_lm/models/gated_delta.py), whatever LANES is: one after the other
// in each of 32 parts of the columns, and the parts in pairs at distances 1, 2, 4, 8 and 16.

namespace macspec {

// What the lanes of a row hold together, each PARTS of the 32 parts.
template <int LANES>
inline float sum_of_parts(thread float* part) {
  constexpr int PARTS = 32 / LANES;
  #pragma unroll
  for (int n = 1; n < PARTS; n *= 2) {
    #pragma unroll
    for (int i = 0; i < PARTS; i += 2 * n) part[i] += part[i + n];
  }
  float sum = part[0];
  #pragma unroll
  for (int n = 1; n < LANES; n *= 2) sum += simd_shuffle_xor(sum, ushort(n));
  return sum;
}

// A row's decay: one number for each head, or one for each column.
template <bool BY_COLUMN, typename P>
inline float gate(P g, int row_and_head, int width, int column) {
  return float(BY_COLUMN ? g[row_and_head * width + column] : g[row_and_head]);
}

// Takes one row of the text into a lane's columns of S.
template <int WIDTH, int LANES, bool BY_COLUMN, typename K, typename G>
inline void advance(
    thread float* s, K k, int at, G g, int row_and_head, int column, float v, float beta) {
  constexpr int PARTS = 32 / LANES, EACH = WIDTH / 32;
  float part[PARTS];
  #pragma unroll
  for (int p = 0; p < PARTS; p++) {
    float sum = 0;
    #pragma unroll
    for (int i = p * EACH; i < (p + 1) * EACH; i++) {
      s[i] = s[i] * gate<BY_COLUMN>(g, row_and_head, WIDTH, column + i);
      sum += s[i] * float(k[at + i]);
    }
    part[p] = sum;
  }
  const float u = (v - sum_of_parts<LANES>(part)) * beta;
  #pragma unroll
  for (int i = 0; i < PARTS * EACH; i++) s[i] = s[i] + float(k[at + i]) * u;
}

}  // namespace macspec

// body
using macspec::sum_of_parts;
using macspec::advance;
constexpr int PARTS = 32 / LANES, EACH = WIDTH / 32, COLUMNS = PARTS * EACH;
const int head = int(thread_position_in_grid.y), key_head = head / (HEADS / KEY_HEADS);
const int value = int(thread_position_in_grid.x) / LANES;
const int column = int(thread_position_in_grid.x) % LANES * COLUMNS;
const int place = (head * VALUE_WIDTH + value) * WIDTH + column;

float s[COLUMNS];
for (int i = 0; i < COLUMNS; i++) s[i] = state[place + i];

for (int t = 0; t < kept; t++) {
  const int at = (t * KEY_HEADS + key_head) * WIDTH + column, own = t * HEADS + head;
  const float v = float(old_v[own * VALUE_WIDTH + value]), beta = float(old_beta[own]);
  advance<WIDTH, LANES, BY_COLUMN>(s, old_k, at, old_g, own, column, v, beta);
}
for (int i = 0; i < COLUMNS; i++) after[place + i] = s[i];

for (int t = 0; t < q_shape[1]; t++) {
  const int at = (t * KEY_HEADS + key_head) * WIDTH + column, own = t * HEADS + head;
  const float v = float(new_v[own * VALUE_WIDTH + value]), beta = float(new_beta[own]);
  advance<WIDTH, LANES, BY_COLUMN>(s, new_k, at, new_g, own, column, v, beta);
  float part[PARTS];
  for (int p = 0; p < PARTS; p++) {
    float sum = 0;
    for (int i = p * EACH; i < (p + 1) * EACH; i++) sum += s[i] * float(q[at + i]);
    part[p] = sum;
  }
  const float out = sum_of_parts<LANES>(part);
  if (column == 0) y[own * VALUE_WIDTH + value] = T(out);
}
