// Follows the target's draws through a chain or tree of drafted tokens. One simdgroup, a lane for
// each node. `nodes`: the row of each node's parent, its depth, and bits of the path down to it.

// body
const uint lane = thread_index_in_simdgroup;
const uint rows = drawn_shape[0], width = nodes_shape[1];
const bool here = lane + 1 < rows;
const uint up = here ? nodes[lane] : 0;
const uint down = here ? nodes[width + lane] : 0;
const uint way = here ? nodes[2 * width + lane] : 0;
const uint refused = simd_or(here && drawn[up] != drafted[lane] ? 1u << lane : 0u);
const uint longest = simd_max(here && (way & refused) == 0 ? down : 0u);
const uint ends = simd_or(here && (way & refused) == 0 && down == longest ? 1u << lane : 0u);
const uint last = longest > 0 ? ctz(ends) : 0;
const uint taken = simd_shuffle(way, ushort(last));
const bool broken = simd_any(drawn[min(lane, rows - 1)] == ~0u || drawn[rows - 1] == ~0u);

if (lane >= longest) path[lane] = -1;
if (longest > 0 && (taken >> lane & 1)) path[down - 1] = int(lane);
if (lane == 0) {
  accepted[0] = broken ? -1 : int(longest);
  token[0] = broken ? 0 : drawn[longest > 0 ? last + 1 : 0];
}
