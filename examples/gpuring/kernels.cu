// The kernel of gpuring.
#include "../../nvlink/device/goshmem.cuh"

// ring: every block sends a row of n bytes to its PE's successor, with a signal behind
// it, waits for its predecessor's row and counts the bytes that are wrong. rounds
// times. A block answers each row by a second signal: its room may be used again.
extern "C" __global__ void ring(const goshmem_t *g, uint64_t dst, uint64_t src, uint64_t n, uint64_t sigs,
                                uint32_t rounds, uint64_t *wrong) {
  int next = (int)((g->pe + 1) % g->npes), prev = (int)((g->pe + g->npes - 1) % g->npes);
  uint64_t row = blockIdx.x * n, arrived = sigs + 64ull * blockIdx.x, room = arrived + 64ull * gridDim.x;
  char *out = (char *)goshmem_ptr(g, src + row, (int)g->pe);
  const volatile char *in = (char *)goshmem_ptr(g, dst + row, (int)g->pe);
  bool ok = true;
  for (uint32_t r = 1; r <= rounds && ok; r++) {
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = (char)(g->pe * 31 + r + i);
    ok = goshmem_put_signal_nbi_block(g, dst + row, src + row, n, arrived, GOSHMEM_SIGNAL_ADD, 1, next);
    if (threadIdx.x == 0) ok = ok && goshmem_wait_until(g, arrived, GOSHMEM_GE, r);
    ok = __syncthreads_and(ok);
    for (uint64_t i = threadIdx.x; i < n && ok; i += blockDim.x)
      if (in[i] != (char)(prev * 31 + r + i)) atomicAdd((unsigned long long *)wrong, 1ull);
    __syncthreads();
    if (threadIdx.x == 0)
      ok = goshmem_signal(g, room, GOSHMEM_SIGNAL_ADD, 1, prev) && goshmem_wait_until(g, room, GOSHMEM_GE, r);
    ok = __syncthreads_and(ok);
  }
  if (!ok && threadIdx.x == 0) atomicAdd((unsigned long long *)wrong, 1ull << 32);
}
