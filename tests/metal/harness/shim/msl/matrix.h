// simdgroup_matrix, 8 x 8: a lane holds two neighbours of one row, laid out as on Apple GPUs.
// The order in which a product's eight terms are added is a guess: ascending, fused.
#pragma once
namespace metal {

template <class T, int Rows = 8, int Columns = 8>
struct simdgroup_matrix {
  vec<T, 2> pair;
  simdgroup_matrix() {}
  explicit simdgroup_matrix(T x) { pair[0] = pair[1] = x; }
  vec<T, 2>& thread_elements() { return pair; }
  const vec<T, 2>& thread_elements() const { return pair; }
};
typedef simdgroup_matrix<float> simdgroup_float8x8;
typedef simdgroup_matrix<half> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows = Columns>
MSL_INLINE simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T x) {
  return simdgroup_matrix<T, Rows, Columns>(x);
}
MSL_INLINE uint msl_row(uint lane) { return (lane / 4 & 4) + lane / 2 % 4; }
MSL_INLINE uint msl_column(uint lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
template <class T, class P>
MSL_INLINE void msl_load(simdgroup_matrix<T>& m, P p, ulong stride, ulong2 origin, bool transposed) {
  ulong r = msl_row(msl_lane()), c = msl_column(msl_lane());
  for (uint j = 0; j < 2; j++)
    m.pair[j] = transposed ? p[(origin.y + c + j) * stride + origin.x + r]
                           : p[(origin.y + r) * stride + origin.x + c + j];
}
template <class T, class P>
MSL_INLINE void msl_store(
    const simdgroup_matrix<T>& m, P p, ulong stride, ulong2 origin, bool transposed) {
  ulong r = msl_row(msl_lane()), c = msl_column(msl_lane());
  for (uint j = 0; j < 2; j++)
    p[transposed ? (origin.y + c + j) * stride + origin.x + r
                 : (origin.y + r) * stride + origin.x + c + j] = m.pair[j];
}
#define MSL_MATRIX_ACCESS(SPACE)                                                               \
  template <class T>                                                                           \
  MSL_INLINE void simdgroup_load(                                                              \
      simdgroup_matrix<T>& m, const SPACE T* p, ulong stride = 8, ulong2 origin = ulong2(0),   \
      bool transposed = false) {                                                               \
    msl_load(m, p, stride, origin, transposed);                                                \
  }                                                                                            \
  template <class T>                                                                           \
  MSL_INLINE void simdgroup_store(                                                             \
      const simdgroup_matrix<T>& m, SPACE T* p, ulong stride = 8, ulong2 origin = ulong2(0),   \
      bool transposed = false) {                                                               \
    msl_store(m, p, stride, origin, transposed);                                               \
  }
MSL_MATRIX_ACCESS(device)
#if MSL_SPACES
MSL_MATRIX_ACCESS(threadgroup)
#endif

struct msl_product {
  float a[2], b[2], c[2];
};
#if MSL_SPACES == 2
MSL_INLINE void msl_cross(msl_product& p) {
  asm volatile("; product"
               : "+v"(p.c[0]), "+v"(p.c[1])
               : "v"(p.a[0]), "v"(p.a[1]), "v"(p.b[0]), "v"(p.b[1]));
}
#endif
MSL_UNCHECKED inline void msl_multiply(void** blocks, uint active, uint) {
  if (active != 0xffffffffu) msl_complain("simdgroup matrix operation with inactive lanes");
  float A[8][8] = {}, B[8][8] = {}, C[8][8] = {};
  MSL_EACH_ACTIVE(i) {
    auto* block = (msl_product*)blocks[i];
    for (int j = 0; j < 2; j++) {
      uint r = msl_row(i), c = msl_column(i) + j;
      A[r][c] = block->a[j], B[r][c] = block->b[j], C[r][c] = block->c[j];
    }
  }
  MSL_EACH_ACTIVE(i) for (int j = 0; j < 2; j++) {
    uint r = msl_row(i), c = msl_column(i) + j;
    float sum = C[r][c];
    for (int k = 0; k < 8; k++) sum = __builtin_fmaf(A[r][k], B[k][c], sum);
    ((msl_product*)blocks[i])->c[j] = sum;
  }
}
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(
    simdgroup_matrix<D>& d, const simdgroup_matrix<A>& a, const simdgroup_matrix<B>& b,
    const simdgroup_matrix<C>& c, MSL_SITE) {
  msl_product block{{(float)a.pair[0], (float)a.pair[1]},
                    {(float)b.pair[0], (float)b.pair[1]},
                    {(float)c.pair[0], (float)c.pair[1]}};
  msl_collective(&msl_multiply, &block, site, 32);
  d.pair[0] = (D)block.c[0];
  d.pair[1] = (D)block.c[1];
}
template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(
    simdgroup_matrix<D>& d, const simdgroup_matrix<A>& a, const simdgroup_matrix<B>& b, MSL_SITE) {
  simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<float>(0.0f), site);
}

}  // namespace metal
