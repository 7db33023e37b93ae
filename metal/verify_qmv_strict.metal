// verify_qmv in the order of plain decoding, for the same bits.
//
// The arithmetic is that of MLX's one-row kernels affine_qmv_fast and affine_qmv
// (mlx/backend/metal/kernels/quantized.h, MLX 0.32.4), operation by operation. MLX's notice:
//
// MIT License. Copyright © 2023 Apple Inc.
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.

namespace macspec {

constant constexpr int COLUMNS = 4;  // of y, for each lane

// Where a lane works: its first row and column, how many of them exist, its place along K.
struct Tile {
  int row, rows, column, columns, along;
};

// The bits that MLX masks together: 16 of a 4-bit matrix, otherwise a byte.
template <int BITS>
constexpr int window_bits() {
  return BITS == 4 ? 16 : 8;
}

// The i-th of a lane's windows, which came in units of UNIT bits.
template <int BITS, int UNIT>
inline int window(const thread uint* units, int i) {
  constexpr int width = window_bits<BITS>();
  return int(units[i * width / UNIT] >> (i * width % UNIT)) & ((1 << width) - 1);
}

// A lane's values in place: q << shift, so that x / (1 << shift) needs no shift of q; of a value
// that crosses two bytes, the part in the second byte apart. Every one of them is a half exactly.
template <int BITS, int VALUES, int UNIT>
inline void unpack(const thread uint* units, thread half* low, thread half* high) {
  constexpr int width = window_bits<BITS>(), mask = (1 << BITS) - 1;
  #pragma unroll
  for (int i = 0; i < VALUES; i++) {
    const int index = i * BITS / width, shift = i * BITS % width;
    low[i] = half(window<BITS, UNIT>(units, index) & (mask << shift));
    high[i] = half(0);
    if (shift + BITS > width) {
      high[i] = half(window<BITS, UNIT>(units, index + 1) & (mask >> (width - shift)));
    }
  }
}

// x of a lane, divided to meet `unpack`; returns its sum in MLX's order.
template <int BITS, int VALUES, typename X>
inline float spread(X x, thread float* divided) {
  constexpr int together = BITS == 8 ? 1 : BITS == 3 || BITS == 5 ? 8 : 4;
  float sum = 0;
  #pragma unroll
  for (int i = 0; i < VALUES; i += together) {
    float part = float(x[i]);
    #pragma unroll
    for (int j = 1; j < together; j++) {
      part += float(x[i + j]);
    }
    sum += part;
  }
  #pragma unroll
  for (int i = 0; i < VALUES; i++) {
    divided[i] = float(x[i]) / float(1 << (i * BITS % window_bits<BITS>()));
  }
  return sum;
}

template <int BITS, int VALUES>
inline float product(
    const thread half* low, const thread half* high, const thread float* x,
    float scale, float bias, float sum) {
  constexpr int width = window_bits<BITS>();
  float a = 0;
  if (BITS == 2 || BITS == 4) {
    #pragma unroll
    for (int i = 0; i < VALUES; i += 4) {
      a += (x[i] * float(low[i]) + x[i + 1] * float(low[i + 1]) + x[i + 2] * float(low[i + 2]) +
            x[i + 3] * float(low[i + 3]));
    }
  } else {
    #pragma unroll
    for (int i = 0; i < VALUES; i++) {
      a += float(low[i]) * x[i];
      if (i * BITS % width + BITS > width) {
        a += float(high[i]) * (x[i] * 256.0f);
      }
    }
  }
  return scale * a + sum * bias;
}

// Bit for bit what MLX's kernel for one row computes: the same values in the same lane, VALUES at a
// time, the same expressions, the same sum over the lanes.
template <
    int BITS, int GROUP, int ROWS, int VALUES, int UNIT, typename X, typename W, typename S,
    typename T>
inline void ordered(X x, W w, S scales, S biases, device T* y, int K, int N, Tile tile) {
  constexpr int units = VALUES * BITS / UNIT;
  float result[COLUMNS][ROWS] = {};
  for (int k = tile.along * VALUES; k < K; k += 32 * VALUES) {
    half low[COLUMNS][VALUES], high[COLUMNS][VALUES];
    float s[COLUMNS], b[COLUMNS];
    #pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      if (c < tile.columns) {
        uint packed[units];
        #pragma unroll
        for (int i = 0; i < units; i++) {
          packed[i] = w[(tile.column + c) * (K / VALUES * units) + k / VALUES * units + i];
        }
        unpack<BITS, VALUES, UNIT>(packed, low[c], high[c]);
        s[c] = float(scales[(tile.column + c) * (K / GROUP) + k / GROUP]);
        b[c] = float(biases[(tile.column + c) * (K / GROUP) + k / GROUP]);
      }
    }
    #pragma unroll
    for (int m = 0; m < ROWS; m++) {
      float values[VALUES];
      const float sum =
          spread<BITS, VALUES>(x + (tile.row + min(m, tile.rows - 1)) * K + k, values);
      #pragma unroll
      for (int c = 0; c < COLUMNS; c++) {
        if (c < tile.columns) {
          result[c][m] += product<BITS, VALUES>(low[c], high[c], values, s[c], b[c], sum);
        }
      }
    }
  }
  #pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    #pragma unroll
    for (int m = 0; m < ROWS; m++) {
      const float total = simd_sum(result[c][m]);
      if (tile.along == 0 && c < tile.columns && m < tile.rows) {
        y[(tile.row + m) * N + tile.column + c] = static_cast<T>(total);
      }
    }
  }
}

}  // namespace macspec

// body
using macspec::ordered;
using macspec::Tile;
using macspec::COLUMNS;
constexpr int BITS = SHAPE & 15, GROUP = SHAPE >> 4 & 255, ROWS = SHAPE >> 12 & 15;
constexpr int VALUES = SHAPE >> 16 & 31;
constexpr bool EDGE = SHAPE >> 21 & 1;
const int rows = x_shape[x_ndim - 2], K = x_shape[x_ndim - 1], N = scales_shape[0];
Tile tile;
tile.row = int(threadgroup_position_in_grid.x) * ROWS;
tile.rows = min(ROWS, rows - tile.row);
tile.column =
    int(threadgroup_position_in_grid.y * 2 + simdgroup_index_in_threadgroup) * COLUMNS;
tile.columns = EDGE ? clamp(N - tile.column, 0, COLUMNS) : COLUMNS;
tile.along = int(thread_index_in_simdgroup);
ordered<BITS, GROUP, ROWS, VALUES, 8 * sizeof(w[0])>(x, w, scales, biases, y, K, N, tile);
