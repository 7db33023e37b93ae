// Block verification (Sun et al. 2024, arXiv:2403.10444) in the notation of
// macspec/verification/block.py. One threadgroup goes from the chain's end back to the last
// accepted token, reads each row on the way once, and draws from the row where it stops, reading
// that up to twice more; the logits of the drafted tokens are read once besides.

namespace macspec {

template <typename P, typename S, typename C, typename O>
inline Row<P> row_at(P logits, uint width, S scales, C cuts, O options, uint index) {
  const Cut cut = {cuts[2 * index], cuts[2 * index + 1]};
  return Row<P>{logits + index * width, width, scales[2 * index], options[0], options[2], cut};
}

// Weight of an id in the residual max(b p - q, 0); ids that the draft does not have have q = 0.
template <typename T, typename P, typename Q>
inline float residual(Row<P> row, float log_z, Q log_q, uint draft_width, float b, uint id) {
  const float p = metal::exp(log_chance<T>(row, log_z, id));
  const float q = id < draft_width ? metal::exp(log_q[id]) : 0.0f;
  return max(fma(b, p, -q), 0.0f);
}

}  // namespace macspec

// body
using macspec::row_key;
using macspec::uniform_at;
using macspec::gumbel_at;
using macspec::sum_of_all;
using macspec::best_of_all;
using macspec::log_chance;
using macspec::drawn_from;
using macspec::Team;
using macspec::Best;
using macspec::BOUNDS;
using macspec::ACCEPT;
using macspec::RESIDUAL;
using macspec::row_at;
using macspec::residual;
threadgroup float numbers[THREADS / 32 * BOUNDS];
threadgroup uint counts[THREADS / 32 * BOUNDS];
threadgroup float ratios[32];
const Team me = {
    numbers, counts, thread_index_in_threadgroup, thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint depth = drafted_shape[0], draft_width = log_q_shape[1], width = logits_shape[1];

if (me.index < depth) {
  const uint x = drafted[me.index];
  const auto row = row_at(logits, width, scales, cuts, options, me.index);
  const float p = x < width ? log_chance<T>(row, scales[2 * me.index + 1], x) : -INFINITY;
  ratios[me.index] = p - (x < draft_width ? log_q[me.index * draft_width + x] : -INFINITY);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
// In every simdgroup lane i has b after i + 1 tokens.
float walk = 0, highest = 0, b = 1;
for (uint i = 0; i < depth; i++) {
  walk += ratios[i];
  highest = max(highest, walk);
  if (me.lane == i) b = metal::exp(walk - highest);
}
const bool wrong = isnan(b) || (me.lane <= depth && isnan(scales[2 * me.lane + 1])) ||
    isnan(scales[2 * depth + 1]);

if (simd_any(wrong)) {
  if (me.index == 0) {
    accepted[0] = -1;
    token[0] = 0;
  }
} else {
  uint kept = 0;
  float start = 1;
  for (uint i = depth; i > 0 && kept == 0; i--) {
    const float after = simd_shuffle(b, ushort(i - 1));
    float h = after;
    if (i < depth) {
      const auto row = row_at(logits, width, scales, cuts, options, i);
      const float log_z = scales[2 * i + 1];
      float mine = 0;
      for (uint id = me.index; id < width; id += THREADS) {
        mine += residual<T>(row, log_z, log_q + i * draft_width, draft_width, after, id);
      }
      const float r = sum_of_all<THREADS / 32>(mine, me);
      const float rest = r + (1 - after);
      h = rest > 0 ? r / rest : 1.0f;
    }
    if (uniform_at(row_key(place, ACCEPT, i - 1), 0) <= h) {
      kept = i;
      start = after;
    }
  }

  const auto row = row_at(logits, width, scales, cuts, options, kept);
  const float log_z = scales[2 * kept + 1];
  const uint2 key = row_key(place, RESIDUAL, 0);
  Best best = {-INFINITY, ~0u};
  if (kept < depth) {
    const auto log_q_row = log_q + kept * draft_width;
    Best mine = {-INFINITY, ~0u};
    for (uint id = me.index; id < width; id += THREADS) {
      const float weight = residual<T>(row, log_z, log_q_row, draft_width, start, id);
      if (weight > 0) {
        const float score = metal::log(weight) + gumbel_at(key, id);
        if (score > mine.score) mine = Best{score, id};
      }
    }
    best = best_of_all<THREADS / 32>(mine, me);
  }
  // The bonus token, or a residual that is zero everywhere: the target's own.
  if (best.score == -INFINITY) best = drawn_from<T, THREADS>(row, key, me);
  if (me.index == 0) {
    accepted[0] = int(kept);
    token[0] = best.id;
  }
}
