// shmem_alltoall32 and shmem_float_sum_to_all. See measure.h.
#include <shmem.h>

#include "measure.h"

static unsigned char *src, *dst;
static float *work;
static long *sync_a, *sync_b, *words;
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

static int vector(const char *op) { return strcmp(op, "alltoallv") == 0; }

// Two arrays in turns: one may be used again only when all are through.
static long *turn(void) {
    static int odd;
    return (odd ^= 1) ? sync_a : sync_b;
}

static void call(const char *op, size_t size) {
    if (vector(op))
        shmem_alltoall32(dst, src, size / 4, 0, 0, pes, turn());
    else {
        shmem_float_sum_to_all((float *)dst, (float *)src, size / sizeof(float), 0, 0, pes, work, turn());
        shmem_barrier_all(); // work may be used again
    }
}

static void fill(const char *op, size_t size) {
    shmem_barrier_all();
    if (vector(op))
        fill_bytes(src, dst, size);
    else
        fill_floats((float *)src, (float *)dst, size / sizeof(float));
    shmem_barrier_all();
}

static int right(const char *op, size_t size) {
    shmem_barrier_all();
    return vector(op) ? right_bytes(dst, size) : right_floats((float *)dst, size / sizeof(float));
}

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
    dst = shmem_align(4096, room);
    work = shmem_malloc((most / 8 + 1 + SHMEM_REDUCE_MIN_WRKDATA_SIZE) * sizeof *work);
    sync_a = sync_array(n);
    sync_b = sync_array(n);
    words = shmem_malloc(sizeof *words);
    votes = shmem_malloc(sizeof *votes);
    shmem_barrier_all();
    int status = !src || !dst || !work || !sync_a || !sync_b || !words || !votes || run("oshmem", argc, argv);
    shmem_barrier_all();
    shmem_global_exit(status); // shmem_finalize of Open MPI 4.1 faults, in an empty program too
    return status;
}
