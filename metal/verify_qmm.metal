// y = x * transposed(matrix) for up to 32 rows of x, in 8 x 8 simdgroup matrices of float.
// The simdgroups of a threadgroup, and threadgroups along z, divide K among themselves.
//
// The order along K is free: step i multiplies the i-th values of eight chunks, so each lane takes
// its weights from words that it read itself, and none pass through threadgroup memory.

namespace macspec {

constant constexpr int STRIPS = 4;  // of 8 columns, for each threadgroup
constant constexpr int SIMDGROUPS = 8;

}  // namespace macspec

// body
using macspec::chunk_values;
using macspec::read_chunk;
using macspec::weight;
using macspec::store;
using macspec::Chunk;
using macspec::matrix_row;
using macspec::matrix_column;
using macspec::STRIPS;
using macspec::SIMDGROUPS;
constexpr int BITS = SHAPE & 15, GROUP = SHAPE >> 4 & 255, TILES = SHAPE >> 12 & 7;
constexpr bool EDGE = SHAPE >> 15 & 1, FLOAT = SHAPE >> 16 & 1;
constexpr int COUNT = TILES * STRIPS, values = chunk_values<BITS>();
constexpr int STEPS = TILES < 4 ? 4 : 2;  // at a time, as registers allow
threadgroup float shared[SIMDGROUPS / 2 * COUNT * 64];
const int rows = x_shape[x_ndim - 2], K = x_shape[x_ndim - 1], N = scales_shape[0];
const uint lane = thread_index_in_simdgroup;
const int simdgroup = int(simdgroup_index_in_threadgroup);
const int row = int(threadgroup_position_in_grid.y) * TILES * 8 + matrix_row(lane);
const int column = int(threadgroup_position_in_grid.x) * STRIPS * 8 + matrix_column(lane);
const int split = int(threadgroup_position_in_grid.z);
const int part = split * SIMDGROUPS + simdgroup, parts = int(threadgroups_per_grid.z) * SIMDGROUPS;
simdgroup_matrix<float, 8, 8> sums[COUNT];
#pragma unroll
for (int i = 0; i < COUNT; i++) {
  sums[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
}
// Every `parts`-th block of K from `part` on.
for (int block = part * 8 * values; block < K; block += parts * 8 * values) {
  Chunk<BITS> chunks[STRIPS][2];
  #pragma unroll
  for (int strip = 0; strip < STRIPS; strip++) {
    #pragma unroll
    for (int j = 0; j < 2; j++) {
      const int n = column + strip * 8 + j, k = block + matrix_row(lane) * values;
      chunks[strip][j] = read_chunk<BITS, GROUP, FLOAT>(
          w, scales, biases, K, n, k, !EDGE || (n < N && k < K));
    }
  }
  #pragma unroll
  for (int i = 0; i < values; i += STEPS) {
    float inputs[TILES][2][STEPS] = {};
    #pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        const int m = row + tile * 8, k = block + (matrix_column(lane) + j) * values;
        if (m < rows && (!EDGE || k < K)) {
          #pragma unroll
          for (int step = 0; step < STEPS; step++) {
            inputs[tile][j][step] = float(x[m * K + k + i + step]);
          }
        }
      }
    }
    #pragma unroll
    for (int step = 0; step < STEPS; step++) {
      simdgroup_matrix<float, 8, 8> left[TILES], right;
      #pragma unroll
      for (int tile = 0; tile < TILES; tile++) {
        left[tile].thread_elements()[0] = inputs[tile][0][step];
        left[tile].thread_elements()[1] = inputs[tile][1][step];
      }
      #pragma unroll
      for (int strip = 0; strip < STRIPS; strip++) {
        right.thread_elements()[0] = weight<BITS, FLOAT>(chunks[strip][0], i + step);
        right.thread_elements()[1] = weight<BITS, FLOAT>(chunks[strip][1], i + step);
        #pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
          simdgroup_multiply_accumulate(
              sums[tile * STRIPS + strip], left[tile], right,
              sums[tile * STRIPS + strip]);
        }
      }
    }
  }
}

// Halves the number of partial sums until the first simdgroup has the whole.
#pragma unroll
for (int kept = SIMDGROUPS / 2; kept > 0; kept /= 2) {
  if (simdgroup >= kept && simdgroup < 2 * kept) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int place = (simdgroup - kept) * COUNT * 64 + i * 64 + int(lane);
      shared[place] = sums[i].thread_elements()[0];
      shared[place + 32] = sums[i].thread_elements()[1];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup < kept) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int place = simdgroup * COUNT * 64 + i * 64 + int(lane);
      sums[i].thread_elements()[0] += shared[place];
      sums[i].thread_elements()[1] += shared[place + 32];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (simdgroup == 0) {
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const int m = row + i / STRIPS * 8;
    const int n = column + i % STRIPS * 8;
    #pragma unroll
    for (int j = 0; j < 2; j++) {
      if (m < rows && n + j < N) {
        store(y + (split * rows + m) * N + n + j, sums[i].thread_elements()[j]);
      }
    }
  }
}
