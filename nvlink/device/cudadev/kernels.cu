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

// goshmem_copy copies n bytes and, when all blocks have, stores up to two words (8
// bytes each; address 0: none). arrived counts the blocks that have; it is 0 between
// two launches.
extern "C" __global__ void goshmem_copy(char *dst, const char *src, uint64_t n, uint64_t *a0, uint64_t v0, uint64_t *a1,
                                        uint64_t v1, unsigned int *arrived) {
  goshmem::copy(dst, src, n, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (gridDim.x > 1) {
    if (atomicAdd(arrived, 1u) != gridDim.x - 1) return;
    *arrived = 0;
    __threadfence_system();
  }
  if (a0) goshmem::publish(a0, v0);
  if (a1) goshmem::publish(a1, v1);
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
extern "C" __global__ void goshmem_add(uint64_t *total, uint64_t *cell, uint64_t v) {
  uint64_t t = *total + v;
  *total = t;
  __threadfence_system();
  goshmem::publish(cell, t);
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
