// One draft step under the block rule: a token drawn from a row with the noise of stream DRAFT, and
// the log-probabilities that it was drawn from. One threadgroup. Every logit is read three times,
// and with top-p or top-k (TRUNCATED) up to 7 times more, 12 in float32, and 2 more where top-k
// parts equals. Where nothing can be drawn the token is 0 and the log-probabilities are NaN.

// body
using macspec::row_key;
using macspec::gumbel_at;
using macspec::best_of_all;
using macspec::top_of;
using macspec::row_of;
using macspec::log_chance;
using macspec::log_z_of;
using macspec::Team;
using macspec::Best;
using macspec::BOUNDS;
using macspec::DRAFT;
threadgroup float numbers[THREADS / 32 * BOUNDS];
threadgroup uint counts[THREADS / 32 * BOUNDS];
const Team me = {
    numbers, counts, thread_index_in_threadgroup, thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint width = logits_shape[1];

const float top = top_of<THREADS>(logits, width, me).score;
if (isfinite(top)) {
  const auto row = row_of<T, THREADS, TRUNCATED>(logits, width, top, options, me);
  const float log_z = log_z_of<T, THREADS>(row, me);
  const uint2 key = row_key(place, DRAFT, 0);
  Best mine = {-INFINITY, ~0u};
  for (uint i = me.index; i < width; i += THREADS) {
    const float log_p = log_chance<T>(row, log_z, i);
    log_q[i] = log_p;
    if (log_p > -INFINITY) {
      const float score = log_p + gumbel_at(key, i);
      if (score > mine.score) mine = Best{score, i};
    }
  }
  const Best best = best_of_all<THREADS / 32>(mine, me);
  if (me.index == 0) token[0] = best.id;
} else {
  for (uint i = me.index; i < width; i += THREADS) log_q[i] = NAN;
  if (me.index == 0) token[0] = 0;
}
