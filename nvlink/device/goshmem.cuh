// goshmem.cuh: one-sided operations issued by kernels.
//
// A kernel gets a `const goshmem_t *` from the host (pe.PE.Kernel). Offsets are
// those of allocations: of the device heap for data, of the host heap for
// signals. Data to a peer whose memory is mapped here goes by the kernel's own
// stores; data to others, and signals that add, go as requests into a ring that
// the host's proxy serves. Requests of a ring to one PE take effect in order.
//
// Forms: plain (one thread), _warp (all threads of a converged warp together),
// _block (all threads of a block together). Any number of threads may issue: a
// thread waits for room in the ring, and the proxy makes room without any help of
// the GPU.
//
// A lost world ends every wait: it returns false.
#pragma once
#include <stdint.h>

struct goshmem_t {
  uint64_t *ring;      // word ring (channel.WordRing), in mapped host memory
  uint64_t *reserved;  // positions reserved so far, in device memory
  uint64_t *limit;     // last position known to have room; whether the stop was seen; in device memory
  uint64_t *acked;     // requests complete at their targets, in mapped host memory
  uint64_t *stop;      // nonzero: the world ended, in mapped host memory
  char *const *data;   // device heaps of the PEs, NULL where not mapped here
  char *const *host;   // host heaps of the PEs, NULL where not mapped here
  uint64_t mask;       // slots - 1, a power of two of slots
  uint32_t shift;      // log2 of the slots
  uint32_t pe, npes, ctx;
};

enum { GOSHMEM_SIGNAL_SET = 1, GOSHMEM_SIGNAL_ADD = 2 };
enum { GOSHMEM_EQ = 0, GOSHMEM_NE, GOSHMEM_GT, GOSHMEM_GE, GOSHMEM_LT, GOSHMEM_LE };

namespace goshmem {

enum { op_put = 1, op_signal = 3 };
enum { region_heap = 0, region_device = 2 };
enum { word_consumed = 16, word_slots = 32, slot_words = 8, version = 1 };

__device__ inline uint64_t load(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline uint64_t peek(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__device__ inline void store(uint64_t *p, uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
__device__ inline void publish(uint64_t *p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// room waits until position pos may be written. A look at the host's word costs a
// trip over the bus: only those whose turn is near take one, and show what they saw in
// device memory; the others look there, the more seldom the further their turn is.
// Positions are dense, so somebody is always near.
__device__ inline bool room(const goshmem_t *g, uint64_t pos) {
  for (;;) {
    int64_t turn = (int64_t)(pos - *(volatile uint64_t *)g->limit);
    if (turn <= 0) return true;
    if (turn <= 32) {
      uint64_t limit = load(&g->ring[word_consumed]) + g->mask + 1;
      if ((int64_t)(pos - limit) <= 0) {
        atomicMax((unsigned long long *)g->limit, (unsigned long long)limit);
        return true;
      }
      if (peek(g->stop)) {
        g->limit[1] = 1;
        return false;
      }
      __nanosleep(200);
    } else {
      if (((volatile uint64_t *)g->limit)[1]) return false;
      __nanosleep(turn < 4096 ? (unsigned)turn * 8 : 1u << 15);
    }
  }
}

struct request {
  uint64_t f[7];
};

__device__ inline request make(const goshmem_t *g, int op, int pe, uint64_t dst, uint64_t src, uint64_t n,
                               int sig_op, uint64_t sig, uint64_t v) {
  request r;
  r.f[0] = (uint64_t)op | (uint64_t)sig_op << 16 | (uint64_t)(uint32_t)pe << 32;
  r.f[1] = (uint64_t)g->ctx | (uint64_t)region_device << 32 | (uint64_t)region_device << 48;
  r.f[2] = dst;
  r.f[3] = src;
  r.f[4] = n;
  r.f[5] = sig;
  r.f[6] = v;
  return r;
}

// write stores a request at a reserved position that has room, in word encoding:
// every word tells by its top bit whether it is of this lap of the ring.
__device__ inline void write(const goshmem_t *g, uint64_t pos, const request &r) {
  uint64_t n = pos - 1;
  uint64_t lap = ((n >> g->shift) & 1) ? 0 : 1ull << 63;
  uint64_t *slot = g->ring + word_slots + (n & g->mask) * slot_words;
  uint64_t last = (uint64_t)version << 8 | lap;
#pragma unroll
  for (int i = 0; i < 7; i++) {
    store(&slot[i], (r.f[i] & ~(1ull << 63)) | lap);
    last |= (r.f[i] >> 63) << i;
  }
  store(&slot[7], last);
}

__device__ inline bool push(const goshmem_t *g, const request &r) {
  uint64_t limit = *(volatile uint64_t *)g->limit;  // beside the reservation, and both beside the fence
  uint64_t pos = atomicAdd((unsigned long long *)g->reserved, 1ull) + 1;
  __threadfence_system();  // what the request refers to
  bool ok = (int64_t)(pos - limit) <= 0 || room(g, pos);
  if (ok) write(g, pos, r);
  return ok;
}

// copy is this thread's share of a copy: part i of n.
__device__ inline void copy(char *dst, const char *src, uint64_t n, unsigned i, unsigned parts) {
  uint64_t done = 0;
  if ((((uintptr_t)dst | (uintptr_t)src) & 15) == 0) {
    uint64_t words = n / 16;
    for (uint64_t w = i; w < words; w += parts) ((int4 *)dst)[w] = ((const int4 *)src)[w];
    done = words * 16;
  } else if ((((uintptr_t)dst | (uintptr_t)src) & 7) == 0) {
    uint64_t words = n / 8;
    for (uint64_t w = i; w < words; w += parts) ((uint64_t *)dst)[w] = ((const uint64_t *)src)[w];
    done = words * 8;
  }
  for (uint64_t b = done + i; b < n; b += parts) dst[b] = src[b];
}

// sum is a signal's value. Its loads are under way together and order nothing: a
// fence follows the last of them.
__device__ inline uint64_t sum(const uint64_t *cells) {
  uint64_t v = 0, a[8];  // a line; its last word is no cell
#pragma unroll
  for (int i = 0; i < 8; i += 2)
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a[i]), "=l"(a[i + 1]) : "l"(cells + i) : "memory");
#pragma unroll
  for (int i = 0; i < 7; i++) v += a[i];
  return v;
}

__device__ inline bool holds(uint64_t have, int cmp, uint64_t v) {
  switch (cmp) {
    case GOSHMEM_EQ: return have == v;
    case GOSHMEM_NE: return have != v;
    case GOSHMEM_GT: return have > v;
    case GOSHMEM_GE: return have >= v;
    case GOSHMEM_LT: return have < v;
    default: return have <= v;
  }
}

}  // namespace goshmem

// goshmem_ptr is the address here of an offset in the device heap of a PE, or NULL
// where that memory is not mapped.
__device__ inline void *goshmem_ptr(const goshmem_t *g, uint64_t off, int pe) {
  return g->data[pe] ? g->data[pe] + off : nullptr;
}

// goshmem_put_nbi copies n bytes from offset src of this PE's device heap to
// offset dst of pe's.
__device__ inline bool goshmem_put_nbi(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n, int pe) {
  if (g->data[pe]) {
    goshmem::copy(g->data[pe] + dst, g->data[g->pe] + src, n, 0, 1);
    return true;
  }
  return goshmem::push(g, goshmem::make(g, goshmem::op_put, pe, dst, src, n, 0, 0, 0));
}

// goshmem_signal sets or adds to the signal at offset sig of pe's host heap, behind
// this thread's earlier operations to pe.
__device__ inline bool goshmem_signal(const goshmem_t *g, uint64_t sig, int op, uint64_t v, int pe) {
  if (op == GOSHMEM_SIGNAL_SET && g->host[pe] && g->data[pe]) {
    __threadfence_system();
    goshmem::publish((uint64_t *)(g->host[pe] + sig), v);
    return true;
  }
  return goshmem::push(g, goshmem::make(g, goshmem::op_signal, pe, 0, 0, 0, op, sig, v));
}

// goshmem_put_signal_nbi is a put with a signal behind it.
__device__ inline bool goshmem_put_signal_nbi(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n,
                                              uint64_t sig, int op, uint64_t v, int pe) {
  if (g->data[pe]) {
    goshmem_put_nbi(g, dst, src, n, pe);
    return goshmem_signal(g, sig, op, v, pe);
  }
  return goshmem::push(g, goshmem::make(g, goshmem::op_put, pe, dst, src, n, op, sig, v));
}

// goshmem_fence orders this thread's operations to each PE: those before it are
// visible before those after it.
__device__ inline void goshmem_fence(const goshmem_t *) { __threadfence_system(); }

// goshmem_quiet returns when everything that this thread, and whoever it has
// synchronised with, issued before is complete at its target.
__device__ inline bool goshmem_quiet(const goshmem_t *g) {
  __threadfence_system();
  uint64_t all = *(volatile uint64_t *)g->reserved;
  while ((int64_t)(goshmem::load(g->acked) - all) < 0) {
    if (goshmem::peek(g->stop)) return false;
    __nanosleep(200);
  }
  return true;
}

// goshmem_wait_until waits until the signal at offset sig of this PE compares with v.
__device__ inline bool goshmem_wait_until(const goshmem_t *g, uint64_t sig, int cmp, uint64_t v) {
  const uint64_t *cells = (const uint64_t *)(g->host[g->pe] + sig);
  for (unsigned turn = 0; !goshmem::holds(goshmem::sum(cells), cmp, v); turn++) {
    if ((turn & 15) == 15 && goshmem::peek(g->stop)) return false;
  }
  __threadfence_system();
  return true;
}

// The forms of a warp and of a block. All its threads call with the same arguments;
// the copy is shared among them, the request is issued once.
__device__ inline bool goshmem_put_signal_nbi_warp(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n,
                                                   uint64_t sig, int op, uint64_t v, int pe) {
  unsigned lane = threadIdx.x & 31;
  bool ok = true;
  if (g->data[pe]) {
    goshmem::copy(g->data[pe] + dst, g->data[g->pe] + src, n, lane, 32);
    __threadfence_system();
    __syncwarp();
    if (lane == 0) ok = goshmem_signal(g, sig, op, v, pe);
  } else {
    __syncwarp();
    if (lane == 0) ok = goshmem_put_signal_nbi(g, dst, src, n, sig, op, v, pe);
  }
  return __shfl_sync(0xffffffffu, ok, 0);
}

__device__ inline bool goshmem_put_signal_nbi_block(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n,
                                                    uint64_t sig, int op, uint64_t v, int pe) {
  int ok = 1;
  if (g->data[pe]) {
    goshmem::copy(g->data[pe] + dst, g->data[g->pe] + src, n, threadIdx.x, blockDim.x);
    __threadfence_system();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ok = g->data[pe] ? goshmem_signal(g, sig, op, v, pe)
                     : goshmem_put_signal_nbi(g, dst, src, n, sig, op, v, pe);
  }
  return __syncthreads_and(ok);
}

__device__ inline bool goshmem_put_nbi_warp(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n, int pe) {
  unsigned lane = threadIdx.x & 31;
  int ok = 1;
  if (g->data[pe])
    goshmem::copy(g->data[pe] + dst, g->data[g->pe] + src, n, lane, 32);
  else if (lane == 0)
    ok = goshmem_put_nbi(g, dst, src, n, pe);
  __syncwarp();
  return __shfl_sync(0xffffffffu, ok, 0);
}

__device__ inline bool goshmem_put_nbi_block(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n, int pe) {
  int ok = 1;
  __syncthreads();
  if (g->data[pe])
    goshmem::copy(g->data[pe] + dst, g->data[g->pe] + src, n, threadIdx.x, blockDim.x);
  else if (threadIdx.x == 0)
    ok = goshmem_put_nbi(g, dst, src, n, pe);
  return __syncthreads_and(ok);
}
