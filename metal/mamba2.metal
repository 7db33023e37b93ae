// Mamba-2 (Dao and Gu 2024, arXiv:2405.21060) over the kept rows of the pass before and all rows of
// this one, one after the other. A simdgroup holds LINES lines of a head's state [Dh, S] in its
// registers: they are read once, and written once, as of the last kept row.
// Lanes, expressions and sums are those of mlx-lm's `ssm_kernel`, which takes one row: the bits are
// those of as many calls of it.

namespace macspec {

template <int N, typename P>
inline void load(thread float (&to)[N], P from, size_t step) {
  #pragma unroll
  for (int i = 0; i < N; i++) {
    to[i] = static_cast<float>(from[i * step]);
  }
}

// One row into the state.
template <int LINES, int PART>
inline void fold(
    thread float (&held)[LINES][PART],
    thread const float (&x)[LINES],
    thread const float (&b)[PART],
    float a,
    float dt) {
  const float decay = fast::exp(a * dt);
  #pragma unroll
  for (int l = 0; l < LINES; l++) {
    #pragma unroll
    for (int i = 0; i < PART; i++) {
      const float db_by_x = x[l] * dt * b[i];
      held[l][i] = decay * held[l][i] + db_by_x;
    }
  }
}

}  // namespace macspec

// body
using macspec::load;
using macspec::fold;
constexpr int LINES = 4, PART = S / 32;
const int rows = x_shape[1], heads = x_shape[2], width = x_shape[3];
const int lane = int(thread_index_in_simdgroup);
const int head = int(thread_position_in_grid.z), line = int(thread_position_in_grid.y) * LINES;
const int group = head / (heads / b_shape[2]), first = lane * PART;
const size_t place = (size_t(head) * width + line) * S + first;
const float a = -fast::exp(static_cast<float>(a_log[head]));

float held[LINES][PART];
#pragma unroll
for (int l = 0; l < LINES; l++) {
  #pragma unroll
  for (int i = 0; i < PART; i++) {
    held[l][i] = state[place + l * S + i];
  }
}

const auto old_x = pending_x + head * pending_x_strides[2] + line * pending_x_strides[3];
const auto old_b = pending_b + group * pending_b_strides[2] + first * pending_b_strides[3];
const auto old_dt = pending_dt + head * pending_dt_strides[2];
float x_[LINES], b_[PART], c_[PART];
for (int row = 0; row < kept; row++) {
  load(x_, old_x + row * pending_x_strides[1], pending_x_strides[3]);
  load(b_, old_b + row * pending_b_strides[1], pending_b_strides[3]);
  fold(held, x_, b_, a, old_dt[row * pending_dt_strides[1]]);
}
#pragma unroll
for (int l = 0; l < LINES; l++) {
  #pragma unroll
  for (int i = 0; i < PART; i++) {
    state_out[place + l * S + i] = held[l][i];
  }
}

const auto new_x = x + head * x_strides[2] + line * x_strides[3];
const auto new_b = b + group * b_strides[2] + first * b_strides[3];
const auto new_c = c + group * c_strides[2] + first * c_strides[3];
const auto new_dt = dt + head * dt_strides[2];
for (int row = 0; row < rows; row++) {
  load(x_, new_x + row * x_strides[1], x_strides[3]);
  load(b_, new_b + row * b_strides[1], b_strides[3]);
  load(c_, new_c + row * c_strides[1], c_strides[3]);
  fold(held, x_, b_, a, new_dt[row * dt_strides[1]]);
  #pragma unroll
  for (int l = 0; l < LINES; l++) {
    float acc = 0.0;
    #pragma unroll
    for (int i = 0; i < PART; i++) {
      acc += held[l][i] * c_[i];
    }
    acc = simd_sum(acc);
    if (lane == 0) {
      const float y = acc + x_[l] * static_cast<float>(d[head]);
      out[(size_t(row) * heads + head) * width + line + l] = static_cast<T>(y);
    }
  }
}
