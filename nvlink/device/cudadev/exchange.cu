// goshmem_exchange is device.Exchange: an alltoallv in one launch.
#include "../goshmem.cuh"

enum { few_parts = 4, max_parts = 32, mail_at = 0, mail_want, mail_n, mail_ready, mail_done };
enum { failed_ended = 1, failed_mismatch };

struct part {
  uint64_t src, n, heap, at, want;
  uint64_t *mail, *box;
  uint64_t blocks;
};
// The parts come last, so that a launch of few members has few bytes of parameters.
template <int N>
struct exchange {
  uint64_t n;
  uint64_t *state;  // calls so far; members done with; blocks done for each
  const uint64_t *stop;
  uint64_t *failed, limit, *passed, passed_value;
  part parts[N];
};

__device__ inline uint64_t now() {
  uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
}

// await is by one thread.
template <int N>
__device__ inline bool await(const exchange<N> &x, const uint64_t *p, uint64_t v) {
  uint64_t begin = now();
  for (unsigned turn = 0; goshmem::load(p) < v; turn++) {
    if ((turn & 31) == 31 && (goshmem::peek(x.stop) || now() - begin > x.limit)) {
      goshmem::publish(x.failed, failed_ended);
      return false;
    }
  }
  return true;
}

// move is this thread's share of a copy; several loads are under way at once.
__device__ inline void move(char *dst, const char *src, uint64_t n, uint64_t i, uint64_t parts) {
  uint64_t done = 0;
  if ((((uintptr_t)dst | (uintptr_t)src) & 15) == 0) {
    const int4 *s = (const int4 *)src;
    int4 *d = (int4 *)dst;
    uint64_t words = n / 16, w = i;
    for (; w + 3 * parts < words; w += 4 * parts) {
      int4 a = s[w], b = s[w + parts], c = s[w + 2 * parts], e = s[w + 3 * parts];
      d[w] = a;
      d[w + parts] = b;
      d[w + 2 * parts] = c;
      d[w + 3 * parts] = e;
    }
    for (; w < words; w += parts) d[w] = s[w];
    done = words * 16;
  } else if ((((uintptr_t)dst | (uintptr_t)src) & 3) == 0) {
    uint64_t words = n / 4;
    for (uint64_t w = i; w < words; w += parts) ((uint32_t *)dst)[w] = ((const uint32_t *)src)[w];
    done = words * 4;
  }
  for (uint64_t b = done + i; b < n; b += parts) dst[b] = src[b];
}

// Each part has some blocks. The first of a part comes before the second of any, and
// tells its member where the bytes go: then no block waits that another must precede.
template <int N>
__device__ inline void run(const exchange<N> &x) {
  __shared__ uint64_t seq, at, ok;
  uint32_t m = blockIdx.x % x.n, j = blockIdx.x / x.n;
  const part &p = x.parts[m];
  if (j >= p.blocks) return;
  if (threadIdx.x == 0) {
    seq = *(volatile uint64_t *)x.state + 1;
    at = p.at;
    ok = p.n == p.want;
    if (p.mail) {
      if (j == 0) {
        goshmem::store(&p.mail[mail_at], p.at);
        goshmem::store(&p.mail[mail_want], p.want);
        goshmem::store(&p.mail[mail_n], p.n);
        goshmem::publish(&p.mail[mail_ready], seq);
      }
      ok = await(x, &p.box[mail_ready], seq);
      if (ok) {
        at = goshmem::peek(&p.box[mail_at]);
        ok = goshmem::peek(&p.box[mail_want]) == p.n;
        if (!ok || goshmem::peek(&p.box[mail_n]) != p.want) goshmem::publish(x.failed, failed_mismatch);
      }
    } else if (!ok) {
      goshmem::publish(x.failed, failed_mismatch);
    }
  }
  __syncthreads();
  if (ok) move((char *)p.heap + at, (const char *)p.src, p.n, (uint64_t)j * blockDim.x + threadIdx.x, p.blocks * blockDim.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  unsigned long long *blocks = (unsigned long long *)&x.state[2 + m], *members = (unsigned long long *)&x.state[1];
  if (p.blocks > 1) {
    __threadfence_system();
    if (atomicAdd(blocks, 1ull) != p.blocks - 1) return;
    *blocks = 0;
    __threadfence();
  }
  if (p.mail) {
    goshmem::publish(&p.mail[mail_done], seq);
    await(x, &p.box[mail_done], seq);
  }
  __threadfence();
  if (atomicAdd(members, 1ull) != x.n - 1) return;
  *members = 0;
  *x.state = seq;
  if (x.passed) goshmem::publish(x.passed, x.passed_value);
}

extern "C" __global__ void __launch_bounds__(512) goshmem_exchange(const __grid_constant__ exchange<max_parts> x) { run(x); }
extern "C" __global__ void __launch_bounds__(512) goshmem_exchange_few(const __grid_constant__ exchange<few_parts> x) { run(x); }
