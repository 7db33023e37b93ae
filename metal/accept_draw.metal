// Each row's most likely token, or one drawn with the noise of stream TARGET; where there is none, ~0
// (JUDGED) or 0. One threadgroup a row. Every logit is read once (GREEDY), else twice, and with top-p
// or top-k (TRUNCATED) up to 7 times more, 12 in float32, and 2 more where top-k parts equals.

// body
using macspec::row_key;
using macspec::top_of;
using macspec::row_of;
using macspec::drawn_from;
using macspec::Team;
using macspec::Best;
using macspec::BOUNDS;
using macspec::TARGET;
threadgroup float numbers[THREADS / 32 * BOUNDS];
threadgroup uint counts[THREADS / 32 * BOUNDS];
const Team me = {
    numbers, counts, thread_index_in_threadgroup, thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint index = threadgroup_position_in_grid.x, width = logits_shape[1];
auto row_logits = logits + index * width;

Best best = top_of<THREADS>(row_logits, width, me);
const bool sound = isfinite(best.score);
if (sound && !GREEDY) {
  const auto row = row_of<T, THREADS, TRUNCATED>(row_logits, width, best.score, options, me);
  best = drawn_from<T, THREADS>(row, row_key(place, TARGET, uint(depths[index])), me);
}
if (me.index == 0) drawn[index] = sound ? best.id : JUDGED ? ~0u : 0u;
