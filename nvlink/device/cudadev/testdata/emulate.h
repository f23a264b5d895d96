// What exchange.cu needs to be C++: each of its threads is one of the CPU's.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

struct Dim {
  unsigned x;
};
struct Block {
  pthread_barrier_t all;
  alignas(64) char room[64][64];
};
static thread_local Dim threadIdx, blockIdx, blockDim;
static thread_local Block *block;
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define SHARED(type, name) type &name = *(type *)block->room[__LINE__ % 64]

struct int4 {
  int x, y, z, w;
};
static void __syncthreads() { pthread_barrier_wait(&block->all); }
static void __threadfence_system() { __sync_synchronize(); }
static unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
static uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

namespace goshmem {
static uint64_t peek(const uint64_t *p) {
  sched_yield();
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static uint64_t load(const uint64_t *p) {
  sched_yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static void store(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static void publish(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
}  // namespace goshmem

// The two halves of a line are stored and loaded one by one, as they may be.
static void store_line(char *p, uint64_t v, uint64_t flag) {
  goshmem::publish((uint64_t *)p + 1, v >> 32 | flag << 32);
  goshmem::publish((uint64_t *)p, (v & 0xffffffff) | flag << 32);
}
static bool load_line(const char *p, uint64_t flag, uint64_t &v) {
  uint64_t a = __atomic_load_n((uint64_t *)p, __ATOMIC_ACQUIRE), b = __atomic_load_n((uint64_t *)p + 1, __ATOMIC_ACQUIRE);
  v = (a & 0xffffffff) | b << 32;
  bool there = a >> 32 == flag && b >> 32 == flag;
  if (!there) sched_yield();
  return there;
}
