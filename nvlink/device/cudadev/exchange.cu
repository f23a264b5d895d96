// goshmem_exchange is device.Exchange: an alltoallv in one launch.
//
// Each pair of members has a box in the receiver's memory: words that count calls, one
// for each block that stores in place, and two sets of flagged lines, used in turn. A
// line is 16 bytes, {4 of data, flag, 4 of data, flag}: an aligned store of 8 bytes is
// never seen in part (a vector store is so many scalar ones), so whoever sees both
// flags of a call has its data, without a fence, in one trip. The first lines of a set
// tell the place, the size and what is expected. A part that has room behind them comes
// there; a larger one is stored in place, once the member has told where that is.
//
// A set is free when it is written. This PE begins call k+1 when its call k is over, and
// then it has the head of every member's call k; a member stores that in call k, which
// begins when its call k-1 is over, so that it has read all it was sent in k-1: the set
// that k+1 has again. A member that gave up before its time may find its set overwritten,
// sees a flag that is not its call's, and gives up again: it never takes other bytes.
//
// A flag comes again after 2^31 uses of a set. Every 2^30 uses all lines are written, so
// none is ever as old.
#ifdef GOSHMEM_EMULATED
#include "testdata/emulate.h"
#else
#include "../goshmem.cuh"

#define SHARED(type, name) __shared__ type name
__device__ inline uint64_t now() {
  uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
}
__device__ inline void store_line(char *p, uint64_t v, uint64_t flag) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"((v & 0xffffffff) | flag << 32),
               "l"(v >> 32 | flag << 32)
               : "memory");
}
__device__ inline bool load_line(const char *p, uint64_t flag, uint64_t &v) {
  uint64_t a, b;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
  v = (a & 0xffffffff) | b << 32;
  return a >> 32 == flag && b >> 32 == flag;
}
#endif

enum { few_parts = 4, max_parts = 32, most_blocks = 64, place_bits = 48 };
enum { set_at = 8 * most_blocks, head_bytes = 64, line_bytes = 16 };
enum { failed_ended = 1, failed_mismatch };

struct part {
  uint64_t src, n, heap, at, want;
  char *mail, *box;
  uint64_t lined, blocks;  // blocks that move lines, the first of this many
};
// The parts come last, so that a launch of few members has few bytes of parameters.
template <int N>
struct exchange {
  uint64_t n, landing;  // members; bytes that a set has room for
  char *heap;           // here
  uint64_t *state;      // calls so far; blocks that know
  const uint64_t *stop;
  uint64_t *failed, limit;
  uint64_t all;  // blocks of other members' parts
  part parts[N];
};
struct head {
  uint64_t at, n, want, blocks;
};

// patience ends a wait: by the stop, or by time.
template <int N>
struct patience {
  const exchange<N> &x;
  uint64_t begin;
  unsigned turn;

  __device__ patience(const exchange<N> &x) : x(x), begin(0), turn(0) {}
  __device__ bool over() {
    if ((++turn & 31) != 0) return false;
    if (turn == 32) begin = now();
    if (!goshmem::peek(x.stop) && now() - begin <= x.limit) return false;
    goshmem::publish(x.failed, failed_ended);
    return true;
  }
};

// take and give are 8 bytes of n, number w.
__device__ inline uint64_t take(const char *src, uint64_t n, uint64_t w) {
  if (((uintptr_t)src & 7) == 0 && 8 * w + 8 <= n) return ((const uint64_t *)src)[w];
  uint64_t v = 0;
  for (uint64_t b = 0; b < 8 && 8 * w + b < n; b++) v |= (uint64_t)(uint8_t)src[8 * w + b] << 8 * b;
  return v;
}
__device__ inline void give(char *dst, uint64_t n, uint64_t w, uint64_t v) {
  if (((uintptr_t)dst & 7) == 0 && 8 * w + 8 <= n) {
    ((uint64_t *)dst)[w] = v;
    return;
  }
  for (uint64_t b = 0; b < 8 && 8 * w + b < n; b++) dst[8 * w + b] = (char)(v >> 8 * b);
}

enum { at_once = 4 };  // lines of a thread under way together

// send is this thread's share of the lines of a call.
template <int N>
__device__ inline void send(const exchange<N> &x, const part &p, char *set, uint64_t seq, uint64_t flag, uint64_t i) {
  if (i < 3) {
    uint64_t place = p.at | (p.blocks - p.lined) << place_bits;
    store_line(set + i * line_bytes, i == 0 ? place : i == 1 ? p.n : p.want, flag);
  }
  uint64_t n = p.n <= x.landing ? p.n : 0, words = (n + 7) / 8, step = p.lined * blockDim.x, v[at_once];
  if ((seq >> 1 & 0x3fffffff) == 0) words = x.landing / 8;
  for (uint64_t w = i; w < words; w += at_once * step) {
#pragma unroll
    for (int k = 0; k < at_once; k++) v[k] = take((const char *)p.src, n, w + k * step);
#pragma unroll
    for (int k = 0; k < at_once; k++)
      if (w + k * step < words) store_line(set + head_bytes + (w + k * step) * line_bytes, v[k], flag);
  }
}

// hear waits for what the member tells. By one thread: many would keep the line so busy
// that it comes late, by up to 100 us.
template <int N>
__device__ inline bool hear(const exchange<N> &x, const char *set, uint64_t flag, head &h) {
  patience<N> wait(x);
  for (;;) {
    uint64_t place;
    bool a = load_line(set, flag, place), b = load_line(set + line_bytes, flag, h.n);
    bool c = load_line(set + 2 * line_bytes, flag, h.want);
    if (a && b && c) {
      h.at = place & ((1ull << place_bits) - 1);
      h.blocks = place >> place_bits;
      return true;
    }
    if (wait.over()) return false;
  }
}

// receive is this thread's share of n bytes that come in lines.
template <int N>
__device__ inline void receive(const exchange<N> &x, char *dst, uint64_t n, const char *lines, uint64_t flag, uint64_t i,
                               uint64_t step) {
  patience<N> wait(x);
  uint64_t words = (n + 7) / 8, v[at_once];
  for (uint64_t w = i; w < words; w += at_once * step) {
    for (;;) {
      bool there = true;
#pragma unroll
      for (int k = 0; k < at_once; k++)
        if (w + k * step < words) there &= load_line(lines + (w + k * step) * line_bytes, flag, v[k]);
      if (there) break;
      if (wait.over()) return;
    }
#pragma unroll
    for (int k = 0; k < at_once; k++)
      if (w + k * step < words) give(dst, n, w + k * step, v[k]);
  }
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

// begin waits for what is before this launch in the stream, where it was set up before
// that was over, and lets the next one be.
__device__ inline void begin() {
#ifdef GOSHMEM_EARLY
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Each part has some blocks. Those of a number come before those of the next, and send
// before they wait: then no block waits for one that it keeps from beginning.
template <int N>
__device__ inline void run(const exchange<N> &x) {
  SHARED(head, h);
  SHARED(bool, heard);
  uint32_t m = blockIdx.x % x.n, j = blockIdx.x / x.n;
  const part &p = x.parts[m];
  if (j >= p.blocks) return;
  begin();
  uint64_t i = (uint64_t)j * blockDim.x + threadIdx.x;
  if (!p.mail) {
    if (p.n == p.want) move(x.heap + p.at, (const char *)p.src, p.n, i, p.blocks * blockDim.x);
    if (i == 0 && p.n != p.want) goshmem::publish(x.failed, failed_mismatch);
    return;
  }
  uint64_t seq = *(volatile uint64_t *)x.state + 1, flag = (seq >> 1 & 0x7fffffff) | 0x80000000;
  uint64_t set = set_at + (seq & 1) * (head_bytes + 2 * x.landing), step = p.lined * blockDim.x;
  const char *in = p.box + set;
  if (j < p.lined) send(x, p, p.mail + set, seq, flag, i);
  __syncthreads();
  if (threadIdx.x == 0) {
    uint64_t know = atomicAdd((unsigned long long *)&x.state[1], 1ull) + 1;
    heard = hear(x, in, flag, h);
    if (know == x.all) {  // all blocks have the number of this call
      x.state[1] = 0;
      *x.state = seq;
    }
    if (i == 0 && heard && (h.n != p.want || h.want != p.n)) goshmem::publish(x.failed, failed_mismatch);
  }
  __syncthreads();
  if (!heard) return;
  if (j >= p.lined) {  // in place
    if (h.want != p.n) return;
    move((char *)p.heap + h.at, (const char *)p.src, p.n, i - step, (p.blocks - p.lined) * blockDim.x);
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    goshmem::store((uint64_t *)p.mail + (j - p.lined), seq);
  } else if (h.n == p.want) {
    if (p.want <= x.landing) receive(x, x.heap + p.at, p.want, in + head_bytes, flag, i, step);
    patience<N> wait(x);
    while (i < h.blocks && goshmem::load((const uint64_t *)p.box + i) < seq && !wait.over()) {
    }
  }
}

extern "C" __global__ void __launch_bounds__(512, 1) goshmem_exchange(const __grid_constant__ exchange<max_parts> x) { run(x); }
extern "C" __global__ void __launch_bounds__(512, 1) goshmem_exchange_few(const __grid_constant__ exchange<few_parts> x) { run(x); }
