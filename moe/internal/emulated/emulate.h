// A GPU of fibers: kernels.cu compiled as C++, for tests where there is no GPU.
// Every thread of a launch is a fiber of the calling OS thread, in rounds; what
// waits gives way. Bulk copies are done at once.
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <functional>
#include <vector>

using std::size_t;
struct uint4 {
  uint32_t x, y, z, w;
};
struct Dim {
  unsigned x;
};
struct Group {  // threads that meet, and what they exchange
  unsigned size, arrived, turn;
  int64_t values[32];
};
struct Fiber {
  ucontext_t ctx;
  char *stack;
  Dim thread, block;
  Group *all, *warp;
  char *shared;
  bool done;
};
static thread_local Fiber *fiber;
static thread_local ucontext_t scheduler;
static thread_local Dim grid_dim, block_dim;

#define DEV inline
#define KERNEL(threads) static void
#define SHARED (fiber->shared)
#define threadIdx (fiber->thread)
#define blockIdx (fiber->block)
#define gridDim grid_dim
#define blockDim block_dim

static void give_way() { swapcontext(&fiber->ctx, &scheduler); }
static void meet_group(Group *g) {
  unsigned turn = g->turn;
  if (++g->arrived == g->size) {
    g->arrived = 0;
    g->turn++;
    return;
  }
  while (g->turn == turn) give_way();
}
static void __syncthreads() { meet_group(fiber->all); }
static void __syncwarp() { meet_group(fiber->warp); }
static void __threadfence() { __sync_synchronize(); }
static void __threadfence_system() { __sync_synchronize(); }
template <typename T>
static T exchange(T v, unsigned from) {
  Group *g = fiber->warp;
  int64_t bits = 0;
  memcpy(&bits, &v, sizeof v);
  g->values[threadIdx.x & 31] = bits;
  meet_group(g);
  bits = g->values[from & 31];
  meet_group(g);
  T r;
  memcpy(&r, &bits, sizeof r);
  return r;
}
template <typename T>
static T __shfl_sync(unsigned, T v, int lane) { return exchange(v, lane); }
template <typename T>
static T __shfl_xor_sync(unsigned, T v, int mask) { return exchange(v, (threadIdx.x & 31) ^ mask); }
template <typename T>
static T __shfl_up_sync(unsigned, T v, int d) {
  int lane = threadIdx.x & 31;
  return exchange(v, lane >= d ? lane - d : lane);
}
static uint32_t __ballot_sync(unsigned, bool p) {
  Group *g = fiber->warp;
  g->values[threadIdx.x & 31] = p;
  meet_group(g);
  uint32_t r = 0;
  for (int i = 0; i < 32; i++) r |= (uint32_t)(g->values[i] & 1) << i;
  meet_group(g);
  return r;
}
static int __popc(uint32_t v) { return __builtin_popcount(v); }
static uint64_t add64(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static uint32_t atomicAdd(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static void max64(uint64_t *p, uint64_t v) {
  if (v > *p) *p = v;
}
static uint64_t load_acquire(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void store_release(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static void store_relaxed(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static void pause() { give_way(); }
static void barrier_init(uint64_t *b) { *b = 0; }
static void barrier_init_done() {}
static void barrier_wait(uint64_t *b, uint32_t parity) {
  while ((__atomic_load_n(b, __ATOMIC_ACQUIRE) & 1) == parity) give_way();
}
static void bulk_load(void *s, const char *g, uint32_t n, uint64_t *bar) {
  memcpy(s, g, n);
  ++*bar;
}
static void bulk_store(char *g, const void *s, uint32_t n) { memcpy(g, s, n); }
static void bulk_commit() {}
static void bulk_reads() {}
static void bulk_window() {}
static void bulk_next() {}
static void bulk_end() {}
template <typename T>
static T min(T a, T b) { return a < b ? a : b; }
template <typename T>
static T max(T a, T b) { return a > b ? a : b; }
static float __uint_as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint32_t __float_as_uint(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
// Volatile: nothing is contracted, whatever the compiler's options.
static float __fmul_rn(float a, float b) {
  volatile float v = a * b;
  return v;
}
static float __fadd_rn(float a, float b) {
  volatile float v = a + b;
  return v;
}
static float __fdiv_rn(float a, float b) { return a / b; }
static int __float2int_rn(float f) { return (int)lrintf(f); }

static void enter_fiber(unsigned lo, unsigned hi) {
  auto *body = (std::function<void()> *)((uint64_t)hi << 32 | lo);
  (*body)();
  fiber->done = true;
  give_way();
}

// run carries a launch out.
static void run(unsigned blocks, unsigned threads, unsigned shared, std::function<void()> body) {
  const size_t stack = 64 << 10;
  Fiber *outer = fiber;
  std::vector<Fiber> all((size_t)blocks * threads);
  std::vector<Group> groups(blocks), warps((size_t)blocks * (threads / 32));
  char *stacks = (char *)mmap(0, all.size() * stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  std::vector<char *> rooms(blocks);
  grid_dim.x = blocks;
  block_dim.x = threads;
  for (unsigned b = 0; b < blocks; b++) {
    rooms[b] = (char *)aligned_alloc(128, (shared + 127) & ~127u);
    memset(rooms[b], 0xcd, shared);
    groups[b] = Group{threads, 0, 0, {}};
    for (unsigned t = 0; t < threads; t++) {
      size_t i = (size_t)b * threads + t;
      Fiber &f = all[i];
      Group &w = warps[(size_t)b * (threads / 32) + t / 32];
      if (t % 32 == 0) w = Group{32, 0, 0, {}};
      f.thread.x = t;
      f.block.x = b;
      f.all = &groups[b];
      f.warp = &w;
      f.shared = rooms[b];
      f.done = false;
      getcontext(&f.ctx);
      f.ctx.uc_stack.ss_sp = stacks + i * stack;
      f.ctx.uc_stack.ss_size = stack;
      f.ctx.uc_link = 0;
      makecontext(&f.ctx, (void (*)())enter_fiber, 2, (unsigned)(uint64_t)&body, (unsigned)((uint64_t)&body >> 32));
    }
  }
  for (size_t left = all.size(); left > 0;) {
    size_t before = left;
    for (Fiber &f : all) {
      if (f.done) continue;
      fiber = &f;
      swapcontext(&scheduler, &f.ctx);
      if (f.done) {
        left--;
        f.all->size--;  // as on a GPU, who has left is not waited for
        if (f.all->size && f.all->arrived == f.all->size) {
          f.all->arrived = 0;
          f.all->turn++;
        }
      }
    }
    if (left == before) sched_yield();
  }
  fiber = outer;
  munmap(stacks, all.size() * stack);
  for (char *r : rooms) free(r);
}
