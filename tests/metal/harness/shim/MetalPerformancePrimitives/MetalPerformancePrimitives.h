// matmul2d of Metal 4 by one simdgroup with all operands in registers, [16, 16] by transposed
// [32, 16]. Lanes hold the elements that MLX gives them (steel/gemm/nax.h, BaseNAXFrag::get_coord);
// that the hardware does so is not modelled but taken from there. Sums are float, in ascending order.
#pragma once
#include <metal_stdlib>
namespace metal {
struct execution_simdgroup {};
}
// What MLX calls, as Apple's own headers do.
MSL_INLINE ushort __metal_get_thread_index_in_simdgroup(ushort) { return metal::msl_lane(); }

namespace mpp::tensor_ops {

enum class matmul2d_mode { multiply, multiply_accumulate };

// An object in Metal; `translate.py` makes it a type, which C++17 takes as a template argument.
template <int M, int N, int K, bool LEFT, bool RIGHT, bool RELAXED, matmul2d_mode MODE>
struct matmul2d_descriptor {
  static_assert(M == 16 && N == 32 && K == 16 && !LEFT && RIGHT, "not modelled");
  static_assert(MODE == matmul2d_mode::multiply_accumulate, "not modelled");
};

template <class T, int COUNT>
struct msl_cooperative {
  T elements[COUNT];
  T& operator[](int i) { return elements[i]; }
};

struct msl_tensors {
  float a[8], b[16], c[16];
};
#if MSL_SPACES == 2
MSL_INLINE void msl_cross(msl_tensors& t) {
  for (int i = 0; i < 16; i++) t.c[i] = metal::msl_opaque(t.c[i] + t.a[i / 2] * t.b[i], 0u);
}
#endif
MSL_UNCHECKED inline void msl_tensor_multiply(void** blocks, uint active, uint) {
  if (active != 0xffffffffu) metal::msl_complain("matmul2d with inactive lanes");
  float A[16][16] = {}, B[32][16] = {}, C[16][32] = {};
  MSL_EACH_ACTIVE(i) {
    auto* block = (msl_tensors*)blocks[i];
    const uint quad = i >> 2, r = (quad & 4) | ((i >> 1) & 3), c = ((quad & 2) | (i & 1)) * 4;
    for (uint j = 0; j < 8; j++) A[r + j / 4 * 8][c + j % 4] = block->a[j];
    for (uint j = 0; j < 16; j++) B[r + j / 4 * 8][c + j % 4] = block->b[j];
    for (uint j = 0; j < 16; j++) C[r + j % 8 / 4 * 8][c + j % 4 + j / 8 * 16] = block->c[j];
  }
  for (uint m = 0; m < 16; m++)
    for (uint n = 0; n < 32; n++)
      for (uint k = 0; k < 16; k++) C[m][n] = __builtin_fmaf(A[m][k], B[n][k], C[m][n]);
  MSL_EACH_ACTIVE(i) {
    auto* block = (msl_tensors*)blocks[i];
    const uint quad = i >> 2, r = (quad & 4) | ((i >> 1) & 3), c = ((quad & 2) | (i & 1)) * 4;
    for (uint j = 0; j < 16; j++) block->c[j] = C[r + j % 8 / 4 * 8][c + j % 4 + j / 8 * 16];
  }
}

template <class D, class Scope>
struct matmul2d {
  static_assert(sizeof(D) > 0, "what its descriptor says is modelled");
  template <class A, class B, class C>
  msl_cooperative<A, 8> get_left_input_cooperative_tensor() { return {}; }
  template <class A, class B, class C>
  msl_cooperative<B, 16> get_right_input_cooperative_tensor() { return {}; }
  template <class A, class B, class C>
  msl_cooperative<C, 16> get_destination_cooperative_tensor() { return {}; }
  template <class A, class B, class C>
  MSL_INLINE void run(A& a, B& b, C& c, MSL_SITE) {
    msl_tensors block;
    for (int i = 0; i < 8; i++) block.a[i] = (float)a[i];
    for (int i = 0; i < 16; i++) block.b[i] = (float)b[i], block.c[i] = (float)c[i];
    metal::msl_collective(&msl_tensor_multiply, &block, site, 32);
    for (int i = 0; i < 16; i++) c[i] = block.c[i];
  }
};

}  // namespace mpp::tensor_ops
