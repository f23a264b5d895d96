// Dispatch and combine on device memory. What is computed is defined by package
// oracle; what lies where is in layout.go, whose Ctx this file's mirrors.
//
// One slot of an engine is served by one call at a time on every rank. Ranks talk
// by 64-bit flags in each other's memory that only grow: the number of the call on
// the slot. state words are private to the device and advanced by kernels, so that
// a captured graph can be replayed.
#ifdef MOE_EMULATED
#include "emulate.h"
#define narrow2(lo, hi) (narrow(lo) | narrow(hi) << 16)
#else
#include <stdint.h>
#define DEV __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
extern __shared__ __align__(128) char dynamic_shared[];
#define SHARED dynamic_shared

DEV uint64_t load_acquire(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
DEV void store_release(uint64_t *p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEV void store_relaxed(uint64_t *p, uint64_t v) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEV uint64_t now() {
  uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
}
DEV void pause() {}
DEV uint64_t add64(uint64_t *p, uint64_t v) { return atomicAdd((unsigned long long *)p, (unsigned long long)v); }
DEV void max64(uint64_t *p, uint64_t v) { atomicMax((unsigned long long *)p, (unsigned long long)v); }
// narrow2 rounds two values to bf16, the first in the low half. A NaN is 0x7fff.
DEV uint32_t narrow2(float lo, float hi) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
  return v;
}
DEV uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEV void barrier_init(uint64_t *bar) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(bar)) : "memory");
}
DEV void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory"); }
// bulk_next goes between writing shared memory and a meeting after which bulk copies
// write there.
DEV void bulk_next() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void barrier_wait(uint64_t *bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(bar)), "r"(parity)
        : "memory");
  } while (!done);
}
// bulk_load fetches n bytes; the barrier's phase ends when they are there.
DEV void bulk_load(void *shared, const char *global, uint32_t n, uint64_t *bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(n) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(n), "r"(shared_address(bar))
               : "memory");
}
DEV void bulk_store(char *global, const void *shared, uint32_t n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)),
               "r"(n)
               : "memory");
}
DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// bulk_reads waits until all but the last two groups have read their source,
// bulk_window until all but the last three are where they go.
DEV void bulk_reads() { asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory"); }
DEV void bulk_window() { asm volatile("cp.async.bulk.wait_group 3;" ::: "memory"); }
DEV void bulk_end() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
#endif

struct Ctx {
  int64_t rank, ranks, experts, topk, hidden;
  int64_t row_bytes, scale_bytes, y_size, share_size;
  int64_t expert_major, at_expert, align;
  int64_t max_tokens, row_cap, record_cap;
  int64_t in_flight, slots;
  int64_t first, locals;  // this rank's experts
  // Offsets in every rank's part of the symmetric memory.
  int64_t heads, head_bytes, flags;
  int64_t rows, scales, source, token, choice, local, weight, pair_start, pair_weight, pair_row, back;
  // Copy engine: fixed room for each rank; 0 where the mover is direct.
  int64_t engine, per_token, arrive;
  // Addresses.
  uint64_t peers, owner, ownlocal, work, work_stride, state, all, stop, report, send, pulled;
  uint64_t limit;  // ns
  // Offsets in a routing.
  int64_t r_idx, r_w, r_code, r_rec, r_row, r_pair, r_n, r_list, r_list_w, r_inv, r_to, r_from, r_counts, r_offsets;
};

enum { F_HEAD, F_DATA, F_READY, F_DONE, flag_kinds };
enum { S_SEQ, S_BAR, S_EXIT, S_GEN, S_BROKEN, S_COMBINED, S_FAULT, S_LAST, S_COUNT, S_VERDICT, state_words };
enum { H_TOKENS, H_RECORDS, H_ROWS, H_PAIRS, H_CODE, H_NUMBER };  // words at the start of a routing
enum { W_GEN, W_CODE, W_PE, W_A, W_B, W_C, W_RECORDS, W_ROWS, W_PAIRS, W_LAST, W_COUNTS = 16 };
enum { none, bad_expert, duplicate, too_many, too_many_rows, bad_argument, aliased, stale, foreign, other_call, other_plan, corrupt, timed_out = 100 };
enum { call_dispatch = 1, call_cached, call_combine };
enum { o_cached = 1, o_wait = 2, o_bulk = 4, o_engine = 8, o_own_bias = 16, o_drain = 32 };

constexpr int64_t no_fault = 0x7fffffffffffffffLL;
enum { last_part = 255,  // of a dispatch, below the call in F_DATA
       mover_warps = 4, most_stages = 8, near_peers = 64 };

// Slot is what the device knows of a slot; those of an engine lie at c.all.
struct Slot {
  Ctx c;
  uint64_t peers[near_peers], far[near_peers];  // the first of c.peers
  uint64_t state[state_words];
};

struct Shared : Slot {  // as the kernel found it
  uint64_t full[mover_warps * most_stages];
  uint64_t code, pe, a, b, cc;
  uint64_t ok, last, fault, over;
};

template <typename T>
DEV T *at(uint64_t base, int64_t off) {
  return (T *)(base + off);
}

#define LANE (threadIdx.x & 31)
#define WARP (threadIdx.x >> 5)
#define WARPS (blockDim.x >> 5)
#define FULL 0xffffffffu

// c is a Shared's.
DEV uint64_t peer(const Ctx &c, int64_t r) {
  return r < near_peers ? ((const Slot *)&c)->peers[r] : ((const uint64_t *)c.peers)[r];
}
// is_far tells ranks that a link leads to from those on the same device.
DEV bool is_far(const Ctx &c, int64_t r) {
  return (r < near_peers ? ((const Slot *)&c)->far[r] : ((const uint64_t *)c.peers)[c.ranks + r]) != 0;
}
DEV uint64_t mine(const Ctx &c) { return peer(c, c.rank); }
DEV uint64_t *state(const Ctx &c) { return (uint64_t *)c.state; }
DEV uint64_t *flag(const Ctx &c, int64_t at_rank, int kind, int64_t from) {
  return at<uint64_t>(peer(c, at_rank), c.flags) + (kind * c.ranks + from);
}

// enter copies the slot into shared memory; false: the engine is broken.
DEV bool enter(const Slot *g, Shared *sh) {
  for (unsigned i = threadIdx.x; i < sizeof(Slot) / 8; i += blockDim.x) ((uint64_t *)sh)[i] = ((const uint64_t *)g)[i];
  if (threadIdx.x == 0) {
    sh->ok = 1;
    sh->code = none;
    sh->over = 0;
  }
  __syncthreads();
  return sh->state[S_BROKEN] == 0;
}

// in_all sets a word of the state of every slot, by all threads of a block.
DEV void in_all(const Ctx &c, int word, uint64_t v) {
  for (int64_t i = threadIdx.x; i < c.slots; i += blockDim.x) ((Slot *)c.all)[i].state[word] = v;
}

// reach waits until a word is at least v. false: the deadline or the host ended it.
DEV bool reach(const Ctx &c, const uint64_t *p, uint64_t v, uint64_t begin) {
  for (unsigned turn = 1; load_acquire(p) < v; turn++) {
    if ((turn & 63) == 0 && (now() - begin > c.limit || load_acquire((const uint64_t *)c.stop))) return false;
    pause();
  }
  return true;
}

DEV void fail(Shared *sh, uint64_t code, uint64_t pe, uint64_t a, uint64_t b, uint64_t cc) {
  sh->code = code;
  sh->pe = pe;
  sh->a = a;
  sh->b = b;
  sh->cc = cc;
}

// hear waits for a kind of flag of every rank, by one warp.
DEV bool hear(Shared *sh, int kind, uint64_t v) {
  const Ctx &c = sh->c;
  uint64_t begin = now();
  bool here = true;
  for (int64_t s = LANE; s < c.ranks && here; s += 32) {
    here = reach(c, flag(c, c.rank, kind, s), v, begin);
    if (!here) fail(sh, timed_out, s, kind, v, 0);
  }
  return __ballot_sync(FULL, !here) == 0;
}

// await waits for a kind of flag of every rank, by all threads of a block.
DEV bool await(Shared *sh, int kind, uint64_t v) {
  const Ctx &c = sh->c;
  uint64_t begin = now();
  for (int64_t s = threadIdx.x; s < c.ranks; s += blockDim.x) {
    if (!reach(c, flag(c, c.rank, kind, s), v, begin)) {
      sh->ok = 0;
      fail(sh, timed_out, s, kind, v, 0);
    }
  }
  __syncthreads();
  return sh->ok != 0;
}

// meet lets all blocks of the grid meet for the n-th time.
DEV bool meet(Shared *sh, uint64_t n) {
  const Ctx &c = sh->c;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    add64(&state(c)[S_BAR], 1);
    if (!reach(c, &state(c)[S_BAR], n * gridDim.x, now())) {
      sh->ok = 0;
      fail(sh, timed_out, c.rank, 0, n, 0);
    }
    __threadfence();
    sh->fault = state(c)[S_FAULT];
  }
  __syncthreads();
  return sh->ok != 0;
}

// tell writes what became of the call where the host sees it, behind the kernel: as
// soon as it is known, since that way is long.
DEV void tell(Shared *sh, uint64_t gen, uint64_t last, uint64_t count) {
  uint64_t *w = (uint64_t *)sh->c.report;
  w[W_CODE] = sh->code;
  w[W_PE] = sh->pe;
  w[W_A] = sh->a;
  w[W_B] = sh->b;
  w[W_C] = sh->cc;
  w[W_GEN] = gen;
  w[W_LAST] = last;
  ((uint64_t *)sh->c.stop)[1] = count;
}

DEV void give_up(Shared *sh, uint64_t gen) {
  __syncthreads();
  in_all(sh->c, S_BROKEN, 1);
  if (threadIdx.x == 0) tell(sh, gen, sh->state[S_LAST], sh->state[S_COUNT]);
}

// leave counts this block out. true, for all its threads, in the last block, which
// tells every rank by flags of a kind (from 0 on) that all blocks are done.
DEV bool leave(Shared *sh, int kind, uint64_t v) {
  const Ctx &c = sh->c;
  __syncthreads();
  if (WARP == 0) {
    int last = 0;
    if (LANE == 0) {
      __threadfence_system();
      last = add64(&state(c)[S_EXIT], 1) == gridDim.x - 1;
    }
    last = __shfl_sync(FULL, last, 0);
    __syncwarp();  // what the first lane has seen, all have
    if (last) {
      __threadfence_system();
      for (int64_t i = LANE; i < c.ranks && kind >= 0; i += 32) store_relaxed(flag(c, (c.rank + i) % c.ranks, kind, c.rank), v);
      if (LANE == 0) state(c)[S_EXIT] = state(c)[S_FAULT] = state(c)[S_BAR] = 0;
    }
    if (LANE == 0) sh->last = last;
  }
  __syncthreads();
  return sh->last != 0;
}

DEV int64_t warp_sum(int64_t v) {
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(FULL, v, d);
  return v;
}
DEV int64_t warp_scan(int64_t v) {  // inclusive
  for (int d = 1; d < 32; d <<= 1) {
    int64_t o = __shfl_up_sync(FULL, v, d);
    if (LANE >= d) v += o;
  }
  return v;
}

// Counters of a block: rows by rank, choices by rank, choices by expert. Behind them
// what the block needs of its own: prefixes likewise, the base of each expert, of
// each rank's records and choices, and what each rank receives.
DEV int64_t counters(const Ctx &c) { return 2 * c.ranks + c.experts; }
DEV uint32_t *counts_of(const Ctx &c, int64_t b) { return (uint32_t *)(c.work + b * c.work_stride); }
DEV int64_t *prefix_of(const Ctx &c, int64_t b) { return (int64_t *)(c.work + b * c.work_stride + ((counters(c) * 4 + 7) & ~7LL)); }
DEV int64_t *base_of(const Ctx &c, int64_t b) { return prefix_of(c, b) + counters(c); }

// owner_of is the rank that holds an expert: plan.NewOwners.
DEV int owner_of(const Ctx &c, int e) {
  uint32_t each = (uint32_t)c.experts / (uint32_t)c.ranks, more = (uint32_t)c.experts % (uint32_t)c.ranks, u = (uint32_t)e;
  uint32_t split = more * (each + 1);
  return (int)(u < split ? u / (each + 1) : more + (u - split) / each);
}

// Chunk is a block's tokens, of fewer than 2^32.
struct Chunk {
  int64_t from, to;
};
DEV Chunk chunk(int64_t tokens) {
  uint32_t each = (uint32_t)tokens / gridDim.x, more = (uint32_t)tokens % gridDim.x, b = blockIdx.x;
  Chunk k = {(int64_t)each * b + min(b, more), (int64_t)each * (b + 1) + min(b + 1, more)};
  return k;
}

// Choices is a block's choices, owners and experts: in shared memory if they fit
// there (NEAR), else in the routing. Those of a token begin pitch after the ones before:
// odd, so that threads with a token each do not meet in a bank.
template <bool NEAR>
struct Choices {
  int tokens, K, pitch;
  int *code, *idx;
  uint32_t *counts;  // of the block
  DEV Choices(const Ctx &c, uint64_t r, Chunk ch, char *room) : tokens((int)(ch.to - ch.from)), K((int)c.topk), pitch(NEAR ? K | 1 : K) {
    code = NEAR ? (int *)room : at<int>(r, c.r_code) + ch.from * K;
    idx = NEAR ? code + tokens * pitch : at<int>(r, c.r_idx) + ch.from * K;
    counts = NEAR ? (uint32_t *)(idx + tokens * pitch) : counts_of(c, blockIdx.x);
  }
  DEV int at_choice(int i) const { return i + i / K * (pitch - K); }
};
DEV bool fits(const Ctx &c, Chunk ch, int64_t room_bytes) {
  return (ch.to - ch.from) * (c.topk | 1) * 8 + counters(c) * 4 <= room_bytes;
}

// count checks this block's tokens, notes each choice's owner and counts. A fault is
// kept as how far it lies before the last one possible, the largest being the first.
template <bool NEAR>
DEV void count(Shared *sh, uint64_t r, const int *idx, const float *w, Chunk ch, char *room) {
  const Ctx &c = sh->c;
  const Choices<NEAR> x(c, r, ch, room);
  int K = x.K, R = (int)c.ranks, n = x.tokens * K;
  int64_t first = ch.from * K;
  for (int64_t i = threadIdx.x; i < counters(c); i += blockDim.x) x.counts[i] = 0;
  const int some = 4;  // at once: on their way together
  for (int i0 = threadIdx.x; i0 < n; i0 += some * blockDim.x) {
    int e[some];
    float v[some];
#pragma unroll
    for (int u = 0; u < some; u++) {
      int i = i0 + u * blockDim.x;
      e[u] = i < n ? idx[first + i] : -1;
      v[u] = i < n ? w[first + i] : 0.0f;
    }
#pragma unroll
    for (int u = 0; u < some; u++) {
      int i = i0 + u * blockDim.x;
      if (i >= n) break;
      at<int>(r, c.r_idx)[first + i] = e[u];
      at<float>(r, c.r_w)[first + i] = v[u];
      int at_i = x.at_choice(i);
      x.idx[at_i] = e[u];
      x.code[at_i] = e[u] >= 0 && e[u] < c.experts ? owner_of(c, e[u]) * 2 : e[u] == -1 ? -1 : -2;
    }
  }
  __syncthreads();
  // The first choice of each rank, by the lowest bit, which others do not look at.
  // Counters of few ranks are many threads': a lane counts for each.
  bool few = R <= 8;
  uint32_t firsts = 0, pairs = 0;
  for (int i0 = WARP * 32; i0 < n; i0 += blockDim.x) {
    int i = i0 + LANE, at_i = x.at_choice(i), o = i < n ? x.code[at_i] : -1, e = i < n ? x.idx[at_i] : -1;
    bool bad = o < -1, twice = false, before = false;
    int from = o == -1 ? at_i : i / K * x.pitch;
#pragma unroll 4
    for (int j = from; j < at_i; j++) {
      before |= (x.code[j] | 1) == (o | 1);
      twice |= x.idx[j] == e;
    }
    if (bad || twice) max64(&state(c)[S_FAULT], (uint64_t)(no_fault - ((first + i) * 2 + !bad)));
    if (bad) o = -1;
    if (o >= 0 && !before) o |= 1;
    if (i < n) {
      x.code[at_i] = o;
      at<int>(r, c.r_code)[first + i] = o;
    }
    if (o >= 0) atomicAdd(&x.counts[2 * R + e], 1u);
    for (int d = 0; few && d < R; d++) {
      uint32_t all = __ballot_sync(FULL, o >= 0 && (o >> 1) == d), some = __ballot_sync(FULL, o >= 0 && (o >> 1) == d && !before);
      if (LANE == d) {
        pairs += __popc(all);
        firsts += __popc(some);
      }
    }
    if (few || o < 0) continue;
    if (!before) atomicAdd(&x.counts[o >> 1], 1u);
    atomicAdd(&x.counts[R + (o >> 1)], 1u);
  }
  if (few && LANE < R) {
    atomicAdd(&x.counts[LANE], firsts);
    atomicAdd(&x.counts[R + LANE], pairs);
  }
  if (!NEAR) return;
  bulk_next();
  __syncthreads();
  for (int64_t i = threadIdx.x; i < counters(c); i += blockDim.x) counts_of(c, blockIdx.x)[i] = x.counts[i];
}

DEV char *head_at(const Ctx &c, int64_t at_rank, uint64_t seq, int64_t from) {
  return at<char>(peer(c, at_rank), c.heads + ((int64_t)(seq & 1) * c.ranks + from) * c.head_bytes);
}

struct Fault {
  uint64_t code, a, b, c;
};

// put_head writes the head of a call at a rank: moe's plan.Head.
DEV void put_head(const Ctx &c, int64_t to, uint64_t seq, uint32_t call, int64_t tokens, uint64_t number, Fault f) {
  char *h = head_at(c, to, seq, c.rank);
  *(uint64_t *)h = seq;
  *(uint32_t *)(h + 8) = call;
  *(uint32_t *)(h + 12) = (uint32_t)tokens;
  *(uint64_t *)(h + 16) = number;
  *(uint32_t *)(h + 24) = (uint32_t)f.code;
  *(uint64_t *)(h + 32) = f.a;
  *(uint64_t *)(h + 40) = f.b;
  *(uint64_t *)(h + 48) = f.c;
}

// announce sends the head of a call to every rank, by some threads, of which this
// is the i-th.
DEV void announce(const Ctx &c, int kind, uint64_t seq, uint32_t call, int64_t tokens, uint64_t number, Fault f, unsigned i, unsigned threads) {
  for (; i < c.ranks; i += threads) {
    int64_t to = (c.rank + i) % c.ranks;
    put_head(c, to, seq, call, tokens, number, f);
    store_release(flag(c, to, kind, c.rank), seq);
  }
}

// add_up sends every rank what this one's blocks counted, behind the head, by a block.
DEV void add_up(const Ctx &c, uint64_t seq) {
  for (int64_t i = threadIdx.x; i < counters(c); i += blockDim.x) {
    uint32_t n = 0;
    for (unsigned b = 0; b < gridDim.x; b += 24) {
      uint32_t some[24];
#pragma unroll
      for (unsigned u = 0; u < 24; u++) some[u] = b + u < gridDim.x ? counts_of(c, b + u)[i] : 0;
#pragma unroll
      for (unsigned u = 0; u < 24; u++) n += some[u];
    }
    for (int64_t d = 0; d < c.ranks; d++) ((uint32_t *)(head_at(c, d, seq, c.rank) + 64))[i] = n;
  }
  __syncthreads();
}

// judge looks at all heads, by one warp.
DEV void judge(Shared *sh, uint64_t seq, uint32_t call, uint64_t number, Fault own) {
  const Ctx &c = sh->c;
  if (LANE == 0) fail(sh, own.code, c.rank, own.a, own.b, own.c);
  for (int64_t s0 = 0; s0 < c.ranks && own.code == none; s0 += 32) {
    int64_t s = s0 + LANE;
    const char *h = head_at(c, c.rank, seq, min(s, c.ranks - 1));
    uint64_t theirs_seq = *(const uint64_t *)h, plan = *(const uint64_t *)(h + 16);
    uint32_t theirs = *(const uint32_t *)(h + 8), code = *(const uint32_t *)(h + 24);
    bool good = theirs_seq == seq && code == none && theirs == call && plan == number;
    uint32_t bad = __ballot_sync(FULL, s < c.ranks && !good);
    if (!bad) continue;
    if (LANE == __popc((bad & (0u - bad)) - 1)) {  // the first
      if (theirs_seq != seq)
        fail(sh, corrupt, c.rank, s, 0, 0);
      else if (code != none)
        fail(sh, code, s, *(const uint64_t *)(h + 32), *(const uint64_t *)(h + 40), *(const uint64_t *)(h + 48));
      else if (theirs != call)
        fail(sh, other_call, c.rank, s, theirs, call);
      else
        fail(sh, other_plan, c.rank, s, plan, number);
    }
    break;
  }
  __syncwarp();
}

DEV const uint32_t *rows_from(const Ctx &c, uint64_t seq, int64_t s) {
  return (const uint32_t *)(head_at(c, c.rank, seq, s) + 64);
}
DEV const uint32_t *pairs_from(const Ctx &c, uint64_t seq, int64_t s) { return rows_from(c, seq, s) + 2 * c.ranks; }

// earlier computes what the blocks before this one counted.
DEV void earlier(const Ctx &c) {
  int64_t R = c.ranks, b = blockIdx.x, *prefix = prefix_of(c, b);
  for (int64_t i = WARP; i < 2 * R; i += WARPS) {
    int64_t n = 0;
    for (int64_t j = LANE; j < b; j += 32) n += counts_of(c, j)[i];
    n = warp_sum(n);
    if (LANE == 0) prefix[i] = n;
  }
  for (int64_t i = 2 * R + threadIdx.x; i < counters(c) && c.expert_major; i += blockDim.x) {
    int64_t n = 0;
#pragma unroll 8
    for (int64_t j = 0; j < b; j++) n += counts_of(c, j)[i];
    prefix[i] = n;
  }
}

// place computes, for this block alone, where this rank's rows begin at every
// other, and how much every rank receives. sh->over, 0 before, is no_fault less the
// first rank that receives too much. Heads that were refused do no harm.
DEV void place(Shared *sh, uint64_t seq) {
  const Ctx &c = sh->c;
  int64_t R = c.ranks, E = c.experts;
  int64_t *expert = base_of(c, blockIdx.x), *rec = expert + E, *pair = rec + R, *rows_at = pair + R, *records_at = rows_at + R;
  for (int64_t d = WARP; d < R; d += WARPS) {
    int64_t all = 0, before = 0, pairs = 0, rows = 0;
    for (int64_t s = LANE; s < R; s += 32) {
      const uint32_t *from = rows_from(c, seq, s);
      int64_t n = from[d];
      all += n;
      if (s < c.rank) {
        before += n;
        pairs += from[R + d];
      }
    }
    all = warp_sum(all);
    before = warp_sum(before);
    pairs = warp_sum(pairs);
    if (c.expert_major) {
      int64_t each = E / R, more = E % R;
      int64_t e0 = d * each + min(d, more), e1 = e0 + each + (d < more);
      for (int64_t e = e0; e < e1; e += 32) {
        int64_t total = 0, earlier = 0, i = e + LANE;
        if (i < e1) {
          for (int64_t s = 0; s < R; s++) {
            int64_t n = pairs_from(c, seq, s)[i];
            total += n;
            if (s < c.rank) earlier += n;
          }
        }
        int64_t padded = (total + c.align - 1) / c.align * c.align;
        int64_t end = warp_scan(padded);
        if (i < e1) expert[i] = rows + end - padded + earlier;
        rows += __shfl_sync(FULL, end, 31);
      }
    } else {
      rows = all;
    }
    if (LANE == 0) {
      rec[d] = before;
      pair[d] = pairs;
      rows_at[d] = rows;
      records_at[d] = all;
      if (rows > c.row_cap || all > c.record_cap) max64(&sh->over, (uint64_t)(no_fault - d));
    }
  }
  __syncthreads();
}

// receive notes what arrives here: counts, offsets, sources. By one warp.
DEV void receive(Shared *sh, uint64_t r, uint64_t seq, int64_t rows, int64_t records) {
  const Ctx &c = sh->c;
  int64_t R = c.ranks;
  int64_t *from = at<int64_t>(r, c.r_from), *counts = at<int64_t>(r, c.r_counts), *offsets = at<int64_t>(r, c.r_offsets);
  {
    int64_t sum = 0, pairs = 0;
    for (int64_t s0 = 0; s0 < R; s0 += 32) {
      int64_t s = s0 + LANE, n = s < R ? (int64_t)rows_from(c, seq, s)[c.rank] : 0;
      int64_t end = warp_scan(n);
      if (s < R) from[s] = sum + end - n;
      sum += __shfl_sync(FULL, end, 31);
    }
    int64_t off = 0;
    if (!c.expert_major) {
      for (int64_t s = LANE; s < R; s += 32) pairs += rows_from(c, seq, s)[R + c.rank];
      pairs = warp_sum(pairs);
      for (int64_t l0 = LANE; l0 < c.locals; l0 += 128) {
        int64_t n[4] = {0, 0, 0, 0};
        for (int64_t s = 0; s < R; s++)
#pragma unroll
          for (int u = 0; u < 4; u++) n[u] += l0 + u * 32 < c.locals ? pairs_from(c, seq, s)[c.first + l0 + u * 32] : 0;
#pragma unroll
        for (int u = 0; u < 4; u++) {
          if (l0 + u * 32 >= c.locals) break;
          counts[l0 + u * 32] = n[u];
          offsets[l0 + u * 32] = 0;
        }
      }
    }
    for (int64_t l0 = 0; l0 < c.locals && c.expert_major; l0 += 32) {
      int64_t l = l0 + LANE, n = 0;
      if (l < c.locals)
        for (int64_t s = 0; s < R; s++) n += pairs_from(c, seq, s)[c.first + l];
      int64_t padded = (n + c.align - 1) / c.align * c.align;
      int64_t end = warp_scan(padded);
      if (l < c.locals) {
        counts[l] = n;
        offsets[l] = off + end - padded;
      }
      off += __shfl_sync(FULL, end, 31);
      pairs += warp_sum(n);
    }
    if (LANE == 0) {
      from[R] = sum;
      offsets[c.locals] = off;
      int64_t *h = (int64_t *)r;
      h[H_RECORDS] = records;
      h[H_ROWS] = rows;
      h[H_PAIRS] = pairs;
      at<int64_t>(mine(c), c.pair_start)[records] = pairs;
    }
  }
  for (int64_t d = LANE; d < R; d += 32) at<int64_t>(r, c.r_to)[d] = rows_from(c, seq, c.rank)[d];
  __syncwarp();
}

// publish_counts copies what receive noted to the host. By one warp.
DEV void publish_counts(Shared *sh, uint64_t r) {
  const Ctx &c = sh->c;
  const int64_t *h = (const int64_t *)r, *from = at<int64_t>(r, c.r_from), *counts = at<int64_t>(r, c.r_counts), *offsets = at<int64_t>(r, c.r_offsets);
  int64_t *w = (int64_t *)c.report;
  if (LANE == 0) {
    w[W_RECORDS] = h[H_RECORDS];
    w[W_ROWS] = h[H_ROWS];
    w[W_PAIRS] = h[H_PAIRS];
  }
  int64_t a = c.ranks + 1, b = a + c.locals, n = b + c.locals + 1;
  for (int64_t i0 = LANE; i0 < n; i0 += 256) {
    int64_t v[8];
#pragma unroll
    for (int u = 0; u < 8; u++) {
      int64_t i = i0 + u * 32;
      const int64_t *p = i < a ? from + i : i < b ? counts + (i - a) : offsets + (i - b);
      v[u] = i < n ? *p : 0;
    }
#pragma unroll
    for (int u = 0; u < 8; u++)
      if (i0 + u * 32 < n) w[W_COUNTS + i0 + u * 32] = v[u];
  }
}

constexpr uint64_t row_mask = 0xffffffffffffULL;

// position numbers this block's choices, some warps for each rank and each expert:
// records, rows (in rank-major order the same) and pairs. It notes from where the
// results are fetched (rank << 48 | row).
template <bool NEAR>
DEV void position(Shared *sh, uint64_t r, Chunk ch, char *room) {
  const Ctx &c = sh->c;
  const Choices<NEAR> x(c, r, ch, room);
  int64_t skip = ch.from * c.topk;
  int K = x.K, R = (int)c.ranks, E = (int)c.experts, n = x.tokens;
  unsigned b = blockIdx.x;
  const int64_t *prefix = prefix_of(c, b), *expert = base_of(c, b), *recs = expert + E, *pairs = recs + R;
  const int *code = x.code, *idx = x.idx;
  int64_t *rec = at<int64_t>(r, c.r_rec) + skip, *pair = at<int64_t>(r, c.r_pair) + skip, *row = at<int64_t>(r, c.r_row) + skip;
  uint64_t *list = at<uint64_t>(r, c.r_list) + skip;
  int *inv = at<int>(r, c.r_inv), *len = at<int>(r, c.r_n) + ch.from;
  int classes = R + (c.expert_major ? E : 0), parts = max((int)WARPS / classes, 1);
  int each = (n + parts * 32 - 1) / (parts * 32) * 32;
  for (int v = WARP; v < classes * parts; v += WARPS) {
    int d = v % classes, from = min(v / classes * each, n), to = min(from + each, n), e = d - R;
    bool by_rank = d < R;
    if (!by_rank && x.counts[2 * R + e] == 0) continue;
    int64_t at_row = by_rank ? recs[d] + prefix[d] : expert[e] + prefix[2 * R + e];
    int64_t at_pair = by_rank ? pairs[d] + prefix[R + d] : 0;
    int hits = 0, tokens = 0;  // before this part
    for (int t = LANE; t < from; t += 32) {
      int m = 0;
#pragma unroll 8
      for (int k = 0; k < K; k++) m += by_rank ? (code[t * x.pitch + k] >> 1) == d : idx[t * x.pitch + k] == e;
      hits += m;
      tokens += m > 0;
    }
    at_pair += warp_sum(hits);
    at_row += warp_sum(tokens);
    for (int t0 = from; t0 < to; t0 += 32) {
      int t = t0 + LANE;
      int mine = 0, k1 = 0, first = 0, lower = 0;  // ranks of the token, those below d
      uint32_t which = 0;  // of the token's choices
      int here = t < n ? K : 0;
#pragma unroll 8
      for (int k = 0; k < here; k++) {
        int o = code[t * x.pitch + k];
        if (by_rank ? (o >> 1) == d : idx[t * x.pitch + k] == e) {
          mine++;
          k1 = k;
          which |= 1u << (k & 31);
        }
        if (o >= 0 && (o & 1)) {
          first++;
          lower += (o >> 1) < d;
        }
      }
      uint32_t who = __ballot_sync(FULL, mine > 0);
      int64_t my_row = at_row + __popc(who & ((1u << LANE) - 1));
      if (by_rank) {
        int64_t end = warp_scan(mine), p = at_pair + end - mine;
        if (K <= 32) {  // a lane a choice: neighbours store side by side
          int most = min(32, to - t0) * K, whose = LANE / K, k = LANE % K;
          for (int i = LANE; i - (int)LANE < most; i += 32) {
            int64_t its_row = __shfl_sync(FULL, my_row, whose), its_p = __shfl_sync(FULL, p, whose);
            uint32_t its = __shfl_sync(FULL, which, whose);
            if (its >> k & 1 && i < most) {
              rec[t0 * K + i] = its_row;
              pair[t0 * K + i] = its_p + __popc(its & ((1u << k) - 1));
            }
            whose += 32 / K;
            k += 32 % K;
            if (k >= K) k -= K, whose++;
          }
        } else {
          for (int k = 0; k < here && mine; k++) {
            if ((code[t * x.pitch + k] >> 1) != d) continue;
            rec[t * K + k] = my_row;
            pair[t * K + k] = p++;
          }
        }
        if (mine) {
          if (c.engine) inv[d * c.max_tokens + my_row - recs[d]] = (int)(ch.from + t);
          if (c.at_expert) list[t * K + lower] = (uint64_t)d << 48 | (uint64_t)(c.engine ? my_row - recs[d] : my_row);
        }
        if (d == 0 && c.at_expert && t < n) len[t] = first;
        at_pair += __shfl_sync(FULL, end, 31);
      } else if (mine) {
        row[t * K + k1] = my_row;
      }
      at_row += __popc(who);
    }
  }
  __syncthreads();
  if (!c.at_expert) {
    const float *w = at<float>(r, c.r_w) + skip;
    float *list_w = at<float>(r, c.r_list_w) + skip;
    for (int t = threadIdx.x; t < n; t += blockDim.x) {
      int m = 0;
      for (int k = 0; k < K; k++) {
        int o = code[t * x.pitch + k];
        if (o < 0) continue;
        int64_t v = c.expert_major ? row[t * K + k] : pair[t * K + k];
        if (c.engine) v = pair[t * K + k] - pairs[o >> 1];
        list_w[t * K + m] = w[t * K + k];
        list[t * K + m++] = (uint64_t)(o >> 1) << 48 | (uint64_t)v;
      }
      len[t] = m;
    }
  }
  __syncthreads();
}

// Destinations is where the rows of tokens go: one place a rank or, in expert-major
// order, a choice.
struct Destinations {
  const int *code;
  const int64_t *row;
  int need;  // in a choice's code
  DEV Destinations(const Ctx &c, uint64_t r) : code(at<int>(r, c.r_code)), row(at<int64_t>(r, c.r_row)), need(c.expert_major ? 0 : 1) {}
  // of is the i-th choice's rank + 1 << 48 | row; 0: none.
  DEV uint64_t of(int64_t i) const {
    int o = code[i];
    int64_t q = row[i];
    return o >= 0 && (o & need) == need ? (uint64_t)((o >> 1) + 1) << 48 | (uint64_t)q : 0;
  }
};

// row_address is where a row goes; 0: nowhere.
DEV char *row_address(const Ctx &c, uint64_t to) {
  if (!to) return 0;
  return at<char>(peer(c, (int64_t)(to >> 48) - 1), c.rows + (int64_t)(to & row_mask) * c.row_bytes);
}

// Copies by vectors of the widest type that divides the length and the addresses.
template <typename V>
DEV void copy_as(char *d, const char *s, int64_t n, unsigned i, unsigned step) {
  for (int64_t v = i; v < n / (int64_t)sizeof(V); v += step) ((V *)d)[v] = ((const V *)s)[v];
}
DEV void copy(char *d, const char *s, int64_t n, unsigned i, unsigned step) {
  uint64_t a = (uint64_t)d | (uint64_t)s | (uint64_t)n;
  if (!(a & 15)) copy_as<uint4>(d, s, n, i, step);
  else if (!(a & 7)) copy_as<uint64_t>(d, s, n, i, step);
  else if (!(a & 3)) copy_as<uint32_t>(d, s, n, i, step);
  else if (!(a & 1)) copy_as<unsigned short>(d, s, n, i, step);
  else copy_as<unsigned char>(d, s, n, i, step);
}
DEV void zero(char *d, int64_t n, unsigned i, unsigned step) {
  for (int64_t b = i; b < n; b += step) d[b] = 0;
}

enum { everywhere, nearby, afar, late = 4 };

// move_bulk sends rows by bulk copies through shared memory: loaded once, stored to
// every destination of a kind. Of the mover warps, each of which has a ring of stages,
// this one is the index-th of so many.
//
// A link takes less the more is pressed into it. So afar a warp sends a piece every
// interval ns and no sooner, but for a few that it is late with.
template <int WHERE>
DEV void move_bulk(Shared *sh, uint64_t r, const char *x, Chunk ch, char *room, int64_t stage, int stages, int index, int movers, int64_t interval) {
  const Ctx &c = sh->c;
  int64_t K = c.topk;
  int pieces = ((int)c.row_bytes + (int)stage - 1) / (int)stage;
  int ahead = stages - (WHERE == afar ? 3 : 2);
  char *ring = room + (int64_t)WARP * stages * stage;
  uint64_t *full = sh->full + WARP * most_stages;
  const Destinations dest(c, r);
  // What is fetched next: piece fp of token ft into stage fs.
  int64_t ft = ch.from + index;
  int fs = 0, fp = 0;
  auto fetch = [&] {
    if (ft >= ch.to) return;
    int64_t off = fp * stage;
    bulk_load(ring + fs * stage, x + ft * c.row_bytes + off, (uint32_t)min(stage, c.row_bytes - off), &full[fs]);
    if (++fs == stages) fs = 0;
    if (++fp < pieces) return;
    fp = 0;
    ft += movers;
  };
  // The lanes know where the next tokens go, a lane a choice, and those after them.
  int wide = (int)min(K, (int64_t)32), group = 32 / wide, my_t = LANE / wide, my_k = LANE % wide;
  auto look = [&](int64_t t) -> uint64_t {
    t += my_t * movers;
    return t < ch.to && my_t < group ? dest.of(t * K + my_k) : 0;
  };
  auto place = [&](uint64_t to) -> char * {
    if (WHERE != everywhere && to && is_far(c, (int64_t)(to >> 48) - 1) != (WHERE == afar)) to = 0;
    return row_address(c, to);
  };
  if (LANE == 0)
    for (int i = 0; i < ahead; i++) fetch();
  int piece = 0, slot = 0, turn = group - 1;
  int64_t t = ch.from + index;
  uint64_t next = look(t);
  char *to = 0;
  uint32_t parity = 0;
  // Not all warps of the device at the same time.
  int64_t due = WHERE == afar ? (int64_t)now() + interval * (blockIdx.x * movers + index) / (gridDim.x * movers) : 0;
  while (t < ch.to) {
    if (piece == 0 && ++turn == group) {
      turn = 0;
      to = place(next);
      next = look(t + (int64_t)group * movers);
    }
    barrier_wait(&full[slot], parity);
    int64_t off = piece * stage;
    uint32_t n = (uint32_t)min(stage, c.row_bytes - off);
    const char *s = ring + slot * stage;
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
    if (WHERE == afar) {  // one after the other, by one thread
      for (uint32_t who = __ballot_sync(FULL, to != 0 && my_t == turn); who; who &= who - 1) {
        char *d = (char *)__shfl_sync(FULL, (uint64_t)to, __popc((who & (0u - who)) - 1));
        if (LANE == 0) {
          int64_t t;
          while ((t = (int64_t)now()) < due) {}
          due = max(due, t - late * interval) + interval;
          bulk_store(d + off, s, n);
        }
      }
      if (LANE == 0) {
        bulk_commit();
        bulk_window();
      }
    } else {
      if (to && my_t == turn) bulk_store(to + off, s, n);
      for (int64_t k = LANE + 32; k < K; k += 32)
        if (char *more = place(dest.of(t * K + k))) bulk_store(more + off, s, n);
      bulk_commit();
      bulk_reads();
    }
    __syncwarp();
    if (LANE == 0) fetch();
    if (++piece == pieces) {
      piece = 0;
      t += movers;
    }
  }
  bulk_end();
}

// move_plain does the same with loads and stores. Where tokens are few, several of the
// mover warps share a row.
template <typename V>
DEV void move_as(const Ctx &c, uint64_t r, const char *x, Chunk ch, int movers) {
  const Destinations dest(c, r);
  int64_t K = c.topk, n = c.row_bytes / (int64_t)sizeof(V), tokens = ch.to - ch.from;
  int shift = 0;  // of a row's parts
  while (shift < 3 && tokens << (shift + 1) <= 4 * movers && n > 64 << shift) shift++;
  for (int64_t i = WARP; i < tokens << shift; i += movers) {
    int64_t part = i & ((1 << shift) - 1), t = ch.from + (i >> shift), from = n * part >> shift, to = n * (part + 1) >> shift;
    const V *s = (const V *)(x + t * c.row_bytes);
    for (int64_t k0 = 0; k0 < K; k0 += 32) {
      uint64_t a = k0 + LANE < K ? (uint64_t)row_address(c, dest.of(t * K + k0 + LANE)) : 0;
      uint32_t all = __ballot_sync(FULL, a != 0);
      for (int64_t v0 = from; v0 < to && all; v0 += 128) {
        int64_t v = v0 + LANE;
        V q[4];
#pragma unroll
        for (int u = 0; u < 4; u++)
          if (v + u * 32 < to) q[u] = s[v + u * 32];
        for (uint32_t who = all; who; who &= who - 1) {
          V *o = (V *)__shfl_sync(FULL, a, __popc((who & (0u - who)) - 1));
#pragma unroll
          for (int u = 0; u < 4; u++)
            if (v + u * 32 < to) o[v + u * 32] = q[u];
        }
      }
    }
  }
}
DEV void move_plain(const Ctx &c, uint64_t r, const char *x, Chunk ch, int movers) {
  uint64_t a = (uint64_t)x | (uint64_t)c.row_bytes;
  if (!(a & 15)) move_as<uint4>(c, r, x, ch, movers);
  else if (!(a & 7)) move_as<uint64_t>(c, r, x, ch, movers);
  else if (!(a & 3)) move_as<uint32_t>(c, r, x, ch, movers);
  else if (!(a & 1)) move_as<unsigned short>(c, r, x, ch, movers);
  else move_as<unsigned char>(c, r, x, ch, movers);
}

// describe stores what goes with the rows to their places: source, token, experts,
// weights, scales. By warps from first to end, each of which takes the choices of some
// tokens at once, a thread a choice; where a token has more than a warp has threads,
// some of them.
DEV void describe(const Ctx &c, uint64_t r, const char *scales, Chunk ch, unsigned first, unsigned end) {
  int64_t K = c.topk;
  const int *code = at<int>(r, c.r_code), *idx = at<int>(r, c.r_idx), *ownlocal = (const int *)c.ownlocal;
  const float *w = at<float>(r, c.r_w);
  const int64_t *rec = at<int64_t>(r, c.r_rec), *row = at<int64_t>(r, c.r_row), *pair = at<int64_t>(r, c.r_pair);
  const Destinations dest(c, r);
  int wide = (int)min(K, (int64_t)32), group = 32 / wide;  // choices of a token, tokens, at once
  int my_t = LANE / wide, my_k = LANE % wide;
  int64_t index = WARP - first, step = end - first;
  for (int64_t t0 = ch.from + index * group; t0 < ch.to; t0 += step * group) {
    int64_t t = t0 + my_t;
    for (int64_t k0 = 0; k0 < K; k0 += wide) {
      int64_t k = k0 + my_k, i = t * K + k;
      bool here = LANE < group * wide && t < ch.to && k < K;
      int o = here ? code[i] : -1;
      int64_t q = here ? row[i] : 0, v = here ? pair[i] : 0, at_rec = here ? rec[i] : 0;
      float weight = here ? w[i] : 0.0f;
      int e = here ? idx[i] : -1;
      int local = o >= 0 ? ownlocal[e] : -1;
      if (o >= 0) {
        uint64_t p = peer(c, o >> 1);
        at<float>(p, c.pair_weight)[v] = weight;
        if (o & 1) at<int64_t>(p, c.pair_start)[at_rec] = v;
        if (c.expert_major) {
          at<int64_t>(p, c.pair_row)[v] = q;
          at<int>(p, c.source)[q] = (int)c.rank;
          at<int>(p, c.token)[q] = (int)t;
          at<int>(p, c.choice)[q] = (int)k;
          at<int>(p, c.local)[q] = local;
          at<float>(p, c.weight)[q] = weight;
        } else if (o & 1) {
          at<int>(p, c.source)[at_rec] = (int)c.rank;
          at<int>(p, c.token)[at_rec] = (int)t;
        }
      }
      // Rank-major: what each row is for. Every choice of the token is held against
      // the row of each of its ranks.
      for (int64_t k1 = 0; k1 < K && !c.expert_major; k1++) {
        int64_t j = t * K + k1;
        int leader;
        int64_t its;
        if (K <= 32) {
          leader = __shfl_sync(FULL, o, (my_t * wide + (int)k1) & 31);
          its = __shfl_sync(FULL, at_rec, (my_t * wide + (int)k1) & 31);
        } else {
          leader = here ? code[j] : -1;
          its = here ? rec[j] : 0;
        }
        if (!here || leader < 0 || !(leader & 1)) continue;
        uint64_t p = peer(c, leader >> 1);
        bool same = o >= 0 && (o >> 1) == (leader >> 1);
        at<int>(p, c.local)[its * K + k] = same ? local : -1;
        at<float>(p, c.weight)[its * K + k] = same ? weight : 0.0f;
      }
    }
  }
  if (c.scale_bytes == 0) return;
  uint64_t to = ch.from + index < ch.to && LANE < K ? dest.of((ch.from + index) * K + LANE) : 0;
  for (int64_t t = ch.from + index; t < ch.to; t += step) {
    uint64_t next = t + step < ch.to && LANE < K ? dest.of((t + step) * K + LANE) : 0;
    for (int64_t k0 = 0; k0 < K; k0 += 32) {
      if (k0) to = k0 + LANE < K ? dest.of(t * K + k0 + LANE) : 0;
      for (uint32_t who = __ballot_sync(FULL, to != 0); who; who &= who - 1) {
        uint64_t d = __shfl_sync(FULL, to, __popc((who & (0u - who)) - 1));
        copy(at<char>(peer(c, (int64_t)(d >> 48) - 1), c.scales + (int64_t)(d & row_mask) * c.scale_bytes), scales + t * c.scale_bytes, c.scale_bytes, LANE, 32);
      }
    }
    to = next;
  }
}

// pad zeroes the rows between one expert's last and the next one's first.
DEV void pad(const Ctx &c, uint64_t r) {
  if (!c.expert_major) return;
  const int64_t *counts = at<int64_t>(r, c.r_counts), *offsets = at<int64_t>(r, c.r_offsets);
  uint64_t p = mine(c);
  for (int64_t l = blockIdx.x; l < c.locals; l += gridDim.x) {
    int64_t from = offsets[l] + counts[l], to = offsets[l + 1];
    if (from == to) continue;
    char *rows = at<char>(p, c.rows + from * c.row_bytes);
    if (c.row_bytes % 16 == 0) {
      uint4 z = {0, 0, 0, 0};
      for (int64_t v = threadIdx.x; v < (to - from) * c.row_bytes / 16; v += blockDim.x) ((uint4 *)rows)[v] = z;
    } else {
      zero(rows, (to - from) * c.row_bytes, threadIdx.x, blockDim.x);
    }
    zero(at<char>(p, c.scales + from * c.scale_bytes), (to - from) * c.scale_bytes, threadIdx.x, blockDim.x);
    for (int64_t q = from + threadIdx.x; q < to; q += blockDim.x) {
      at<int>(p, c.source)[q] = -1;
      at<int>(p, c.token)[q] = -1;
      at<int>(p, c.choice)[q] = -1;
      at<int>(p, c.local)[q] = -1;
      at<float>(p, c.weight)[q] = 0.0f;
    }
  }
}

// moe_dispatch is a dispatch by the direct mover, or the part of one that tells
// everybody where everything goes (o_engine).
//
// Rows ahead of heads. Where the rows of a cached dispatch go is known without the
// others; that their place is free everywhere must be. A slot holds the results of the
// dispatch that used it last, number S_LAST, until the in_flight-th dispatch after that
// begins: so handles promise. S_COUNT dispatches are over here. Each waited for
// everybody's heads, so every rank has begun it, in the same order, and since calls of a
// rank follow each other on its device, whatever that rank did with results which that
// ended is over too: its experts, combines, unpacking. So with
// S_COUNT >= S_LAST + in_flight rows may go before the heads come, even to a rank that is
// late by far. With one slot more than results in flight that holds of calls in turn; a
// graph that uses a slot again at once finds it does not, and heads go first. The words
// are the device's own: replays advance them, and so do refused calls, on every rank. A
// call that gives up does not, and breaks all slots.
//
// What is sent ahead by a rank before it learns that the call is refused lies in a
// place that nobody looks at: there is no valid handle of it, and F_DATA, which only
// grows, is waited for only under a good verdict.
KERNEL(512)
moe_dispatch(const Slot *slot, uint64_t r, const char *x, const char *scales, const int *idx, const float *w,
             int64_t tokens, uint64_t gen, uint64_t options, uint64_t number, uint64_t code, uint64_t a, uint64_t b,
             uint64_t cc, int64_t stage, int64_t stages, int64_t interval) {
  Shared *sh = (Shared *)SHARED;
  char *room = SHARED + ((sizeof(Shared) + 127) & ~127ul);
  bool cached = options & o_cached, direct = !(options & o_engine);
  uint64_t routed = cached && !code ? ((const uint64_t *)r)[H_CODE] : none;
  if (threadIdx.x < mover_warps * most_stages) barrier_init(&sh->full[threadIdx.x]);
  barrier_init_done();
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  uint32_t call = cached ? call_cached : call_dispatch;
  uint64_t seq = sh->state[S_SEQ] + 1;
  Fault own = {code, a, b, cc};
  if (routed != none) own.code = stale;
  if (own.code) tokens = 0;
  bool ahead = cached && direct && !own.code && sh->state[S_COUNT] >= sh->state[S_LAST] + c.in_flight;
  Chunk ch = chunk(tokens);
  int64_t *head = (int64_t *)r, *rows = base_of(c, blockIdx.x) + c.experts + 2 * c.ranks, *records = rows + c.ranks;
  bool near = fits(c, ch, stage * stages * mover_warps);
  if (!cached) {
    if (near) count<true>(sh, r, idx, w, ch, room);
    else count<false>(sh, r, idx, w, ch, room);
    if (!meet(sh, 1)) return give_up(sh, gen);
    uint64_t v = sh->fault;
    if (!code && v) {
      int64_t first = no_fault - (int64_t)v, i = first >> 1;
      own.code = first & 1 ? duplicate : bad_expert;
      own.a = i / c.topk;
      own.b = i % c.topk;
      own.c = (int64_t)idx[i];
    }
  }
  if (!ahead) {
    if (blockIdx.x == 0) {
      if (!cached && !own.code) add_up(c, seq);
      announce(c, F_HEAD, seq, call, tokens, number, own, threadIdx.x, blockDim.x);
    }
    if (!cached) earlier(c);
    if (!await(sh, F_HEAD, seq)) return give_up(sh, gen);
    if (WARP == WARPS - 1) judge(sh, seq, call, number, own);
    if (!cached) place(sh, seq);
    else __syncthreads();
  }
  if (sh->code == none && !cached) {
    if (sh->over) {
      int64_t d = no_fault - (int64_t)sh->over;
      __syncthreads();
      if (threadIdx.x == 0) {
        if (rows[d] > c.row_cap) fail(sh, too_many_rows, c.rank, d, rows[d], c.row_cap);
        else fail(sh, too_many_rows, c.rank, d, records[d], c.record_cap);
      }
      __syncthreads();
    } else {
      // In expert-major order pad needs it at once.
      if (blockIdx.x == 0 && WARP == 0 && c.expert_major) receive(sh, r, seq, rows[c.rank], records[c.rank]);
      if (near) position<true>(sh, r, ch, room);
      else position<false>(sh, r, ch, room);
      if (blockIdx.x == 0 && threadIdx.x == 0) head[H_TOKENS] = tokens;
      if (c.expert_major && !meet(sh, 2)) return give_up(sh, gen);  // offsets, for pad
    }
  }
  uint64_t turn = sh->state[S_COUNT] + 1;
  if (blockIdx.x == 0 && threadIdx.x == 0 && !ahead) {
    if (!cached) {
      head[H_CODE] = sh->code;
      head[H_NUMBER] = number;
    }
    tell(sh, gen, turn, turn);
  }
  bool moves = sh->code == none;
  if (moves) {
    bool bulk = options & o_bulk;
    int movers = !direct ? 0 : bulk ? mover_warps : (int)WARPS - max((int)WARPS / 8, 2), half = movers / 2;
    if (WARP < movers) {
      if (!bulk) move_plain(c, r, x, ch, movers);
      else if (!interval) move_bulk<everywhere>(sh, r, x, ch, room, stage, (int)stages, WARP, movers, 0);
      else if (WARP < half) move_bulk<afar>(sh, r, x, ch, room, stage, (int)stages, WARP, half, interval);
      else move_bulk<nearby>(sh, r, x, ch, room, stage, (int)stages, WARP - half, half, 0);
    } else {
      bool clerk = blockIdx.x == 0 && WARP == WARPS - 1;  // beside the moving
      if (!clerk) {
        describe(c, r, scales, ch, movers, WARPS - (blockIdx.x == 0));
      } else {
        if (ahead) announce(c, F_HEAD, seq, call, tokens, number, own, LANE, 32);
        if (ahead && LANE == 0) tell(sh, gen, turn, turn);  // what is nearly always so
        if (!cached && !c.expert_major) receive(sh, r, seq, rows[c.rank], records[c.rank]);
        publish_counts(sh, r);
        if (ahead) {
          if (hear(sh, F_HEAD, seq)) judge(sh, seq, call, number, own);
          if (LANE == 0) state(c)[S_VERDICT] = sh->code;
          if (LANE == 0 && sh->code != none) tell(sh, gen, turn, turn);
        }
      }
    }
    pad(c, r);
    if (cached && blockIdx.x == 0 && threadIdx.x == 0) at<int64_t>(mine(c), c.pair_start)[head[H_RECORDS]] = head[H_PAIRS];
  }
  uint64_t verdict = sh->code;
  if (!leave(sh, moves && direct ? F_DATA : -1, seq << 8 | last_part)) return;
  if (ahead) verdict = load_acquire(&state(c)[S_VERDICT]);
  if (verdict == timed_out) return in_all(c, S_BROKEN, 1);
  if (verdict == none && (options & o_wait) && !await(sh, F_DATA, seq << 8 | last_part)) return give_up(sh, gen);
  in_all(c, S_COUNT, turn);
  if (threadIdx.x == 0) {
    state(c)[S_SEQ] = seq;
    state(c)[S_GEN] = verdict == none ? gen : 0;
    state(c)[S_LAST] = turn;
  }
}

// moe_await waits for a part of the latest dispatch on a slot (F_DATA), or until
// everybody has fetched what the latest combine offered (F_DONE).
KERNEL(128)
moe_await(const Slot *slot, uint64_t r, uint64_t gen, uint64_t kind, uint64_t part) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  if (kind == F_DATA && sh->state[S_GEN] != gen) return;  // it was refused
  uint64_t v = kind == F_DATA ? sh->state[S_SEQ] << 8 | part : sh->state[S_COMBINED];
  if (!await(sh, (int)kind, v)) give_up(sh, gen);
}

// valid reports whether the rows of a handle are still there.
DEV bool valid(const Ctx &c, uint64_t r, uint64_t gen) {
  const uint64_t *s = ((const Slot *)&c)->state;
  return s[S_GEN] == gen && s[S_COUNT] < s[S_LAST] + c.in_flight && ((const int64_t *)r)[H_CODE] == none;
}

DEV float widen(uint32_t b) { return __uint_as_float(b << 16); }
DEV uint32_t narrow(float f) {  // to nearest, ties to even
  uint32_t u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// Some elements of a row at once: N of size S bytes.
template <int S, int N>
struct Vec {};
template <>
struct Vec<2, 8> {
  uint4 v;
  DEV float get(int i) const {
    uint32_t u = i < 2 ? v.x : i < 4 ? v.y : i < 6 ? v.z : v.w;
    return __uint_as_float(i & 1 ? u & 0xffff0000u : u << 16);
  }
};
template <>
struct Vec<4, 8> {
  uint4 v, w;
  DEV float get(int i) const {
    const uint4 &q = i < 4 ? v : w;
    uint32_t u = (i & 3) == 0 ? q.x : (i & 3) == 1 ? q.y : (i & 3) == 2 ? q.z : q.w;
    return __uint_as_float(u);
  }
};
template <>
struct Vec<2, 1> {
  unsigned short v;
  DEV float get(int) const { return widen(v); }
};
template <>
struct Vec<4, 1> {
  float v;
  DEV float get(int) const { return v; }
};

template <int S, int N>
DEV void put(char *row, int64_t v, const float *a) {
  if (S == 2 && N == 8) {
    uint4 o;
    o.x = narrow2(a[0], a[1]);
    o.y = narrow2(a[2], a[3]);
    o.z = narrow2(a[4], a[5]);
    o.w = narrow2(a[6], a[7]);
    // Adding one to a half of 0x7fff changes its sign bit: then some value is a NaN,
    // which is 0x7fc0 here.
    const uint32_t one = 0x00010001, sign = 0x80008000;
    if ((((o.x + one) ^ o.x) | ((o.y + one) ^ o.y) | ((o.z + one) ^ o.z) | ((o.w + one) ^ o.w)) & sign) {
      o.x = narrow(a[0]) | narrow(a[1]) << 16;
      o.y = narrow(a[2]) | narrow(a[3]) << 16;
      o.z = narrow(a[4]) | narrow(a[5]) << 16;
      o.w = narrow(a[6]) | narrow(a[7]) << 16;
    }
    ((uint4 *)row)[v] = o;
  } else {
    for (int i = 0; i < N; i++) {
      if (S == 2) ((unsigned short *)row)[v * N + i] = (unsigned short)narrow(a[i]);
      else ((float *)row)[v * N + i] = a[i];
    }
  }
}

// sum_row adds rows up in order: terms says where each is and its weight. U vectors
// a lane of two rows at once are on their way.
template <int S, int O, int N, int U, bool WEIGHTED, typename Terms>
DEV void sum_row(const Terms &terms, int n, uint32_t hidden, const float *bias, char *out, uint32_t lane, uint32_t lanes) {
  uint32_t vs = hidden / N;
  typedef Vec<S, N> V;
  for (uint32_t v0 = lane; v0 < vs; v0 += lanes * U) {
    float acc[U][N];
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int i = 0; i < N; i++) acc[u][i] = bias && v0 + u * lanes < vs ? bias[(v0 + u * lanes) * N + i] : 0.0f;
    auto add = [&](const V *have, float w) {
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int i = 0; i < N; i++) {
          float y = have[u].get(i);
          acc[u][i] = __fadd_rn(acc[u][i], WEIGHTED ? __fmul_rn(y, w) : y);
        }
    };
    for (int j = 0; j < n; j += 2) {
      bool two = j + 1 < n;
      const V *p = (const V *)terms.row(j) + v0, *q = (const V *)terms.row(two ? j + 1 : j) + v0;
      V a[U], b[U];
#pragma unroll
      for (int u = 0; u < U; u++)
        if (v0 + u * lanes < vs) a[u] = p[u * lanes];
#pragma unroll
      for (int u = 0; u < U; u++)
        if (two && v0 + u * lanes < vs) b[u] = q[u * lanes];
      add(a, WEIGHTED ? terms.weight(j) : 0.0f);
      if (two) add(b, WEIGHTED ? terms.weight(j + 1) : 0.0f);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (v0 + u * lanes < vs) put<O, N>(out, v0 + u * lanes, acc[u]);
  }
}

// sum_any chooses types and vector width.
template <bool WEIGHTED, typename Terms>
DEV void sum_any(const Terms &terms, int n, uint32_t hidden, int64_t in, int64_t outs, bool wide, const float *bias, char *out, unsigned lane, unsigned lanes) {
  if (in == 2 && outs == 2) {
    if (wide) sum_row<2, 2, 8, 4, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
    else sum_row<2, 2, 1, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
  } else if (in == 4 && outs == 2) {
    if (wide) sum_row<4, 2, 8, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
    else sum_row<4, 2, 1, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
  } else if (in == 2) {
    if (wide) sum_row<2, 4, 8, 2, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
    else sum_row<2, 4, 1, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
  } else {
    if (wide) sum_row<4, 4, 8, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
    else sum_row<4, 4, 1, 1, WEIGHTED>(terms, n, hidden, bias, out, lane, lanes);
  }
}

// Where the results for source s begin in the room of a copy engine.
DEV int64_t engine_base(const Ctx &c, int64_t s) { return s * c.max_tokens * c.per_token; }

// split is the logarithm of how many warps share a row where there are few.
DEV int split(int64_t rows, int64_t warps, int64_t hidden) {
  int shift = 0;
  while (shift < 3 && rows << (shift + 1) <= warps && hidden > 256 << shift) shift++;
  return shift;
}

struct Pairs {  // the choices of one received row
  const char *y;
  const int64_t *rows;  // of each choice; 0: the choice's number
  const float *w;
  int64_t first, bytes;
  DEV const char *row(int64_t j) const { return y + (rows ? rows[first + j] : first + j) * bytes; }
  DEV float weight(int64_t j) const { return w[first + j]; }
};

// ready tells everybody that results may be fetched here (or that there are none, and
// why), by one block.
DEV void ready(Shared *sh, uint64_t r, uint64_t gen, Fault f) {
  const Ctx &c = sh->c;
  uint64_t seq = sh->state[S_SEQ] + 1;
  if (!f.code && !valid(c, r, gen)) f.code = stale;
  uint64_t number = f.code ? 0 : ((const uint64_t *)r)[H_NUMBER];
  announce(c, F_READY, seq, call_combine, 0, number, f, threadIdx.x, blockDim.x);
}

// reduce adds up what the experts here made of each received row, to out, or what goes
// to ranks afar to far_out if there is such a place.
DEV void reduce(const Ctx &c, uint64_t r, const char *y, char *out, char *far_out) {
  uint64_t p = mine(c);
  const int64_t *start = at<int64_t>(p, c.pair_start), *from = at<int64_t>(r, c.r_from);
  Pairs terms;
  terms.y = y;
  terms.rows = c.expert_major ? at<int64_t>(p, c.pair_row) : 0;
  terms.w = at<float>(p, c.pair_weight);
  terms.bytes = c.hidden * c.y_size;
  bool wide = c.hidden % 8 == 0 && ((uint64_t)y & 15) == 0;
  int64_t s = 0, records = ((const int64_t *)r)[H_RECORDS];
  int64_t all = (int64_t)gridDim.x * WARPS;
  int shift = split(records, all, c.hidden);
  for (int64_t v = (int64_t)blockIdx.x * WARPS + WARP; v < records << shift; v += all) {
    int64_t i = v >> shift, to = i;
    if (c.engine || far_out) {
      while (i >= from[s + 1]) s++;
    }
    if (c.engine) to = engine_base(c, s) + i - from[s];
    terms.first = start[i];
    sum_any<true>(terms, (int)(start[i + 1] - start[i]), c.hidden, c.y_size, c.share_size, wide, 0,
                  (far_out && is_far(c, s) ? far_out : out) + to * c.hidden * c.share_size, ((unsigned)v & ((1u << shift) - 1)) * 32 + LANE, 32u << shift);
  }
}

// put_out puts the experts' output where the sources can fetch it.
DEV void put_out(const Ctx &c, uint64_t r, const char *y) {
  uint64_t p = mine(c);
  int64_t bytes = c.hidden * c.y_size, s = 0;
  const int64_t *h = (const int64_t *)r, *from = at<int64_t>(r, c.r_from), *start = at<int64_t>(p, c.pair_start);
  int64_t n = c.expert_major && !c.engine ? h[H_ROWS] : h[H_PAIRS];
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < n; i += (int64_t)gridDim.x * WARPS) {
    int64_t to = i, row = i;
    if (c.engine) {
      while (i >= start[from[s + 1]]) s++;
      to = engine_base(c, s) + i - start[from[s]];
      if (c.expert_major) row = at<int64_t>(p, c.pair_row)[i];
    } else if (c.expert_major && at<int>(p, c.source)[i] < 0) {
      continue;
    }
    copy(at<char>(p, c.back + to * bytes), y + row * bytes, bytes, LANE, 32);
  }
}

// moe_offer makes results ready, what = reduce (1), put_out (2) or nothing (0), and
// tells everybody. It waits for nothing.
KERNEL(512)
moe_offer(const Slot *slot, uint64_t r, const char *y, uint64_t gen, uint64_t what, uint64_t code, uint64_t a, uint64_t b, uint64_t cc) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  Fault f = {code, a, b, cc};
  if (!code && valid(c, r, gen)) {
    if (what == 1) reduce(c, r, y, at<char>(mine(c), c.back), 0);
    else if (what == 2) put_out(c, r, y);
  }
  if (leave(sh, -1, 0)) ready(sh, r, gen, f);
}

// moe_seen waits until a rank's results may be fetched: before a copy engine does.
KERNEL(128)
moe_seen(const Slot *slot, uint64_t gen) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  if (!await(sh, F_READY, sh->state[S_SEQ] + 1)) give_up(sh, gen);
}

struct List {  // the results for one token
  const Ctx *c;
  const uint64_t *list;
  const float *w;
  int64_t back, bytes;
  DEV const char *row(int64_t j) const { return row_of(list[j]); }
  DEV const char *row_of(uint64_t v) const {
    int64_t d = (int64_t)(v >> 48), i = (int64_t)(v & row_mask);
    if (c->engine && d != c->rank) return (const char *)(c->pulled + (engine_base(*c, d) + i) * bytes);
    if (c->engine) i += engine_base(*c, d);
    return (const char *)(peer(*c, d) + back + i * bytes);
  }
  DEV float weight(int64_t j) const { return w[j]; }
};

enum { fetch_stages = 6, fetch_piece = 2048 };

// fetch_bulk fetches pieces of rows by bulk copies into a ring that every warp has
// for itself, a few ahead, and adds them up from there. Warps take whole tokens in turn,
// or, where these are few, pieces.
template <int S, bool WEIGHTED>
DEV void fetch_bulk(const Ctx &c, uint64_t r, const List &base, const float *bias, bool own_bias, char *out, char *room) {
  const int U = fetch_piece / S / 256, stages = fetch_stages;
  uint64_t *full = (uint64_t *)room + WARP * stages;
  char *ring = room + 1024 + (int64_t)WARP * stages * fetch_piece;
  if (LANE < stages) barrier_init(&full[LANE]);
  barrier_init_done();
  __syncwarp();
  int64_t K = c.topk, tokens = ((const int64_t *)r)[H_TOKENS], all = (int64_t)gridDim.x * WARPS, bytes = base.bytes;
  const int *len = at<int>(r, c.r_n);
  const uint64_t *lists = at<uint64_t>(r, c.r_list);
  int pieces = (int)((bytes + fetch_piece - 1) / fetch_piece);
  uint32_t vs = (uint32_t)c.hidden / 8;

  struct Item {  // a piece of a token's rows
    int64_t t;
    int p;
  } first, step;
  int me = blockIdx.x * WARPS + WARP;
  bool whole = tokens >= all;
  first.t = whole ? me : me / pieces, first.p = whole ? 0 : me % pieces;
  step.t = (int)all / pieces, step.p = (int)all % pieces;
  auto forward = [&](Item &i) {
    int64_t by = step.t;
    if (whole && ++i.p < pieces) return;
    if (whole) by = all, i.p = 0;
    else if ((i.p += step.p) >= pieces) i.p -= pieces, by++;
    i.t += by;
  };

  // What is fetched: row gj of an item, whose rows the lanes know. What comes behind
  // it is already being looked up.
  Item g = first, behind = first;
  int gn = 0, gj = 0, issued = 0, bn = 0;
  uint64_t bv = 0, ga = 0;
  auto look = [&] {
    bn = behind.t < tokens ? len[behind.t] : -1;
    bv = behind.t < tokens && LANE < K ? lists[behind.t * K + LANE] : 0;
  };
  auto advance = [&] {
    do {
      g = behind;
      if (!whole || g.p == 0) {
        gn = bn;
        ga = LANE < gn ? (uint64_t)base.row_of(bv) : 0;
      }
      if (gn < 0) return;
      forward(behind);
      if (!whole || behind.p == 0) look();
    } while (gn == 0);
  };
  auto issue = [&] {
    if (gn < 0) return;
    uint64_t src = __shfl_sync(FULL, ga, gj);
    int slot = issued++ % stages;
    if (LANE == 0) {
      int64_t off = (int64_t)g.p * fetch_piece;
      bulk_load(ring + slot * fetch_piece, (const char *)src + off, (uint32_t)min((int64_t)fetch_piece, bytes - off), &full[slot]);
    }
    if (++gj < gn) return;
    gj = 0;
    advance();
  };
  look();
  advance();
  for (int i = 0; i < stages; i++) issue();

  int taken = 0;
  Item at_item = first;
  int n = first.t < tokens ? len[first.t] : 0;
  while (at_item.t < tokens) {
    int64_t t = at_item.t;
    uint32_t v0 = at_item.p * (U * 32) + LANE;
    forward(at_item);
    int following = at_item.t == t ? n : at_item.t < tokens ? len[at_item.t] : 0;
    const float *b = bias ? bias + (own_bias ? t * c.hidden : 0) : 0;
    const float *w = at<float>(r, c.r_list_w) + t * K;
    float acc[U][8];
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int i = 0; i < 8; i++) acc[u][i] = b && v0 + u * 32 < vs ? b[(v0 + u * 32) * 8 + i] : 0.0f;
    for (int j = 0; j < n; j++, taken++) {
      int slot = taken % stages;
      barrier_wait(&full[slot], (uint32_t)(taken / stages & 1));
      const Vec<S, 8> *have = (const Vec<S, 8> *)(ring + slot * fetch_piece);
      float weight = WEIGHTED ? w[j] : 0.0f;
#pragma unroll
      for (int u = 0; u < U; u++) {
        Vec<S, 8> v = have[u * 32 + LANE];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          float y = v.get(i);
          acc[u][i] = __fadd_rn(acc[u][i], WEIGHTED ? __fmul_rn(y, weight) : y);
        }
      }
      __syncwarp();
      issue();
    }
#pragma unroll
    for (int u = 0; u < U; u++)
      if (v0 + u * 32 < vs) put<2, 8>(out + t * c.hidden * 2, v0 + u * 32, acc[u]);
    n = following;
  }
}

// moe_combine fetches the results for this rank's tokens from where they were made
// and adds them up.
KERNEL(512)
moe_combine(const Slot *slot, uint64_t r, const float *bias, char *out, uint64_t gen, uint64_t options, uint64_t code) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  uint64_t seq = sh->state[S_SEQ] + 1;
  if (!await(sh, F_READY, seq)) return give_up(sh, gen);
  if (WARP == 0) {
    Fault own = {none, 0, 0, 0};
    uint64_t number = code ? 0 : ((const uint64_t *)r)[H_NUMBER];
    const char *h = head_at(c, c.rank, seq, c.rank);  // what moe_offer found
    own.code = *(const uint32_t *)(h + 24);
    own.a = *(const uint64_t *)(h + 32);
    own.b = *(const uint64_t *)(h + 40);
    own.c = *(const uint64_t *)(h + 48);
    judge(sh, seq, call_combine, number, own);
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) tell(sh, gen, sh->state[S_LAST], sh->state[S_COUNT]);
  if (sh->code == none) {
    int64_t K = c.topk, tokens = ((const int64_t *)r)[H_TOKENS];
    const int *len = at<int>(r, c.r_n);
    int64_t size = c.at_expert ? c.share_size : c.y_size;
    bool wide = c.hidden % 8 == 0 && ((uint64_t)out & 15) == 0;
    List terms;
    terms.c = &c;
    terms.back = c.back;
    terms.bytes = c.hidden * size;
    int64_t all = (int64_t)gridDim.x * WARPS, me = (int64_t)blockIdx.x * WARPS + WARP;
    int shift = split(tokens, all, c.hidden);
    if (options & o_bulk) {
      char *room = SHARED + ((sizeof(Shared) + 127) & ~127ul);
      bool own = options & o_own_bias;
      if (c.at_expert && size == 2) fetch_bulk<2, false>(c, r, terms, bias, own, out, room);
      else if (c.at_expert) fetch_bulk<4, false>(c, r, terms, bias, own, out, room);
      else if (size == 2) fetch_bulk<2, true>(c, r, terms, bias, own, out, room);
      else fetch_bulk<4, true>(c, r, terms, bias, own, out, room);
      tokens = 0;
    }
    for (int64_t i = me; i < tokens << shift; i += all) {
      int64_t t = i >> shift;
      terms.list = at<uint64_t>(r, c.r_list) + t * K;
      const float *b = bias ? bias + (options & o_own_bias ? t * c.hidden : 0) : 0;
      unsigned lane = ((unsigned)i & ((1u << shift) - 1)) * 32 + LANE, lanes = 32u << shift;
      char *o = out + t * c.hidden * 2;
      if (c.at_expert) {
        sum_any<false>(terms, len[t], c.hidden, size, 2, wide, b, o, lane, lanes);
      } else {
        terms.w = at<float>(r, c.r_list_w) + t * K;
        sum_any<true>(terms, len[t], c.hidden, size, 2, wide, b, o, lane, lanes);
      }
    }
  }
  if (!leave(sh, F_DONE, seq)) return;
  if ((options & o_drain) && !await(sh, F_DONE, seq)) return give_up(sh, gen);
  if (threadIdx.x == 0) {
    state(c)[S_SEQ] = seq;
    state(c)[S_COMBINED] = seq;
  }
}

// The copy engine's mover.

// moe_pack gathers part of the rows for every rank into room for one copy each.
KERNEL(512)
moe_pack(const Slot *slot, uint64_t r, const char *x, int64_t from, int64_t to) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (((const int64_t *)r)[H_CODE] != none) return;
  const int *inv = at<int>(r, c.r_inv);
  const int64_t *to_rank = at<int64_t>(r, c.r_to);
  int64_t n = to - from;
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < n * c.ranks; i += (int64_t)gridDim.x * WARPS) {
    int64_t d = i / n, j = from + i % n;
    if (j >= to_rank[d]) continue;
    int64_t t = inv[d * c.max_tokens + j];
    uint64_t room = d == c.rank ? mine(c) + c.arrive : c.send;  // nothing carries rows to their own rank
    copy(at<char>(room, (d * c.max_tokens + j) * c.row_bytes), x + t * c.row_bytes, c.row_bytes, LANE, 32);
  }
}

// moe_sent tells a rank that part (from 1) of what goes there has arrived.
KERNEL(128)
moe_sent(const Slot *slot, uint64_t r, int64_t to, uint64_t part) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (((const int64_t *)r)[H_CODE] != none || threadIdx.x) return;
  __threadfence_system();
  store_release(flag(c, to, F_DATA, c.rank), sh->state[S_SEQ] << 8 | part);
}

// moe_unpack puts a part of what every rank has sent in place.
KERNEL(512)
moe_unpack(const Slot *slot, uint64_t r, int64_t from, int64_t to) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (((const int64_t *)r)[H_CODE] != none) return;
  uint64_t p = mine(c);
  const int64_t *begin = at<int64_t>(r, c.r_from), *start = at<int64_t>(p, c.pair_start), *rows = at<int64_t>(p, c.pair_row);
  int64_t n = to - from;
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < n * c.ranks; i += (int64_t)gridDim.x * WARPS) {
    int64_t s = i / n, j = from + i % n, q = begin[s] + j;
    if (q >= begin[s + 1]) continue;
    const char *src = at<char>(p, c.arrive + (s * c.max_tokens + j) * c.row_bytes);
    if (!c.expert_major) {
      copy(at<char>(p, c.rows + q * c.row_bytes), src, c.row_bytes, LANE, 32);
      continue;
    }
    for (int64_t k = start[q]; k < start[q + 1]; k++) copy(at<char>(p, c.rows + rows[k] * c.row_bytes), src, c.row_bytes, LANE, 32);
  }
}

// Between nodes: rows to other nodes go by way of the host, whose engine says where all
// rows belong; those to this node go straight. moe_hand lays a dispatch's input out in host
// memory and posts the call in the slot's box; a goroutine makes the call and answers there. moe_move sends
// rows within the node as soon as it is known where they go. moe_take fetches what
// came from other nodes and passes it on. moe_back and moe_sum are the halves of a combine.
// Flags, among the ranks of a node (others are far), carry the number of the call.

struct Stage {
  uint64_t box, posted;                        // words of the host; the calls that all slots have posted
  uint64_t x, scales, idx, w, back;            // host memory: what goes out
  uint64_t moves, passes, list, list_w, list_n;  // what the host says: rows to send, to pass on, to add up
  uint64_t call, gen, combined, exits;         // the slot's latest call, the dispatch its rows are of, the latest combine, blocks that are through
};
enum { B_SEQ, B_KIND, B_TOKENS, B_GEN, B_ROUTING, B_CODE, B_A, B_B, B_C, B_DONE, B_REFUSED, B_PLANNED, B_MOVES, B_ROWS, B_SCALES, B_LANDED, B_PASSED, B_BLANK, B_PIECES, B_SUMS, B_TABLE = 24 };

struct Piece {
  uint64_t to, from;
  int64_t bytes;
};

struct Move {  // n rows from a row on, to a row on at a rank
  int to, n;
  int64_t from, row;
};

// answered waits for a word of the answer to the slot's latest call, by all threads of a
// block.
DEV bool answered(Shared *sh, const Stage *st, int word) {
  if (threadIdx.x == 0 && !reach(sh->c, (const uint64_t *)st->box + word, st->call, now())) {
    sh->ok = 0;
    fail(sh, timed_out, sh->c.rank, word, st->call, 0);
  }
  __syncthreads();
  return sh->ok != 0;
}

// await_near is await for the ranks of this node.
DEV bool await_near(Shared *sh, int kind, uint64_t v) {
  const Ctx &c = sh->c;
  uint64_t begin = now();
  for (int64_t s = threadIdx.x; s < c.ranks; s += blockDim.x) {
    if (is_far(c, s) || reach(c, flag(c, c.rank, kind, s), v, begin)) continue;
    sh->ok = 0;
    fail(sh, timed_out, s, kind, v, 0);
  }
  __syncthreads();
  return sh->ok != 0;
}

DEV void tell_near(const Ctx &c, int kind, uint64_t v) {
  for (int64_t s = threadIdx.x; s < c.ranks; s += blockDim.x)
    if (!is_far(c, s)) store_release(flag(c, s, kind, c.rank), v);
}

// through counts this block out; true, for all its threads, in the last one.
DEV bool through(Shared *sh, Stage *st) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    sh->last = add64(&st->exits, 1) == gridDim.x - 1;
    if (sh->last) st->exits = state(sh->c)[S_BAR] = 0;
    __threadfence_system();
  }
  __syncthreads();
  return sh->last != 0;
}

// haul is copy by a warp, a few vectors at once on their way.
DEV void haul(char *d, const char *s, int64_t n) {
  if (((uint64_t)d | (uint64_t)s | (uint64_t)n) & 15) return copy(d, s, n, LANE, 32);
  const int some = 4;
  uint4 *to = (uint4 *)d;
  const uint4 *from = (const uint4 *)s;
  for (int64_t i = LANE; i < n / 16; i += 32 * some) {
    uint4 v[some];
#pragma unroll
    for (int u = 0; u < some; u++)
      if (i + u * 32 < n / 16) v[u] = from[i + u * 32];
#pragma unroll
    for (int u = 0; u < some; u++)
      if (i + u * 32 < n / 16) to[i + u * 32] = v[u];
  }
}

// lay copies by all blocks, a warp a stretch.
DEV void lay(uint64_t to, uint64_t from, int64_t bytes) {
  const int64_t stretch = 4096;
  for (int64_t i = ((int64_t)blockIdx.x * WARPS + WARP) * stretch; i < bytes; i += (int64_t)gridDim.x * WARPS * stretch)
    haul((char *)to + i, (const char *)from + i, min(stretch, bytes - i));
}

// carry moves rows and their scales by all blocks.
DEV void carry(const Ctx &c, uint64_t moves, uint64_t n, uint64_t rows, uint64_t scales) {
  for (uint64_t i = (uint64_t)blockIdx.x * WARPS + WARP; i < n; i += (uint64_t)gridDim.x * WARPS) {
    Move m = ((const Move *)moves)[i];
    uint64_t to = peer(c, m.to);
    haul(at<char>(to, c.rows + m.row * c.row_bytes), at<char>(rows, m.from * c.row_bytes), m.n * c.row_bytes);
    haul(at<char>(to, c.scales + m.row * c.scale_bytes), at<char>(scales, m.from * c.scale_bytes), m.n * c.scale_bytes);
  }
}

// post tells the host of a call, by the last block.
DEV void post(Stage *st, uint64_t kind, int64_t tokens, uint64_t gen, uint64_t routing, Fault f) {
  if (threadIdx.x) return;
  uint64_t *box = (uint64_t *)st->box, n = *(uint64_t *)st->posted + 1;
  *(uint64_t *)st->posted = st->call = n;
  box[B_KIND] = kind;
  box[B_TOKENS] = tokens;
  box[B_GEN] = gen;
  box[B_ROUTING] = routing;
  box[B_CODE] = f.code;
  box[B_A] = f.a;
  box[B_B] = f.b;
  box[B_C] = f.c;
  store_release(box + B_SEQ, n);
}

// moe_hand posts a dispatch.
KERNEL(512)
moe_hand(const Slot *slot, Stage *st, uint64_t x, uint64_t scales, uint64_t idx, uint64_t w, int64_t tokens, uint64_t kind, uint64_t gen, uint64_t routing, uint64_t code, uint64_t a, uint64_t b, uint64_t cc) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (!answered(sh, st, B_DONE)) return give_up(sh, gen);
  if (!code) {
    if (kind == call_dispatch) {
      lay(st->idx, idx, tokens * c.topk * 4);
      lay(st->w, w, tokens * c.topk * 4);
    }
    lay(st->x, x, tokens * c.row_bytes);
    lay(st->scales, scales, tokens * c.scale_bytes);
  }
  Fault f = {code, a, b, cc};
  if (through(sh, st)) post(st, kind, tokens, gen, routing, f);
}

// moe_move sends the rows of a dispatch to the ranks of this node.
KERNEL(512)
moe_move(const Slot *slot, Stage *st, uint64_t x, uint64_t scales, uint64_t gen) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  if (!answered(sh, st, B_PLANNED)) return give_up(sh, gen);
  const uint64_t *box = (const uint64_t *)st->box;
  if (!box[B_REFUSED]) carry(sh->c, st->moves, box[B_MOVES], x, scales);
}

// moe_take fetches what a dispatch has brought: the pieces and rows that the answer
// lists, and rows that are then passed on. Whoever has heard of all ranks of the node
// has all rows.
KERNEL(512)
moe_take(const Slot *slot, Stage *st, uint64_t gen) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (!answered(sh, st, B_DONE)) return give_up(sh, gen);
  const uint64_t *box = (const uint64_t *)st->box;
  bool refused = box[B_REFUSED] != 0;
  if (!refused) {
    const Piece *p = (const Piece *)(box + B_TABLE);
    for (uint64_t i = 0; i < box[B_PIECES]; i++) lay(p[i].to, p[i].from, p[i].bytes);
    uint64_t landed = box[B_LANDED], passed = box[B_PASSED], n = box[B_BLANK], m = mine(c);
    carry(c, st->passes, landed, box[B_ROWS], box[B_SCALES]);
    const Move *blank = (const Move *)st->passes + landed + passed;
    for (uint64_t i = blockIdx.x; i < n; i += gridDim.x) {
      zero(at<char>(m, c.rows + blank[i].row * c.row_bytes), blank[i].n * c.row_bytes, threadIdx.x, blockDim.x);
      zero(at<char>(m, c.scales + blank[i].row * c.scale_bytes), blank[i].n * c.scale_bytes, threadIdx.x, blockDim.x);
    }
    if (passed) {
      if (!meet(sh, 1)) return give_up(sh, gen);
      carry(c, st->passes + landed * sizeof(Move), passed, m + c.rows, m + c.scales);
    }
  }
  if (!through(sh, st)) return;
  if (!refused) {
    tell_near(c, F_DATA, st->call);
    if (!await_near(sh, F_DATA, st->call)) return give_up(sh, gen);
  }
  if (threadIdx.x == 0) st->gen = refused ? 0 : gen;
}

// put_back leaves what the experts made where moe_back says.
DEV void put_back(const Ctx &c, const Stage *st, uint64_t r, const char *y) {
  uint64_t p = mine(c);
  int64_t bytes = c.hidden * c.y_size, s = 0;
  const int64_t *h = (const int64_t *)r, *from = at<int64_t>(r, c.r_from), *start = at<int64_t>(p, c.pair_start);
  int64_t n = c.expert_major ? h[H_ROWS] : h[H_PAIRS];
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < n; i += (int64_t)gridDim.x * WARPS) {
    if (c.expert_major) s = at<int>(p, c.source)[i];
    else while (i >= start[from[s + 1]]) s++;
    if (s >= 0) haul(at<char>(is_far(c, s) ? st->back : p + c.back, i * bytes), y + i * bytes, bytes);
  }
}

// moe_back posts a combine: what the experts here made of each row, or sums of it, is
// left here for the ranks of this node and in host memory for the others.
KERNEL(512)
moe_back(const Slot *slot, Stage *st, uint64_t r, const char *y, uint64_t gen, uint64_t code, uint64_t a, uint64_t b, uint64_t cc) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (!answered(sh, st, B_DONE)) return give_up(sh, gen);
  if (!code && st->gen != gen) code = stale;
  if (!code) {
    if (!await_near(sh, F_DONE, st->combined)) return give_up(sh, gen);
    if (c.at_expert) reduce(c, r, y, at<char>(mine(c), c.back), (char *)st->back);
    else put_back(c, st, r, y);
  }
  Fault f = {code, a, b, cc};
  if (!through(sh, st)) return;
  post(st, call_combine, 0, gen, 0, f);
  __syncthreads();
  if (!code) tell_near(c, F_READY, st->call);
}

struct Results {  // for one token
  const uint64_t *list;
  const float *w;
  DEV const char *row(int64_t j) const { return (const char *)list[j]; }
  DEV float weight(int64_t j) const { return w[j]; }
};

// moe_sum adds up what came back.
KERNEL(512)
moe_sum(const Slot *slot, Stage *st, const float *bias, char *out, uint64_t gen, uint64_t options) {
  Shared *sh = (Shared *)SHARED;
  if (!enter(slot, sh)) return;
  const Ctx &c = sh->c;
  if (!answered(sh, st, B_DONE)) return give_up(sh, gen);
  const uint64_t *box = (const uint64_t *)st->box;
  if (box[B_REFUSED]) return;
  if (!await_near(sh, F_READY, st->call)) return give_up(sh, gen);
  int64_t K = c.topk, size = c.at_expert ? c.share_size : c.y_size, tokens = box[B_SUMS];
  bool wide = c.hidden % 8 == 0 && ((uint64_t)out & 15) == 0;
  Results terms;
  int64_t all = (int64_t)gridDim.x * WARPS;
  int shift = split(tokens, all, c.hidden);
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < tokens << shift; i += all) {
    int64_t t = i >> shift;
    terms.list = (const uint64_t *)st->list + t * K;
    terms.w = (const float *)st->list_w + t * K;
    const float *b = bias ? bias + (options & o_own_bias ? t * c.hidden : 0) : 0;
    int n = ((const int *)st->list_n)[t];
    unsigned lane = ((unsigned)i & ((1u << shift) - 1)) * 32 + LANE, lanes = 32u << shift;
    char *o = out + t * c.hidden * 2;
    if (c.at_expert) sum_any<false>(terms, n, c.hidden, size, 2, wide, b, o, lane, lanes);
    else sum_any<true>(terms, n, c.hidden, size, 2, wide, b, o, lane, lanes);
  }
  if (!through(sh, st)) return;
  tell_near(c, F_DONE, st->call);
  if (threadIdx.x == 0) st->combined = st->call;
}

// moe_fill sets words.
KERNEL(512)
moe_fill(uint32_t *p, int64_t n, uint32_t v) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) p[i] = v;
}

// Blocks of 128 channels in e4m3 with a scale each: x = q * scale.

DEV uint32_t to_e4m3(float f) {
  uint32_t u = __float_as_uint(f), sign = u >> 24 & 0x80, m = u & 0x7fffffff;
  if (m > 0x7f800000) return 0x7f;
  if (m >= __float_as_uint(464.0f)) return sign | 0x7e;  // beyond half a unit over 448: saturated
  if (m < __float_as_uint(0.015625f)) return sign | (uint32_t)__float2int_rn(__fmul_rn(__uint_as_float(m), 512.0f));
  m += 0x7ffff + (m >> 20 & 1);
  m = (m >> 20) - (120 << 3);
  return sign | (m > 0x7e ? 0x7e : m);
}
DEV float from_e4m3(uint32_t q) {
  uint32_t e = q >> 3 & 15, m = q & 7;
  float v = e ? __uint_as_float((e + 120) << 23 | m << 20) : __fmul_rn((float)m, 0.001953125f);
  if ((q & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000);
  return q & 0x80 ? -v : v;
}

// moe_to_fp8 casts rows of bf16, a warp a block of channels.
KERNEL(512)
moe_to_fp8(const unsigned short *x, unsigned char *q, float *scales, int64_t rows, int64_t hidden) {
  int64_t per = (hidden + 127) / 128;
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < rows * per; i += (int64_t)gridDim.x * WARPS) {
    int64_t row = i / per, h0 = i % per * 128;
    float v[4], most = 0.0f;
    bool quads = hidden % 4 == 0 && ((uint64_t)x & 7) == 0 && ((uint64_t)q & 3) == 0;
    for (int k = 0; k < 4; k++) {
      int64_t h = h0 + (quads ? (int)LANE * 4 + k : (int)LANE + k * 32);
      v[k] = h < hidden ? widen(x[row * hidden + h]) : 0.0f;
      most = fmaxf(most, fabsf(v[k]));
    }
    for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_xor_sync(FULL, most, d));
    most = fmaxf(most, 1e-4f);
    float down = __fdiv_rn(448.0f, most);
    if (LANE == 0) scales[i] = __fdiv_rn(most, 448.0f);
    uint32_t four = 0;
    for (int k = 0; k < 4; k++) {
      uint32_t b = to_e4m3(__fmul_rn(v[k], down));
      int64_t h = h0 + LANE + k * 32;
      if (quads) four |= b << (8 * k);
      else if (h < hidden) q[row * hidden + h] = (unsigned char)b;
    }
    if (quads && h0 + LANE * 4 < hidden) *(uint32_t *)(q + row * hidden + h0 + LANE * 4) = four;
  }
}

// moe_from_fp8 is the way back.
KERNEL(512)
moe_from_fp8(const unsigned char *q, const float *scales, unsigned short *x, int64_t rows, int64_t hidden) {
  int64_t per = (hidden + 127) / 128;
  for (int64_t i = (int64_t)blockIdx.x * WARPS + WARP; i < rows * per; i += (int64_t)gridDim.x * WARPS) {
    int64_t row = i / per, h0 = i % per * 128;
    float s = scales[i];
    for (int64_t h = h0 + LANE; h < h0 + 128 && h < hidden; h += 32)
      x[row * hidden + h] = (unsigned short)narrow(__fmul_rn(from_e4m3(q[row * hidden + h]), s));
  }
}
