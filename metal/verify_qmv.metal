// y = x * transposed(matrix) for a few rows of x: a weight is read and unpacked once for ROWS rows.
// It is dequantized in registers, LANES lanes along K; the other lanes of the simdgroup take further
// columns, so that they share the loads of x.

namespace macspec {

constant constexpr int COLUMNS = 4;  // of y, for each lane

}  // namespace macspec

// body
using macspec::chunk_values;
using macspec::read_chunk;
using macspec::weight;
using macspec::store;
using macspec::Chunk;
using macspec::COLUMNS;
constexpr int BITS = SHAPE & 15, GROUP = SHAPE >> 4 & 255, ROWS = SHAPE >> 12 & 15;
constexpr int LANES = SHAPE >> 16 & 1 ? 16 : 32, values = chunk_values<BITS>();
constexpr int STEPS = ROWS < 6 ? 8 : 4;  // at a time, as registers allow
constexpr bool EDGE = SHAPE >> 17 & 1, FLOAT = SHAPE >> 18 & 1;
const int rows = x_shape[x_ndim - 2], K = x_shape[x_ndim - 1], N = scales_shape[0];
const int lane = int(thread_index_in_simdgroup), along = lane % LANES;
const int simdgroup = int(threadgroup_position_in_grid.y * 2 + simdgroup_index_in_threadgroup);
const int column = (simdgroup * (32 / LANES) + lane / LANES) * COLUMNS;
const int columns = EDGE ? clamp(N - column, 0, COLUMNS) : COLUMNS;
const int row = int(threadgroup_position_in_grid.x) * ROWS, real = min(ROWS, rows - row);
float result[COLUMNS][ROWS] = {};
Chunk<BITS> chunks[COLUMNS] = {};
for (int k = along * values; k < K; k += LANES * values) {
  #pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    if (c < columns) {
      chunks[c] = read_chunk<BITS, GROUP, FLOAT>(w, scales, biases, K, column + c, k, true);
    }
  }
  #pragma unroll
  for (int i = 0; i < values; i += STEPS) {
    float weights[COLUMNS][STEPS];
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      #pragma unroll
      for (int j = 0; j < STEPS; j++) {
        weights[c][j] = weight<BITS, FLOAT>(chunks[c], i + j);
      }
    }
    #pragma unroll
    for (int m = 0; m < ROWS; m++) {
      const auto from = x + uint((row + min(m, real - 1)) * K + k + i);
      #pragma unroll
      for (int j = 0; j < STEPS; j++) {
        const float value = float(from[j]);
        #pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          result[c][m] += value * weights[c][j];
        }
      }
    }
  }
}
#pragma unroll
for (int c = 0; c < COLUMNS; c++) {
  #pragma unroll
  for (int m = 0; m < ROWS; m++) {
    float total = result[c][m];
    #pragma unroll
    for (ushort distance = LANES / 2; distance > 0; distance /= 2) {
      total += simd_shuffle_xor(total, distance);
    }
    if (along == 0 && c < columns && m < real) {
      store(y + (row + m) * N + column + c, total);
    }
  }
}
