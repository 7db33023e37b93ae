// The walk of DFlash 2 along a block: of each row's candidates the one with the best sum of its own
// logit and of what pairs it with the token chosen before (GREEDY), or one drawn from those sums with
// the noise of stream DRAFT (KEEPS) or TARGET; and the log-probabilities that were drawn from. One
// threadgroup; a lane of its first simdgroup for each candidate. What is no number counts as 0.
// Where nothing can be chosen the token is 0 and the log-probabilities are NaN.

// body
using macspec::row_key;
using macspec::gumbel_at;
using macspec::TARGET;
using macspec::DRAFT;
threadgroup float pairs[32];
threadgroup uint chosen[1];
const uint lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
const uint rows = ids_shape[0], count = ids_shape[1], rank = projected_shape[1];

uint before = anchor[0];
for (uint row = 0; row < rows; row++) {
  for (uint at = group; at < count; at += GROUPS) {
    const uint id = ids[row * count + at];
    float sum = 0;
    for (uint i = lane; i < rank; i += 32) {
      const T left = predecessor[before * rank + i] * projected[row * rank + i];
      sum = fma(float(left), float(successor[id * rank + i]), sum);
    }
    sum = simd_sum(sum);
    if (lane == 0) pairs[at] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (group == 0) {
    const bool real = lane < count;
    const uint id = real ? uint(ids[row * count + lane]) : ~0u;
    float x = real ? unary[row * count + lane] + float(T(pairs[lane])) : -INFINITY;
    x = isnan(x) ? 0.0f : min(x, 3e38f);

    const float top = simd_max(x);
    const float share = metal::exp(x - top), all = simd_sum(share);
    float above = 0;
    uint better = 0;
    for (uint k = 0; k < count; k++) {
      const float other = simd_shuffle(x, ushort(k));
      const float mass = simd_shuffle(share, ushort(k));
      const uint rival = simd_shuffle(id, ushort(k));
      above += other > x ? mass : 0.0f;
      better += other > x || (other == x && rival < id);
    }
    const bool likely = options[1] >= 1 || above < options[1] * all;
    const bool kept = likely && float(better) < options[3] && x - top >= options[2];
    const float lifted = (x - top) * options[0];
    const float log_z = metal::log(simd_sum(kept ? metal::exp(lifted) : 0.0f));
    const float log_p = kept ? lifted - log_z : -INFINITY;

    float score = x;
    if (!GREEDY && log_p > -INFINITY) {
      score = log_p + gumbel_at(row_key(place, KEEPS ? DRAFT : TARGET, row), id);
    } else if (!GREEDY) {
      score = -INFINITY;
    }
    const float best = simd_max(score);
    const uint found = simd_min(score == best ? id : ~0u);
    const bool sound = top > -INFINITY;
    if (lane == 0) {
      chosen[0] = sound ? found : 0u;
      tokens[row] = sound ? found : 0u;
    }
    if (real) log_q[row * count + lane] = sound ? log_p : NAN;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  before = chosen[0];
}
