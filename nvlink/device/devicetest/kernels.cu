// Kernels of the tests and benchmarks.
#include "../goshmem.cuh"

// spin occupies its threads until *stop or the limit.
extern "C" __global__ void spin(uint64_t *started, const uint64_t *stop, uint64_t limit_ns) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  if (threadIdx.x == 0) {  // one looks over the bus, the others wait in their places
    atomicAdd_system((unsigned long long *)started, 1ull);
    do {
      __nanosleep(2000);
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (!goshmem::peek(stop) && now - begin < limit_ns);
  }
  __syncthreads();
}

// signals makes every thread issue n requests that add 1 to the signal of pe.
extern "C" __global__ void signals(const goshmem_t *g, uint64_t sig, uint32_t n, uint32_t pe) {
  for (uint32_t i = 0; i < n; i++)
    if (!goshmem_signal(g, sig, GOSHMEM_SIGNAL_ADD, 1, (int)pe)) return;
}

// echo makes one thread issue n requests, each when the one before came back as a
// signal of this PE, and tells how many nanoseconds that took.
extern "C" __global__ void echo(const goshmem_t *g, uint64_t sig, uint32_t n, uint64_t *ns) {
  uint64_t begin, end;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  for (uint32_t i = 1; i <= n; i++)
    if (!goshmem_signal(g, sig, GOSHMEM_SIGNAL_ADD, 1, (int)g->pe) || !goshmem_wait_until(g, sig, GOSHMEM_GE, i)) return;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
  *ns = end - begin;
}

// fill writes seed*2654435761 + index to n words.
extern "C" __global__ void fill(uint64_t *p, uint64_t n, uint64_t seed) {
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
    p[i] = seed * 2654435761ull + i;
}

// check counts the words that are not what fill writes.
extern "C" __global__ void check(const uint64_t *p, uint64_t n, uint64_t seed, uint64_t *bad) {
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
    if (p[i] != seed * 2654435761ull + i) atomicAdd_system((unsigned long long *)bad, 1ull);
}

// atomics makes every thread add 1 to a word n times.
extern "C" __global__ void atomics(uint64_t *word, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) atomicAdd_system((unsigned long long *)word, 1ull);
}

// exchange: every block sends a row of n bytes to its PE's successor with a signal,
// waits for the row of its predecessor, and counts wrong bytes. form: 0 thread 0
// alone, 1 the first warp, 2 the whole block. rounds times.
extern "C" __global__ void exchange(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n, uint64_t sigs,
                                    uint32_t form, uint32_t rounds, uint64_t *bad) {
  int next = (int)((g->pe + 1) % g->npes);
  uint64_t prev = (g->pe + g->npes - 1) % g->npes;
  uint64_t row = (uint64_t)blockIdx.x * n, sig = sigs + 64ull * blockIdx.x, ack = sigs + 64ull * (gridDim.x + blockIdx.x);
  char *mine = (char *)goshmem_ptr(g, 0, (int)g->pe);
  bool ok = true;
  for (uint32_t r = 1; r <= rounds && ok; r++) {
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) mine[src + row + i] = (char)(g->pe * 31 + blockIdx.x * 7 + i + r);
    __threadfence_system();
    __syncthreads();
    if (form == 2)
      ok = goshmem_put_signal_nbi_block(g, dst + row, src + row, n, sig, GOSHMEM_SIGNAL_ADD, 1, next);
    else if (form == 1 && threadIdx.x < 32)
      ok = goshmem_put_signal_nbi_warp(g, dst + row, src + row, n, sig, GOSHMEM_SIGNAL_ADD, 1, next);
    else if (form == 0 && threadIdx.x == 0)
      ok = goshmem_put_signal_nbi(g, dst + row, src + row, n, sig, GOSHMEM_SIGNAL_ADD, 1, next);
    if (threadIdx.x == 0) ok = ok && goshmem_wait_until(g, sig, GOSHMEM_GE, r);
    ok = __syncthreads_and(ok);
    for (uint64_t i = threadIdx.x; i < n && ok; i += blockDim.x) {
      char want = (char)(prev * 31 + blockIdx.x * 7 + i + r);
      if (((volatile char *)mine)[dst + row + i] != want) atomicAdd_system((unsigned long long *)bad, 1ull);
    }
    __syncthreads();
    if (threadIdx.x == 0) {  // the predecessor may overwrite the row
      ok = ok && goshmem_signal(g, ack, GOSHMEM_SIGNAL_ADD, 1, (int)prev) && goshmem_wait_until(g, ack, GOSHMEM_GE, r);
      if (r == rounds) ok = ok && goshmem_quiet(g);
    }
    ok = __syncthreads_and(ok);
  }
  if (!ok && threadIdx.x == 0) atomicAdd_system((unsigned long long *)bad, 1ull << 32);
}
