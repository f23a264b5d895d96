// OpenSHMEM: one-sided operations, shmem_barrier_all, shmem_alltoall32 and
// shmem_float_sum_to_all. See measure.h. The header is of OpenSHMEM 1.4, which has
// no put with signal.
#include <shmem.h>

#include "measure.h"
#include "vectors.h"

static unsigned char *src, *dst, *box, *own; // own is private
static unsigned char *places[2];             // dst, and another one
static float *work;
static long *sync_a, *sync_b, *words;
static uint64_t *flag;
static long *count;
static int *votes;

static long rank0(long v) {
    words[0] = v;
    shmem_barrier_all();
    v = shmem_long_g(words, 0);
    shmem_barrier_all();
    return v;
}

static int all(int yes) {
    votes[0] = yes;
    shmem_barrier_all();
    int every = 1;
    for (int q = 0; q < pes; q++)
        every &= shmem_int_g(votes, q);
    shmem_barrier_all();
    return every;
}

// Collectives. Two arrays in turns: one may be used again only when all are through.
static int odd;

static long *turn(void) { return (odd ^= 1) ? sync_a : sync_b; }

static void vector_call(size_t size) { shmem_alltoall32(dst, src, size / 4, 0, 0, pes, turn()); }

// Others may write to a place again only when this PE has read: the caller sees to
// that, by two places in turns.
static void vector_used(size_t size) {
    long *sync = turn();
    use_src(src, size);
    shmem_alltoall32(places[odd], src, size / 4, 0, 0, pes, sync);
    use_dst(places[odd], size);
}

static void vector_fill(size_t size) {
    shmem_barrier_all();
    filled++;
    fill_bytes(src, dst, size);
    shmem_barrier_all();
}

static int vector_right(size_t size) { return right_bytes(dst, size); }

static int used_right(size_t size) { return right_bytes(places[odd], size); }

static void sum_call(size_t size) {
    shmem_float_sum_to_all((float *)dst, (float *)src, size / sizeof(float), 0, 0, pes, work, turn());
    shmem_barrier_all(); // work may be used again
}

static void sum_fill(size_t size) {
    shmem_barrier_all();
    filled++;
    fill_floats((float *)src, (float *)dst, size / sizeof(float));
    shmem_barrier_all();
}

static int sum_right(size_t size) { return right_floats((float *)dst, size / sizeof(float)); }

static void barrier_call(size_t size) {
    (void)size;
    shmem_barrier_all();
}

static void nothing(size_t size) { (void)size; }

static int fine(size_t size) {
    (void)size;
    return 1;
}

// One-sided, from PE 0 to PE 1, out of private memory.
static long adds;
static uint64_t seq;
static int bad;

static void quiet(size_t size) {
    (void)size;
    shmem_quiet();
}

static void put_call(size_t size) {
    shmem_putmem(box, own, size, 1);
    shmem_quiet();
}

static void put_nbi(size_t size) { shmem_putmem_nbi(box, own, size, 1); }

static void put_only(size_t size) { shmem_putmem(box, own, size, 1); }

static void get_call(size_t size) { shmem_getmem(own, box, size, 1); }

static void box_fill(size_t size) {
    shmem_barrier_all();
    filled++;
    fill_block(own, 0, 1, size);
    memset(box, 0, size);
    shmem_barrier_all();
}

static int box_right(size_t size) { return rank != 1 || right_block(box, 0, 1, size); }

static void own_fill(size_t size) {
    shmem_barrier_all();
    filled++;
    memset(own, 0, size);
    fill_block(box, 0, rank, size);
    shmem_barrier_all();
}

static int own_right(size_t size) { return rank != 0 || right_block(own, 0, 1, size); }

static void notify(size_t size) {
    stamp(own, size, seq);
    shmem_putmem(box, own, size, 1 - rank);
    shmem_fence();
    shmem_uint64_p(flag, seq, 1 - rank);
}

static void await(size_t size) {
    shmem_uint64_wait_until(flag, SHMEM_CMP_GE, seq);
    memcpy(src, box, size);
    bad += !stamped(src, size, seq);
}

#include "exchange.h"

static void signal_fill(size_t size) {
    filled++;
    fill_block(own, rank, 1 - rank, size);
}

static int signal_right(size_t size) {
    size_t at = size < 8 ? size : 8;
    fill_block(src, 1 - rank, rank, at); // the stamp was looked at
    return rank > 1 || (!bad && right_block(src, 1 - rank, rank, size));
}

static void add_call(size_t size) {
    (void)size;
    bad += shmem_long_atomic_fetch_add(count, 1, 1) != adds++;
}

static void swap_call(size_t size) {
    (void)size;
    bad += shmem_long_atomic_compare_swap(count, adds, adds + 1, 1) != adds;
    adds++;
}

static int count_right(size_t size) {
    (void)size;
    long want = rank0(adds);
    return !bad && (rank != 1 || *(volatile long *)count == want);
}

static const struct way ways[] = {
    {"put", "latency", "ns", 1, 1, 1, SIZE_MAX, put_call, NULL, box_fill, box_right},
    {"put", "rate", "M/s", 1, 1, 1, RATE_UP_TO, put_nbi, quiet, box_fill, box_right},
    {"put", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, put_only, quiet, box_fill, box_right},
    {"get", "latency", "ns", 1, 1, 1, SIZE_MAX, get_call, NULL, own_fill, own_right},
    {"get", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, get_call, NULL, own_fill, own_right},
    {"put-signal", "latency", "ns", 0, 2, 1, SIZE_MAX, signal_call, NULL, signal_fill, signal_right},
    {"amo", "fetch-add", "ns", 1, 1, 8, 8, add_call, NULL, nothing, count_right},
    {"amo", "compare-swap", "ns", 1, 1, 8, 8, swap_call, NULL, nothing, count_right},
    {"barrier", "latency", "ns", 0, 1, 0, SIZE_MAX, barrier_call, NULL, nothing, fine},
    {"alltoallv", "latency", "ns", 0, 1, 1, SIZE_MAX, vector_call, NULL, vector_fill, vector_right},
    {"alltoallv", "used", "ns", 0, 1, 1, SIZE_MAX, vector_used, NULL, vector_fill, used_right},
    {"allreduce", "latency", "ns", 0, 1, 1, SIZE_MAX, sum_call, NULL, sum_fill, sum_right},
    {0},
};

static long *sync_array(size_t n) {
    long *s = shmem_malloc(n * sizeof *s);
    for (size_t i = 0; s && i < n; i++)
        s[i] = SHMEM_SYNC_VALUE;
    return s;
}

int main(int argc, char **argv) {
    shmem_init();
    rank = shmem_my_pe();
    pes = shmem_n_pes();
    size_t most = largest(argc, argv), room = most * pes;
    size_t n = SHMEM_ALLTOALL_SYNC_SIZE > SHMEM_REDUCE_SYNC_SIZE ? SHMEM_ALLTOALL_SYNC_SIZE : SHMEM_REDUCE_SYNC_SIZE;
    src = shmem_align(4096, room);
    places[0] = dst = shmem_align(4096, room);
    places[1] = shmem_align(4096, room);
    box = dst;
    own = aligned_alloc(4096, pages(most));
    work = shmem_malloc((most / 8 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE) * sizeof *work);
    sync_a = sync_array(n);
    sync_b = sync_array(n);
    words = shmem_malloc(sizeof *words);
    votes = shmem_malloc(sizeof *votes);
    flag = shmem_calloc(16, sizeof *flag);
    count = shmem_calloc(16, sizeof *count);
    shmem_barrier_all();
    int status = !src || !dst || !places[1] || !own || !work || !sync_a || !sync_b || !words || !votes || !flag || !count ||
                 run("oshmem", ways, argc, argv);
    shmem_barrier_all();
    shmem_global_exit(status); // shmem_finalize of Open MPI 4.1 faults, in an empty program too
    return status;
}
