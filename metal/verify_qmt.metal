// y = x * transposed(matrix) for up to 32 rows of x, in the tensor units of the M5, which multiply
// 16 x 16 by 16 x 32 elements at a time. The simdgroups of a threadgroup, and threadgroups along z,
// divide K among themselves, and a lane takes its weights from chunks that it read itself, as in
// verify_qmm. Weights are rounded to the type of x, as in MLX's products of many rows.
//
// A lane holds four neighbours of two rows of each 16 x 16 elements, where MLX 0.32.4 has them
// (mlx/backend/metal/kernels/steel/gemm/nax.h, BaseNAXFrag).
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

namespace macspec {

constant constexpr int COLUMNS = 32;  // for each threadgroup
constant constexpr int SIMDGROUPS = 8;

// sums [16, 32] += left [16, 16] * transposed(right [32, 16]).
template <typename T>
inline void multiply(thread float* sums, const thread T* left, const thread T* right) {
  constexpr auto shape = mpp::tensor_ops::matmul2d_descriptor(
      16, 32, 16, false, true, true,
      mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
  mpp::tensor_ops::matmul2d<shape, metal::execution_simdgroup> unit;
  auto a = unit.template get_left_input_cooperative_tensor<T, T, float>();
  auto b = unit.template get_right_input_cooperative_tensor<T, T, float>();
  auto c = unit.template get_destination_cooperative_tensor<
      metal::remove_addrspace_t<decltype(a)>, metal::remove_addrspace_t<decltype(b)>, float>();
  #pragma unroll
  for (short i = 0; i < 8; i++) {
    a[i] = left[i];
  }
  #pragma unroll
  for (short i = 0; i < 16; i++) {
    b[i] = right[i];
    c[i] = sums[i];
  }
  unit.run(a, b, c);
  #pragma unroll
  for (short i = 0; i < 16; i++) {
    sums[i] = c[i];
  }
}

}  // namespace macspec

// body
using macspec::chunk_values;
using macspec::read_chunk;
using macspec::weight;
using macspec::store;
using macspec::Chunk;
using macspec::matrix_row;
using macspec::matrix_column;
using macspec::multiply;
using macspec::COLUMNS;
using macspec::SIMDGROUPS;
constexpr int BITS = SHAPE & 15, GROUP = SHAPE >> 4 & 255, TILES = SHAPE >> 12 & 7;
constexpr bool EDGE = SHAPE >> 15 & 1, FLOAT = SHAPE >> 16 & 1;
constexpr int COUNT = TILES * 16, values = chunk_values<BITS>();
threadgroup float shared[SIMDGROUPS / 2 * COUNT * 32];
const int rows = x_shape[x_ndim - 2], K = x_shape[x_ndim - 1], N = scales_shape[0];
const uint lane = thread_index_in_simdgroup;
const int simdgroup = int(simdgroup_index_in_threadgroup);
const int at = matrix_row(lane), quarter = matrix_column(lane) / 2;
const int row = int(threadgroup_position_in_grid.y) * TILES * 16 + at;
const int first = int(threadgroup_position_in_grid.x) * COLUMNS;
const int split = int(threadgroup_position_in_grid.z);
const int part = split * SIMDGROUPS + simdgroup, parts = int(threadgroups_per_grid.z) * SIMDGROUPS;
float sums[COUNT] = {};
// Every `parts`-th block of K from `part` on; step i takes the i-th values of four chunks.
for (int block = part * 4 * values; block < K; block += parts * 4 * values) {
  const int k = block + quarter * values;
  Chunk<BITS> chunks[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    const int n = first + at + j * 8;
    chunks[j] = read_chunk<BITS, GROUP, FLOAT>(
        w, scales, biases, K, n, k, !EDGE || (n < N && k < K));
  }
  #pragma unroll
  for (int i = 0; i < values; i += 4) {
    T right[16];
    #pragma unroll
    for (int j = 0; j < 16; j++) {
      right[j] = T(weight<BITS, FLOAT>(chunks[j / 4], i + j % 4));
    }
    #pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      T left[8] = {};
      #pragma unroll
      for (int j = 0; j < 2; j++) {
        const int m = row + tile * 16 + j * 8;
        if (m < rows && (!EDGE || k < K)) {
          #pragma unroll
          for (int step = 0; step < 4; step++) {
            left[j * 4 + step] = x[m * K + k + i + step];
          }
        }
      }
      multiply<T>(sums + tile * 16, left, right);
    }
  }
}

// Halves the number of partial sums until the first simdgroup has the whole.
#pragma unroll
for (int kept = SIMDGROUPS / 2; kept > 0; kept /= 2) {
  if (simdgroup >= kept && simdgroup < 2 * kept) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
      shared[((simdgroup - kept) * COUNT + i) * 32 + int(lane)] = sums[i];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup < kept) {
    #pragma unroll
    for (int i = 0; i < COUNT; i++) {
      sums[i] += shared[(simdgroup * COUNT + i) * 32 + int(lane)];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (simdgroup == 0) {
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const int m = row + i / 16 * 16 + i % 8 / 4 * 8;
    const int n = first + i % 16 / 8 * 16 + quarter * 4 + i % 4;
    if (m < rows && n < N) {
      store(y + (split * rows + m) * N + n, sums[i]);
    }
  }
}
