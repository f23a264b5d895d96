// The runtime's own kernels: what copy engines cannot do, or not as fast.
#include "../goshmem.cuh"

// The operations and element types of channel.Desc.
enum { amo_fetch = 7, amo_set, amo_add, amo_swap, amo_cas, amo_and, amo_or, amo_xor };

template <typename T>
__device__ T apply(int op, T *p, T v, T cond) {
  switch (op) {
    case amo_fetch: return atomicAdd_system(p, (T)0);
    case amo_set:
    case amo_swap: return atomicExch_system(p, v);
    case amo_add: return atomicAdd_system(p, v);
    case amo_cas: return atomicCAS_system(p, cond, v);
    case amo_and: return atomicAnd_system(p, v);
    case amo_or: return atomicOr_system(p, v);
    default: return atomicXor_system(p, v);
  }
}

// The copies of one launch, and how many.
struct copies {
  uint64_t dst[32], src[32], n[32];
};

// last is true in one thread, behind all that all blocks have stored.
__device__ inline bool last(unsigned int *arrived) {
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence_system();
  unsigned int blocks = gridDim.x * gridDim.y;
  if (blocks > 1) {
    if (atomicAdd(arrived, 1u) != blocks - 1) return false;
    *arrived = 0;
    __threadfence_system();
  }
  return true;
}

// finish stores the words when all blocks have done theirs.
__device__ inline void finish(uint64_t *a0, uint64_t v0, uint64_t *a1, uint64_t v1, unsigned int *arrived) {
  if (!last(arrived)) return;
  if (a0) goshmem::publish(a0, v0);
  if (a1) goshmem::publish(a1, v1);
}

// goshmem_copy makes copies, unordered among themselves, gridDim.y blocks each, and,
// when all blocks have done theirs, stores up to two words (8 bytes each; address 0:
// none). arrived counts the blocks that have; it is 0 between two launches.
extern "C" __global__ void goshmem_copy(const __grid_constant__ copies c, uint64_t *a0, uint64_t v0, uint64_t *a1,
                                        uint64_t v1, unsigned int *arrived) {
  goshmem::copy((char *)c.dst[blockIdx.x], (const char *)c.src[blockIdx.x], c.n[blockIdx.x],
                blockIdx.y * blockDim.x + threadIdx.x, gridDim.y * blockDim.x);
  finish(a0, v0, a1, v1, arrived);
}

// goshmem_copy1 is goshmem_copy of one copy: fewer parameters start sooner.
extern "C" __global__ void goshmem_copy1(char *dst, const char *src, uint64_t n, uint64_t *a0, uint64_t v0,
                                         uint64_t *a1, uint64_t v1, unsigned int *arrived) {
  goshmem::copy(dst, src, n, blockIdx.y * blockDim.x + threadIdx.x, gridDim.y * blockDim.x);
  finish(a0, v0, a1, v1, arrived);
}

// fresh is 16 or 8 bytes, or one, not from this multiprocessor's cache.
__device__ inline ulonglong2 fresh(const ulonglong2 *p) {
  ulonglong2 v;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ inline uint64_t fresh(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline uint8_t fresh(const uint8_t *p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return (uint8_t)v;
}

// move is this thread's share, part i of parts, of bytes [from, n) as far as they are
// whole Ts; 8 loads are under way together.
template <typename T>
__device__ inline uint64_t move(char *dst, const char *src, uint64_t from, uint64_t n, unsigned i, unsigned parts) {
  uint64_t end = from + (n - from) / sizeof(T) * sizeof(T), step = parts * sizeof(T), at = from + i * sizeof(T);
  for (; at + 7 * step < end; at += 8 * step) {
    T v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = fresh((const T *)(src + at + k * step));
#pragma unroll
    for (int k = 0; k < 8; k++) *(T *)(dst + at + k * step) = v[k];
  }
  for (; at < end; at += step) *(T *)(dst + at) = fresh((const T *)(src + at));
  return end;
}

__device__ inline void move_any(uint64_t dst, uint64_t src, uint64_t n, unsigned i, unsigned parts) {
  uint64_t done = 0;
  if (((dst | src) & 15) == 0) done = move<ulonglong2>((char *)dst, (const char *)src, done, n, i, parts);
  if (((dst | src) & 7) == 0) done = move<uint64_t>((char *)dst, (const char *)src, done, n, i, parts);
  move<uint8_t>((char *)dst, (const char *)src, done, n, i, parts);
}

__device__ inline void meet() { asm volatile("barrier.sync 0;" ::: "memory"); }

enum { warp_most = 2048 };  // bytes that the first warp moves alone

// goshmem_serve is a block that takes puts out of a word ring in mapped host memory,
// up to four at a look, until none came for idle_ns. It begins behind position head,
// shows in the ring what it has done, and its end by storing run in *ended. The first
// warp looks; the others help with what is large. One look is under way at a time: the
// fence in front of a signal would wait for further ones (5 us instead of 1).
extern "C" __global__ void goshmem_serve(uint64_t *ring, uint64_t mask, uint32_t shift, uint64_t head, uint64_t *ended,
                                         uint64_t run, uint64_t idle_ns) {
  using namespace goshmem;
  __shared__ uint64_t job[3];
  const unsigned all = 0xffffffffu, lane = threadIdx.x;
  if (lane >= 32) {
    for (meet(); job[2] != 0; meet()) {
      move_any(job[0], job[1], job[2], lane, blockDim.x);
      meet();
    }
    return;
  }
  uint64_t since, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(since));
  for (;;) {
    uint64_t n = head + lane / slot_words;
    const uint64_t lap = ((n >> shift) & 1) ? 0 : 1ull << 63;
    const uint64_t *slot = ring + word_slots + (n & mask) * slot_words + lane % slot_words;
    uint64_t w = fresh(slot);
    unsigned full = __ballot_sync(all, (int64_t)(w ^ lap) >= 0);
    if ((full & 0xff) != 0xff) {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      if (__shfl_sync(all, now - since, 0) < idle_ns) continue;
      if (lane == 0) publish(ended, run);
      if (lane == 0) job[2] = 0;
      meet();
      return;
    }
    unsigned k = 0;
    for (; k < 32 / slot_words && (full >> 8 * k & 0xff) == 0xff; k++) {
      uint64_t f[7], tops = __shfl_sync(all, w, 8 * k + 7);
#pragma unroll
      for (int i = 2; i < 7; i++) f[i] = (__shfl_sync(all, w, 8 * k + i) & ~(1ull << 63)) | (tops >> i & 1) << 63;
      if (f[4] <= warp_most) {
        move_any(f[2], f[3], f[4], lane, 32);
        __syncwarp();
      } else {
        if (lane < 3) job[lane] = f[2 + lane];
        __syncwarp();
        meet();
        move_any(f[2], f[3], f[4], lane, blockDim.x);
        meet();
      }
      if (lane == 0 && f[5]) publish((uint64_t *)f[5], f[6]);
    }
    head += k;
    if (lane == 0) publish(ring + word_consumed, head);
    __syncwarp();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(since));
  }
}

// goshmem_amo carries an operation of channel.ApplyAMO out on a word of device
// memory and stores the old bits at old.
extern "C" __global__ void goshmem_amo(uint32_t op, uint32_t size, uint32_t is_float, void *word, uint64_t v,
                                       uint64_t cond, uint64_t *old) {
  uint64_t was;
  if (is_float && op == amo_add) {
    if (size == 4)
      was = __float_as_uint(atomicAdd_system((float *)word, __uint_as_float((uint32_t)v)));
    else
      was = (uint64_t)__double_as_longlong(atomicAdd_system((double *)word, __longlong_as_double((long long)v)));
  } else if (size == 4) {
    was = apply<unsigned int>(op, (unsigned int *)word, (unsigned int)v, (unsigned int)cond);
  } else {
    was = apply<unsigned long long>(op, (unsigned long long *)word, v, cond);
  }
  if (old) goshmem::store(old, was);
  __threadfence_system();
}

// goshmem_add adds v to a running total in device memory and shows it in its cell,
// behind everything earlier of the stream. Replayed in a graph, it goes on counting.
__device__ inline void add(uint64_t *total, uint64_t *cell, uint64_t v) {
  uint64_t t = *total + v;
  *total = t;
  goshmem::publish(cell, t);
}
extern "C" __global__ void goshmem_add(uint64_t *total, uint64_t *cell, uint64_t v) { add(total, cell, v); }

// goshmem_copy_add is a copy, and goshmem_add behind it.
extern "C" __global__ void goshmem_copy_add(char *dst, const char *src, uint64_t n, uint64_t *total, uint64_t *cell,
                                            uint64_t v, unsigned int *arrived) {
  goshmem::copy(dst, src, n, blockIdx.y * blockDim.x + threadIdx.x, gridDim.y * blockDim.x);
  if (last(arrived)) add(total, cell, v);
}

// goshmem_wait waits until the sum of a signal's cells reaches *base + v (cmp: how)
// and, if consume, moves the base there, so that a replayed wait is for v more. stop
// or the deadline end it: *failed gets 1.
extern "C" __global__ void goshmem_wait(const uint64_t *cells, uint32_t n, uint32_t cmp, uint64_t v, uint64_t *base,
                                        uint32_t consume, const uint64_t *stop, uint64_t *failed, uint64_t limit_ns) {
  uint64_t want = v + (base ? *base : 0);
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  for (unsigned turn = 0;; turn++) {
    uint64_t have = n == 1 ? goshmem::load(cells) : goshmem::sum(cells);
    if (goshmem::holds(have, (int)cmp, want)) break;
    if ((turn & 15) == 15) {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      if (goshmem::peek(stop) || now - begin > limit_ns) {
        goshmem::publish(failed, 1);
        return;
      }
    }
  }
  if (consume && base) *base = want;
  __threadfence_system();
}
