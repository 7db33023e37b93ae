// Each row's most likely token, or one drawn with the noise of stream TARGET; BROKEN where there is
// none. One threadgroup a row. Every logit is read once (GREEDY), else twice, and with top-p or
// top-k (TRUNCATED) up to 7 times more, 12 in float32, and 2 more where top-k parts equals.

// body
constexpr uint SCRATCH = THREADS / 32 * BOUNDS;
threadgroup float numbers[SCRATCH];
threadgroup uint counts[SCRATCH];
const Team me = {
    thread_index_in_threadgroup, thread_index_in_simdgroup, simdgroup_index_in_threadgroup};
const uint index = threadgroup_position_in_grid.x, width = logits_shape[1];
auto row_logits = logits + index * width;

Best best = top_of<THREADS>(row_logits, width, numbers, counts, me);
const bool sound = isfinite(best.score);
if (sound && !GREEDY) {
  Cut cut = {0, ~0u};
  if (TRUNCATED) {
    cut = cut_of<T, THREADS>(
        row_logits, width, best.score, options[1], uint(options[3]), numbers, counts, me);
  }
  const Row<decltype(row_logits)> row = {
      row_logits, width, best.score, options[0], options[2], cut};
  best = drawn_from<T, THREADS>(
      row, row_key(place, TARGET, uint(depths[index])), numbers, counts, me);
}
if (me.index == 0) drawn[index] = sound ? best.id : uint(BROKEN);
