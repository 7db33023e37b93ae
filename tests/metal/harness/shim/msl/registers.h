// MSL_SPACES=2: the code is compiled for a GPU whose lanes have 32-bit registers and never run.
// An operation across lanes takes its operands from registers and leaves its result in one.
typedef void (*msl_operation)(void** blocks, uint active, uint width);
MSL_INLINE void msl_threadgroup_barrier(int, uint) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
MSL_INLINE void msl_simdgroup_barrier(int, uint) { __builtin_amdgcn_wave_barrier(); }
MSL_INLINE uint msl_lane() { return __builtin_amdgcn_mbcnt_lo(~0u, 0u); }
void msl_complain(const char* what);

// `block` is a msl_block, a msl_product or a msl_tensors.
template <class B>
MSL_INLINE void msl_collective(msl_operation, B* block, uint, uint) {
  msl_cross(*block);
}
template <class T>
MSL_INLINE T msl_opaque(T x, uint argument) {
  asm volatile("; across lanes" : "+v"(x) : "v"(argument));
  return x;
}
