// Barriers, and the calls into the runtime that everything cooperative ends in.
#pragma once
namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
MSL_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return (mem_flags)((int)a | (int)b);
}

#if MSL_SPACES == 2
#include "registers.h"
#else
#define MSL_COOPERATIVE extern "C" [[clang::convergent]] __attribute__((noduplicate))
// `blocks[lane]` is that lane's argument block; bit `lane` of `active` says whether it takes part.
typedef void (*msl_operation)(void** blocks, uint active, uint width);
MSL_COOPERATIVE void msl_threadgroup_barrier(int flags, uint site);
MSL_COOPERATIVE void msl_simdgroup_barrier(int flags, uint site);
MSL_COOPERATIVE void msl_collective(msl_operation operation, void* block, uint site, uint width);
extern "C" uint msl_lane();
extern "C" void msl_complain(const char* what);
#endif

// Where the call stands: line << 10 | column.
#define MSL_SITE uint site = (__builtin_LINE() << 10 | __builtin_COLUMN())
MSL_INLINE void threadgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_threadgroup_barrier((int)flags, site);
}
MSL_INLINE void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_simdgroup_barrier((int)flags, site);
}

}  // namespace metal
