// Runs a kernel compiled through shim/: one fiber a thread, one threadgroup at a time, always the
// same order for the same settings. A checked run calls msl_access before every load and store;
// two accesses conflict unless a barrier of the right scope and memory flag lies between them.
//
// Freestanding: no header and no C++ library, so that clang and a linker are all it takes.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

#define API extern "C" __attribute__((visibility("default")))

struct DlInfo {
  const char* file;
  void* base;
  const char* symbol;
  void* address;
};
extern "C" {
void* calloc(u64, u64);
void* realloc(void*, u64);
void* malloc(u64);
void free(void*);
void* memset(void*, int, u64);
void* memcpy(void*, const void*, u64);
void* memmove(void*, const void*, u64);
int dladdr(const void*, DlInfo*);
void abort();
}

// ---- what Python passes in and gets back (execute.py mirrors these) ---------------------------

struct Ids {
  u32 thread_position_in_grid[3], thread_position_in_threadgroup[3];
  u32 threadgroup_position_in_grid[3], threads_per_threadgroup[3];
  u32 dispatch_threads_per_threadgroup[3], threadgroups_per_grid[3], threads_per_grid[3];
  u32 thread_index_in_threadgroup, thread_index_in_simdgroup, simdgroup_index_in_threadgroup;
  u32 simdgroups_per_threadgroup, dispatch_simdgroups_per_threadgroup;
  u32 thread_index_in_quadgroup, quadgroup_index_in_threadgroup, quadgroups_per_threadgroup;
};

struct Buffer {
  u8* base;
  u64 size;          // bytes
  u32 item;          // bytes of one element
  u32 writable;      // an output
  u32 initialised;   // an output that MLX fills before the kernel runs
  u16* counts;       // how often each byte was read, or null
  u64 read, written; // bytes, over all threads
};

struct Variable {   // in threadgroup memory; see instrument.py
  u8* base;
  u64 size, item;   // bytes
  u64 grain;        // bytes that are tracked as one
  const char* name;
};

enum Kind : u32 {
  OUT_OF_BOUNDS, WRITE_TO_INPUT, WILD_ACCESS, FOREIGN_PRIVATE, UNINITIALISED, UNWRITTEN,
  WRITE_AFTER_WRITE, READ_AFTER_WRITE, WRITE_AFTER_READ, PLAIN_AFTER_ATOMIC, ATOMIC_AFTER_PLAIN,
  DIVERGENT, BARRIER_MISSED, BARRIERS_DIFFER, UNDEFINED, COMPLAINT, ENDLESS
};
struct Fault {
  u32 kind;
  u32 site, other_site;   // numbers of accesses, see instrument.py
  u32 line;               // line << 10 | column, where the shim or UBSan says so itself
  u32 buffer;             // index, past the buffers of a threadgroup variable, or ~0
  i64 index;              // element
  u32 group, thread, other_group, other_thread;   // other_*: ~0 without another thread
  char text[64];
};

struct Run {
  void (*entry)(void**, const Ids*);
  void** arguments;
  Buffer* buffers;
  Fault* faults;
  u8 *group_begin, *group_end;   // threadgroup memory
  u32 grid[3], group[3];
  u32 order;      // of the threads: 0 ascending, 1 descending, 2 shuffled
  u32 checked;
  u32 nbuffers, nvariables;
  u32 nfaults, capacity;   // found, and how many there is room for
  Variable* variables;
  u64 threads, switches;
  u64 most;       // threadgroups that run, the first in this order; 0: all
};

static Run* run;

// ---- fibers -----------------------------------------------------------------------------------

extern "C" void msl_switch(void** save, void* load);
#ifdef __APPLE__
#define SYMBOL "_msl_switch"
#else
#define SYMBOL "msl_switch"
#endif
#if defined(__x86_64__)
asm(".text\n.globl " SYMBOL "\n" SYMBOL ":\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static void* prepare(u8* top, void (*start)()) {
  u64* sp = (u64*)top;
  *--sp = 0;
  *--sp = (u64)start;
  return sp - 6;
}
#elif defined(__aarch64__)
asm(".text\n.p2align 2\n.globl " SYMBOL "\n" SYMBOL ":\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
static void* prepare(u8* top, void (*start)()) {
  u64* sp = (u64*)(top - 160);
  memset(sp, 0, 160);
  sp[11] = (u64)start;   // x30
  return sp;
}
#else
#error "no fiber switch for this processor"
#endif

enum State { RUNNING, COLLECTIVE, SIMDGROUP_BARRIER, THREADGROUP_BARRIER, DONE };
typedef void (*Operation)(void** blocks, u32 active, u32 width);
struct Fiber {
  void* sp;
  u8* stack;
  State state;
  Ids ids;
  u32 site, flags, width;
  Operation operation;
  void* block;
  u64 accesses;   // since it was last resumed
};
static const u32 MOST_THREADS = 1024;
static const u64 STACK = 256 << 10;
static const u64 ENDLESS_ACCESSES = 20000000, ENDLESS_SWITCHES = 400000000;
static Fiber fibers[MOST_THREADS];
static Fiber* current;
static void* scheduler;
static bool stopped;         // the run cannot go on
static u32 group_index, group_threads;
static u32 group_epoch[2];       // barriers passed, by memory: 0 device, 1 threadgroup
static u32 simd_epoch[32][2];
static u64 random_state;

static void yield() {
  run->switches++;
  msl_switch(&current->sp, scheduler);
}
static void fiber_main() {
  run->entry(run->arguments, &current->ids);
  current->state = DONE;
  yield();
  abort();
}
static u32 lane_of(u32 thread) { return thread & 31; }
static u32 simd_of(u32 thread) { return thread >> 5; }

// ---- faults -----------------------------------------------------------------------------------

static Fault* complain(Kind kind) {
  u32 last = run->capacity - 1;
  Fault* fault = &run->faults[run->nfaults < last ? run->nfaults : last];
  run->nfaults++;
  memset(fault, 0, sizeof *fault);
  fault->kind = kind;
  fault->buffer = ~0u;
  fault->group = group_index;
  fault->thread = current ? current->ids.thread_index_in_threadgroup : ~0u;
  fault->other_group = fault->other_thread = ~0u;
  return fault;
}
// The access that comes next would not be safe: leave the fiber for good.
static void stop() {
  stopped = true;
  yield();
}
static Fault* complain_of(Kind kind, const char* text) {
  Fault* fault = complain(kind);
  for (u32 i = 0; i < sizeof fault->text - 1 && text[i]; i++) fault->text[i] = text[i];
  return fault;
}
API void msl_complain(const char* text) {
  complain_of(COMPLAINT, text)->line = current ? current->site : 0;
}

struct SourceLocation {
  const char* file;
  u32 line, column;
};
static void undefined(const char* text, SourceLocation* at) {
  if (!current || !run->checked) return;
  Fault* fault = complain_of(UNDEFINED, text);
  fault->line = at->line << 10 | (at->column & 1023);
  stop();
}
#define HANDLER(NAME, TEXT) \
  API void __ubsan_handle_##NAME(SourceLocation* at, u64, u64) { undefined(TEXT, at); }
HANDLER(type_mismatch_v1, "misaligned access")
HANDLER(out_of_bounds, "array index out of bounds")
HANDLER(shift_out_of_bounds, "shift by the width or more")
HANDLER(divrem_overflow, "division by zero or overflow")
HANDLER(add_overflow, "signed addition overflows")
HANDLER(sub_overflow, "signed subtraction overflows")
HANDLER(mul_overflow, "signed multiplication overflows")
HANDLER(negate_overflow, "signed negation overflows")
HANDLER(float_cast_overflow, "value does not fit the integer type")

// ---- barriers and collectives -----------------------------------------------------------------

API u32 msl_lane() { return lane_of(current->ids.thread_index_in_threadgroup); }
static void wait(State state, u32 site, u32 flags) {
  current->state = state;
  current->site = site;
  current->flags = flags;
  yield();
}
API void msl_threadgroup_barrier(int flags, u32 site) { wait(THREADGROUP_BARRIER, site, flags); }
API void msl_simdgroup_barrier(int flags, u32 site) { wait(SIMDGROUP_BARRIER, site, flags); }
API void msl_collective(Operation operation, void* block, u32 site, u32 width) {
  current->operation = operation;
  current->block = block;
  current->width = width;
  wait(COLLECTIVE, site, 0);
}

// ---- happens-before ---------------------------------------------------------------------------

// The accesses of one sort to one cell that a later access may conflict with.
struct Accesses {
  enum : u32 { NONE, ONE, LANES, THREADS, GROUPS };   // by whom: see add()
  u32 who;                         // group << 10 | thread of the last
  u32 group_epoch, simd_epoch;     // its barriers at that time
  u32 site : 24, by : 8;
};
struct Cell {
  Accesses writes, reads, atomics;
  u32 group;        // whose threadgroup memory this describes, plus one
  u32 initialised;
};
static Cell *shadows[32], *group_shadow;   // one an element; of threadgroup memory one a byte

static u32 me() { return group_index << 10 | current->ids.thread_index_in_threadgroup; }

// Has no barrier ordered those accesses before one by the current thread now?
static bool open(const Accesses& a, u32 memory) {
  if (a.by == Accesses::NONE) return false;
  if (a.by == Accesses::GROUPS || a.who >> 10 != group_index) return true;
  if (a.group_epoch != group_epoch[memory]) return false;
  if (a.by == Accesses::THREADS) return true;
  if (a.by == Accesses::ONE && a.who == me()) return false;
  u32 simd = simd_of(a.who & 1023);
  return simd != simd_of(me() & 1023) || a.simd_epoch == simd_epoch[simd][memory];
}
static void add(Accesses& a, u32 memory, u32 site) {
  u32 self = me(), simd = simd_of(self & 1023), now = simd_epoch[simd][memory];
  if (a.by == Accesses::NONE) {
    a.by = Accesses::ONE;
  } else if (a.who >> 10 != group_index || a.by == Accesses::GROUPS) {
    a.by = Accesses::GROUPS;
  } else if (a.group_epoch != group_epoch[memory]) {
    a.by = Accesses::ONE;   // a threadgroup barrier has ordered the earlier ones
  } else if (simd_of(a.who & 1023) != simd) {
    a.by = Accesses::THREADS;
  } else if (a.by == Accesses::LANES || a.by == Accesses::ONE) {
    bool ordered = a.simd_epoch != now;   // for this simdgroup; to others `who` stands for all
    a.by = ordered || (a.by == Accesses::ONE && a.who == self) ? Accesses::ONE : Accesses::LANES;
  }
  a.who = self;
  a.group_epoch = group_epoch[memory];
  a.simd_epoch = now;
  a.site = site;
}

enum : u32 { READS = 1, WRITES = 2 };
struct Access {
  u8* p;
  u32 size, kind;
  bool atomic;
  u32 site, line;
};
static Fault* against(const Access& a, Kind kind, u32 buffer, i64 index) {
  Fault* fault = complain(kind);
  fault->buffer = buffer;
  fault->index = index;
  fault->site = a.site;
  fault->line = a.line;
  return fault;
}
static void race(const Access& a, Kind kind, const Accesses& other, u32 buffer, i64 index) {
  Fault* fault = against(a, kind, buffer, index);
  fault->other_site = other.site;
  fault->other_group = other.who >> 10;
  fault->other_thread = other.who & 1023;
}
// `cells` are those of the whole access, one in every `stride`.
static void examine(const Access& a, Cell* cells, u32 n, u32 stride, u32 memory, u32 buffer, i64 index) {
  bool reads = a.kind & READS, writes = a.kind & WRITES, told = false;
  for (u32 i = 0; i < n; i++) {
    Cell& cell = cells[i * stride];
    if (memory && cell.group != group_index + 1) {
      memset(&cell, 0, sizeof cell);
      cell.group = group_index + 1;
    }
    if (!told) {
      told = true;
      if (reads && !cell.initialised)
        against(a, UNINITIALISED, buffer, index);
      else if (open(cell.writes, memory))
        race(a, a.atomic ? ATOMIC_AFTER_PLAIN : writes ? WRITE_AFTER_WRITE : READ_AFTER_WRITE,
             cell.writes, buffer, index);
      else if (!a.atomic && open(cell.atomics, memory))
        race(a, PLAIN_AFTER_ATOMIC, cell.atomics, buffer, index);
      else if (writes && open(cell.reads, memory))
        race(a, a.atomic ? ATOMIC_AFTER_PLAIN : WRITE_AFTER_READ, cell.reads, buffer, index);
      else
        told = false;
    }
    if (writes) cell.initialised = 1;
    if (a.atomic) {
      add(cell.atomics, memory, a.site);
    } else if (writes) {
      cell.reads.by = cell.atomics.by = cell.writes.by = Accesses::NONE;
      add(cell.writes, memory, a.site);
    } else {
      add(cell.reads, memory, a.site);
    }
  }
}

static u64 page_known;
static bool in_image(const u8* p) {   // constants of the kernel
  u64 page = (u64)p >> 12;
  if (page == page_known) return true;
  DlInfo image, own;
  if (!dladdr(p, &image) || !dladdr((void*)run->entry, &own) || image.base != own.base) return false;
  page_known = page;
  return true;
}
static i64 floored(i64 bytes, i64 item) { return (bytes - (bytes < 0 ? item - 1 : 0)) / item; }
static void outside(const Access& a) {
  Kind kind = WILD_ACCESS;
  u32 buffer = ~0u;
  i64 index = 0;
  for (u32 i = 0; i < group_threads; i++)
    if (a.p >= fibers[i].stack && a.p < fibers[i].stack + STACK) kind = FOREIGN_PRIVATE;
  u64 nearest = 4096;   // red zones
  for (u32 i = 0; i < run->nbuffers + run->nvariables; i++) {
    bool shared = i >= run->nbuffers;
    Variable v = shared ? run->variables[i - run->nbuffers]
                        : Variable{run->buffers[i].base, run->buffers[i].size, run->buffers[i].item, 1, 0};
    u64 distance = a.p < v.base ? v.base - a.p : a.p - (v.base + v.size);
    if (distance >= (shared ? 1024 : nearest) || distance >= nearest) continue;
    nearest = distance;
    kind = OUT_OF_BOUNDS;
    buffer = i;
    index = floored(a.p - v.base, v.item);
  }
  if (kind == WILD_ACCESS && a.kind == READS && in_image(a.p)) return;
  against(a, kind, buffer, index);
  stop();
}
static bool in_variable(const Access& a) {
  for (u32 i = 0; i < run->nvariables; i++) {
    Variable& v = run->variables[i];
    if (a.p < v.base || a.p >= v.base + v.size) continue;
    u64 offset = a.p - v.base;
    u32 buffer = run->nbuffers + i;
    if (offset + a.size > v.size) {
      against(a, OUT_OF_BOUNDS, buffer, v.size / v.item);
      stop();
    }
    u64 first = offset / v.grain, n = (offset + a.size - 1) / v.grain - first + 1;
    Cell* cells = group_shadow + (v.base - run->group_begin) + first * v.grain;
    examine(a, cells, n, v.grain, 1, buffer, offset / v.item);
    return true;
  }
  return false;
}
static u32 recent;   // the buffer of the last access
static bool in_buffer(const Access& a) {
  for (u32 k = 0; k < run->nbuffers; k++) {
    u32 i = recent + k < run->nbuffers ? recent + k : recent + k - run->nbuffers;
    Buffer& b = run->buffers[i];
    if (a.p < b.base || a.p >= b.base + b.size) continue;
    recent = i;
    u64 offset = a.p - b.base;
    if (offset + a.size > b.size) {
      against(a, OUT_OF_BOUNDS, i, b.size / b.item);
      stop();
    }
    if (a.kind & WRITES && !b.writable) {
      against(a, WRITE_TO_INPUT, i, offset / b.item);
      stop();
    }
    if (a.kind & READS) {
      b.read += a.size;
      if (b.counts)
        for (u32 n = 0; n < a.size; n++) b.counts[offset + n] += b.counts[offset + n] != 0xffff;
    }
    if (a.kind & WRITES) b.written += a.size;
    u64 first = offset / b.item, n = (offset + a.size - 1) / b.item - first + 1;
    if (b.writable) examine(a, shadows[i] + first, n, 1, 0, i, first);
    return true;
  }
  return false;
}
static void note(const Access& a) {
  if (!current || !run->checked || !a.size) return;
  if (a.p >= current->stack && a.p + a.size <= current->stack + STACK) return;
  if (++current->accesses > ENDLESS_ACCESSES) {
    against(a, ENDLESS, ~0u, 0);
    stop();
  }
  if (!in_variable(a) && !in_buffer(a)) outside(a);
}
API void msl_access(u8* p, u32 size, u32 kind, u32 site) { note({p, size, kind, false, site, 0}); }
API void msl_atomic(u8* p, u32 size, u32 kind, u32 line) { note({p, size, kind, true, 0, line}); }
API void msl_access_many(u8* p, u64 size, u32 kind, u32 site) {
  note({p, (u32)size, kind, false, site, 0});
}
API void __tsan_init() {}   // called by what -fsanitize=thread adds to every module

// ---- scheduling -------------------------------------------------------------------------------

static void shuffle(u32* v, u32 n) {
  if (run->order == 1)
    for (u32 i = 0; i < n / 2; i++) {
      u32 t = v[i];
      v[i] = v[n - 1 - i];
      v[n - 1 - i] = t;
    }
  if (run->order == 2)
    for (u32 i = n; i > 1; i--) {
      random_state ^= random_state << 13;
      random_state ^= random_state >> 7;
      random_state ^= random_state << 17;
      u32 j = (u32)(random_state >> 11) % i, t = v[i - 1];
      v[i - 1] = v[j];
      v[j] = t;
    }
}
// Serves the waiting lanes of a simdgroup that stand at the first of its sites.
static u32 serve(u32 simd, u32* ready, u32 n) {
  u32 from = simd * 32, to = from + 32 < group_threads ? from + 32 : group_threads;
  Fiber* first = 0;
  for (u32 i = from; i < to; i++) {
    Fiber& f = fibers[i];
    if (f.state != DONE && f.state != THREADGROUP_BARRIER && (!first || f.site < first->site)) first = &f;
  }
  if (!first) return n;
  void* blocks[32] = {};
  u32 active = 0;
  bool partial = false;
  for (u32 i = from; i < to; i++) {
    Fiber& f = fibers[i];
    if (f.state == first->state && f.site == first->site) {
      blocks[i - from] = f.block;
      active |= 1u << (i - from);
      ready[n++] = i;
    } else if (f.state != DONE) {
      partial = true;
    }
  }
  current = first;
  if (partial && run->checked) {
    Fault* fault = complain(DIVERGENT);
    fault->index = __builtin_popcount(active);
    fault->line = first->site;
  }
  if (first->state == COLLECTIVE) {
    first->operation(blocks, active, first->width);
  } else {
    if (first->flags & 1) simd_epoch[simd][0]++;
    if (first->flags & 2) simd_epoch[simd][1]++;
  }
  current = 0;
  return n;
}
// Every thread that is left waits at a threadgroup barrier.
static u32 release(u32* ready) {
  u32 n = 0, flags = ~0u;
  bool differ = false;
  for (u32 i = 0; i < group_threads; i++) {
    Fiber& f = fibers[i];
    if (f.state == DONE) continue;
    if (n && f.site != fibers[ready[0]].site) differ = true;
    flags &= f.flags;
    ready[n++] = i;
  }
  current = &fibers[ready[0]];
  if (differ || (n < group_threads && run->checked)) {
    Fault* fault = complain(differ ? BARRIERS_DIFFER : BARRIER_MISSED);
    fault->index = group_threads - n;
    fault->line = current->site;
    stopped |= differ;
  }
  current = 0;
  if (flags & 1) group_epoch[0]++;
  if (flags & 2) group_epoch[1]++;
  return n;
}
static void run_group() {
  static u32 ready[MOST_THREADS];
  u32 n = group_threads;
  for (u32 i = 0; i < n; i++) ready[i] = i;
  for (;;) {
    shuffle(ready, n);
    for (u32 i = 0; i < n; i++) {
      current = &fibers[ready[i]];
      current->state = RUNNING;
      current->accesses = 0;
      msl_switch(&scheduler, current->sp);
      if (stopped) return;
    }
    current = 0;
    if (run->switches > ENDLESS_SWITCHES) {
      complain(ENDLESS);
      stopped = true;
      return;
    }
    n = 0;
    bool alive = false;
    for (u32 i = 0; i < group_threads; i++) alive |= fibers[i].state != DONE;
    if (!alive) return;
    for (u32 simd = 0; simd * 32 < group_threads; simd++) n = serve(simd, ready, n);
    if (!n) n = release(ready);
    if (stopped) return;
  }
}
static void start(u32 t, const u32* group, const u32* size, const u32* groups) {
  Fiber& f = fibers[t];
  Ids& ids = f.ids;
  u32 position[3] = {t % size[0], t / size[0] % size[1], t / size[0] / size[1]};
  for (int k = 0; k < 3; k++) {
    ids.thread_position_in_threadgroup[k] = position[k];
    ids.threadgroup_position_in_grid[k] = group[k];
    ids.thread_position_in_grid[k] = group[k] * run->group[k] + position[k];
    ids.threads_per_threadgroup[k] = size[k];
    ids.dispatch_threads_per_threadgroup[k] = run->group[k];
    ids.threadgroups_per_grid[k] = groups[k];
    ids.threads_per_grid[k] = run->grid[k];
  }
  ids.thread_index_in_threadgroup = t;
  ids.thread_index_in_simdgroup = lane_of(t);
  ids.simdgroup_index_in_threadgroup = simd_of(t);
  ids.simdgroups_per_threadgroup = (group_threads + 31) / 32;
  ids.dispatch_simdgroups_per_threadgroup = (run->group[0] * run->group[1] * run->group[2] + 31) / 32;
  ids.thread_index_in_quadgroup = t % 4;
  ids.quadgroup_index_in_threadgroup = t / 4;
  ids.quadgroups_per_threadgroup = (group_threads + 3) / 4;
  f.state = RUNNING;
  f.site = 0;
  f.sp = prepare(f.stack + STACK, fiber_main);
}

// GPUs flush denormals: MLX compiles its own library with air.compile.denorms_disable.
#if defined(__x86_64__)
static u64 flush_denormals() {
  u32 old = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(old | 0x8040);
  return old;
}
static void restore(u64 old) { __builtin_ia32_ldmxcsr((u32)old); }
#else
static void restore(u64 mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
static u64 flush_denormals() {
  u64 old;
  asm volatile("mrs %0, fpcr" : "=r"(old));
  restore(old | 1ul << 24);
  return old;
}
#endif

static void find_unwritten() {
  for (u32 i = 0; i < run->nbuffers; i++) {
    Buffer& b = run->buffers[i];
    if (!b.writable) continue;
    u64 missing = 0, at = 0;
    for (u64 c = b.size / b.item; c-- > 0;)
      if (!shadows[i][c].initialised) missing++, at = c;
    if (!missing) continue;
    current = 0;
    Fault* fault = complain(UNWRITTEN);
    fault->buffer = i;
    fault->index = at;
  }
}
API void msl_run(Run* r) {
  u64 mode = flush_denormals();
  run = r;
  stopped = false;
  current = 0;
  random_state = 88172645463325252ul;
  recent = page_known = 0;
  u32 groups[3];
  for (int k = 0; k < 3; k++) {
    if (r->group[k] > r->grid[k]) r->group[k] = r->grid[k];
    groups[k] = (r->grid[k] + r->group[k] - 1) / r->group[k];
  }
  u32 most = r->group[0] * r->group[1] * r->group[2];
  for (u32 i = 0; i < most; i++)
    if (!fibers[i].stack) fibers[i].stack = (u8*)(((u64)malloc(STACK + 64) + 63) & ~63ul);
  u64 group_bytes = r->group_end - r->group_begin;
  if (r->checked) {
    group_shadow = (Cell*)calloc(group_bytes, sizeof(Cell));
    for (u32 i = 0; i < r->nbuffers; i++) {
      Buffer& b = r->buffers[i];
      if (!b.writable) continue;
      u64 n = b.size / b.item;
      shadows[i] = (Cell*)calloc(n, sizeof(Cell));
      if (b.initialised)
        for (u64 c = 0; c < n; c++) shadows[i][c].initialised = 1;
    }
  }
  u64 total = (u64)groups[0] * groups[1] * groups[2];
  for (u64 q = 0; q < (r->most ? r->most : total) && !stopped; q++) {
    u64 t = r->order == 1 ? total - 1 - q : q;
    u32 group[3] = {(u32)(t % groups[0]), (u32)(t / groups[0] % groups[1]), (u32)(t / groups[0] / groups[1])};
    u32 size[3];
    for (int k = 0; k < 3; k++) {
      u32 left = r->grid[k] - group[k] * r->group[k];
      size[k] = left < r->group[k] ? left : r->group[k];
    }
    group_index = (u32)t;
    group_threads = size[0] * size[1] * size[2];
    r->threads += group_threads;
    for (u32 i = 0; i < group_threads; i++) start(i, group, size, groups);
    memset(group_epoch, 0, sizeof group_epoch);
    memset(simd_epoch, 0, sizeof simd_epoch);
    memset(r->group_begin, 0xff, group_bytes);   // NaN in every float type
    run_group();
  }
  if (r->checked) {
    if (!stopped) find_unwritten();
    free(group_shadow);
    for (u32 i = 0; i < r->nbuffers; i++)
      if (r->buffers[i].writable) free(shadows[i]);
  }
  current = 0;
  restore(mode);
}

// ---- what compilers call for types the processor lacks ----------------------------------------

#if defined(__x86_64__)
static u32 bits(float f) { return __builtin_bit_cast(u32, f); }
API __bf16 __truncsfbf2(float f) {
  u32 u = bits(f);
  bool nan = (u & 0x7fffffff) > 0x7f800000;
  return __builtin_bit_cast(__bf16, (u16)(nan ? u >> 16 | 64 : (u + 0x7fff + (u >> 16 & 1)) >> 16));
}
API float __extendhfsf2(_Float16 h) {
  u32 u = __builtin_bit_cast(u16, h), sign = (u & 0x8000) << 16, exponent = u >> 10 & 31, fraction = u & 1023;
  if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000 | fraction << 13);
  if (exponent) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = (float)fraction * 0x1p-24f;   // a half's denormals are normal floats
  return __builtin_bit_cast(float, sign | bits(magnitude));
}
API _Float16 __truncsfhf2(float f) {
  u32 u = bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  u32 half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00;
  } else if (magnitude >= 0x477ff000) {   // rounds to 65520 or more
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {   // normal
    u32 rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    half = (rounded >> 13) - (112 << 10);
  } else {
    // Adding 0.5 leaves units of 2^-24 in the low bits of the sum, rounded to nearest even.
    half = bits(__builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000;
  }
  return __builtin_bit_cast(_Float16, (u16)(sign | half));
}
#endif
