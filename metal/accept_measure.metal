// For the block rule, what each row's probabilities are reckoned with: its largest logit and the
// logarithm of its normaliser (NaN where nothing can be drawn from it), and what truncation keeps.
// One threadgroup a row. Every logit is read twice, and with top-p or top-k (TRUNCATED) up to
// 7 times more, 12 in float32, and 2 more where top-k parts equals.

// body
using macspec::top_of;
using macspec::row_of;
using macspec::log_z_of;
using macspec::Team;
using macspec::Cut;
using macspec::BOUNDS;
threadgroup float numbers[THREADS / 32 * BOUNDS];
threadgroup uint counts[THREADS / 32 * BOUNDS];
const Team me = {
    numbers, counts, thread_index_in_threadgroup, thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint index = threadgroup_position_in_grid.x, width = logits_shape[1];
auto row_logits = logits + index * width;

const float top = top_of<THREADS>(row_logits, width, me).score;
Cut cut = {0, ~0u};
float log_z = NAN;
if (isfinite(top)) {
  const auto row = row_of<T, THREADS, TRUNCATED>(row_logits, width, top, options, me);
  cut = row.cut;
  log_z = log_z_of<T, THREADS>(row, me);
}
if (me.index == 0) {
  scales[2 * index] = top;
  scales[2 * index + 1] = log_z;
  cuts[2 * index] = cut.key;
  cuts[2 * index + 1] = cut.last;
}
